package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
)

// kubeconfig returns a kubeconfig whose cluster and user have these fields.
func kubeconfig(cluster, user string) string {
	return fmt.Sprintf(`
current-context: one
contexts:
- {name: one, context: {cluster: c, user: u, namespace: vms}}
- {name: two, context: {cluster: c, user: nobody}}
- {name: three, context: {cluster: nowhere, user: u}}
clusters: [{name: c, cluster: {%s}}]
users: [{name: u, user: {%s}}]
`, cluster, user)
}

const serverField = "server: 'https://k8s.example.com:6443/base'"

// newCertificate returns a certificate and its key in PEM.
func newCertificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw}))
}

func TestParse(t *testing.T) {
	cert, key := newCertificate(t)
	dir := t.TempDir()
	for name, text := range map[string]string{"token": "from-file\n", "ca.pem": cert, "key.pem": key} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	in64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	for name, c := range map[string]struct {
		text         string
		token        Secret
		certificates int
		roots        bool
	}{
		"a token":            {kubeconfig(serverField, "token: abc"), "abc", 0, false},
		"a token in a file":  {kubeconfig(serverField, "token: abc, tokenFile: token"), "from-file", 0, false},
		"a certificate":      {kubeconfig(serverField+", certificate-authority: ca.pem", "client-certificate: ca.pem, client-key: key.pem"), "", 1, true},
		"inline certificate": {kubeconfig(serverField, "client-certificate-data: "+in64(cert)+", client-key-data: "+in64(key)), "", 1, false},
		"inline authority":   {kubeconfig(serverField+", certificate-authority-data: "+in64(cert), "token: abc"), "abc", 0, true},
	} {
		got, err := parseConfig([]byte(c.text), dir, "")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got.Server.Host != "k8s.example.com:6443" || got.Server.Path != "/base" || got.Namespace != "vms" {
			t.Errorf("%s: got server %v, namespace %s", name, got.Server, got.Namespace)
		}
		if got.Token != c.token || len(got.TLS.Certificates) != c.certificates || (got.TLS.RootCAs != nil) != c.roots {
			t.Errorf("%s: got token %q, TLS %+v", name, string(got.Token), got.TLS)
		}
		if got.TLS.InsecureSkipVerify {
			t.Errorf("%s: certificates are not verified", name)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		text, context string
		want          fault.Kind
	}{
		"no YAML":               {"\t", "", fault.Invalid},
		"nothing":               {"", "", fault.NotFound},
		"no such context":       {kubeconfig(serverField, "token: a"), "four", fault.NotFound},
		"no such user":          {kubeconfig(serverField, "token: a"), "two", fault.NotFound},
		"no such cluster":       {kubeconfig(serverField, "token: a"), "three", fault.NotFound},
		"a server without TLS":  {kubeconfig("server: 'http://x'", "token: a"), "", fault.Invalid},
		"no server":             {kubeconfig("", "token: a"), "", fault.Invalid},
		"no credentials":        {kubeconfig(serverField, ""), "", fault.Unsupported},
		"an old plugin":         {kubeconfig(serverField, "exec: {command: aws, apiVersion: client.authentication.k8s.io/v1alpha1}"), "", fault.Unsupported},
		"a plugin, no command":  {kubeconfig(serverField, "exec: {apiVersion: client.authentication.k8s.io/v1}"), "", fault.Invalid},
		"a plugin, no mode":     {kubeconfig(serverField, "exec: {command: aws, apiVersion: client.authentication.k8s.io/v1}"), "", fault.Invalid},
		"a plugin, odd mode":    {kubeconfig(serverField, "exec: {command: aws, apiVersion: client.authentication.k8s.io/v1, interactiveMode: always}"), "", fault.Invalid},
		"a plugin that prompts": {kubeconfig(serverField, "exec: {command: aws, apiVersion: client.authentication.k8s.io/v1, interactiveMode: Always}"), "", fault.Unsupported},
		"a token of two lines":  {kubeconfig(serverField, `token: "a\r\nHost: evil"`), "", fault.Invalid},
		"no base64":             {kubeconfig(serverField+", certificate-authority-data: '%%'", "token: a"), "", fault.Invalid},
		"no PEM":                {kubeconfig(serverField+", certificate-authority-data: YWJj", "token: a"), "", fault.Invalid},
		"no file":               {kubeconfig(serverField, "tokenFile: not-there"), "", fault.NotFound},
		"a device":              {kubeconfig(serverField, "tokenFile: /dev/zero"), "", fault.Invalid},
		"a certificate, no key": {kubeconfig(serverField, "client-certificate-data: YWJj"), "", fault.Invalid},
	} {
		got, err := parseConfig([]byte(c.text), t.TempDir(), c.context)
		if !fault.Is(err, c.want) || fault.HintOf(err) == "" {
			t.Errorf("%s: got %+v, %v (%v), hint %q", name, got, err, fault.KindOf(err), fault.HintOf(err))
		}
	}
}

func TestLoadIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "big")
	if err := os.WriteFile(path, []byte(strings.Repeat("#", maxFile+1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path, "", RefusePlugins); !fault.Is(err, fault.Invalid) {
		t.Errorf("got %v, want invalid", err)
	}
	if _, err := Load(path+".not", "", RefusePlugins); !fault.Is(err, fault.NotFound) {
		t.Errorf("got %v, want not found", err)
	}
	t.Setenv("HOME", filepath.Dir(path))
	if err := os.WriteFile(path, []byte(kubeconfig(serverField, "token: a")), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := Load("~/big", "one", RefusePlugins); err != nil || c.Token != "a" {
		t.Errorf("Load with ~: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(kubeconfig(serverField, "token: a")), "one")
	f.Add([]byte(kubeconfig(serverField, "exec: {command: /bin/false, apiVersion: client.authentication.k8s.io/v1beta1, env: [{name: a, value: b}]}")), "one")
	f.Add([]byte(kubeconfig(serverField+", certificate-authority-data: YWJj", "client-certificate: /dev/null")), "two")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte, context string) {
		c, err := parseConfig(text, dir, context)
		if err == nil && (c.Server.Scheme != "https" || c.Token == "" && len(c.TLS.Certificates) == 0 && c.login == nil) {
			t.Errorf("parseConfig(%q) = %+v", text, c)
		}
	})
}

// An error answer of the API server has a kind and, for most kinds, a hint.
func TestErrorAnswers(t *testing.T) {
	status := func(message string) string { return fmt.Sprintf(`{"kind":"Status","message":%q}`, message) }
	for _, c := range []struct {
		code    int
		text    string
		want    fault.Kind
		message string
	}{
		{401, status("Unauthorized"), fault.Denied, "Unauthorized"},
		{403, status("may not"), fault.Denied, "may not"},
		{403, status("exceeded quota: q, requested: storage=1Ti"), fault.Full, "exceeded quota"},
		{404, status("not found"), fault.NotFound, "not found"},
		{409, status("already exists"), fault.Conflict, "already exists"},
		{422, status("spec.bogus"), fault.Invalid, "spec.bogus"},
		{429, "", fault.Transient, "429"},
		{503, "<html>proxy</html>", fault.Transient, "503"},
		{500, strings.Repeat("x", 1<<20), fault.Transient, "500"},
		{200, "<html>login</html>", fault.Corrupt, "GET"},
		{200, strings.Repeat(" ", maxAnswer+1), fault.Corrupt, "more than"},
	} {
		s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.code)
			_, _ = w.Write([]byte(c.text)) // fails if the client stops reading
		}))
		err := newTestClient(t, s).Read(t.Context(), Kind{Group: "g", Version: "v1", Plural: "things"}, "ns", "x", &struct{}{})
		s.Close()
		if !fault.Is(err, c.want) || !strings.Contains(err.Error(), c.message) || len(err.Error()) > 3000 {
			t.Errorf("%d: got %.300v (%v), want %v", c.code, err, fault.KindOf(err), c.want)
		}
		if c.want != fault.NotFound && c.want != fault.Conflict && c.message != "more than" && fault.HintOf(err) == "" {
			t.Errorf("%d: no hint", c.code)
		}
	}
}

func newTestClient(t *testing.T, s *httptest.Server) *Client {
	t.Helper()
	ca := filepath.Join(t.TempDir(), "ca")
	text := "-----BEGIN CERTIFICATE-----\n" + base64.StdEncoding.EncodeToString(s.Certificate().Raw) + "\n-----END CERTIFICATE-----\n"
	if err := os.WriteFile(ca, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := parseConfig([]byte(kubeconfig("server: '"+s.URL+"', certificate-authority: "+ca, "token: abc")), "", "")
	if err != nil {
		t.Fatal(err)
	}
	client := New(c)
	t.Cleanup(client.Close)
	return client
}
