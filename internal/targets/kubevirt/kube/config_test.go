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

// config is a kubeconfig whose cluster and user have these fields.
func config(cluster, user string) string {
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

const server = "server: 'https://k8s.example.com:6443/base'"

// pair is a certificate and its key, in PEM.
func pair(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, of, of, &private.PublicKey, private)
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
	cert, key := pair(t)
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
		"a token":                 {config(server, "token: abc"), "abc", 0, false},
		"a token in a file":       {config(server, "token: abc, tokenFile: token"), "from-file", 0, false},
		"a certificate":           {config(server+", certificate-authority: ca.pem", "client-certificate: ca.pem, client-key: key.pem"), "", 1, true},
		"a certificate in itself": {config(server, "client-certificate-data: "+in64(cert)+", client-key-data: "+in64(key)), "", 1, false},
		"an authority in itself":  {config(server+", certificate-authority-data: "+in64(cert), "token: abc"), "abc", 0, true},
	} {
		got, err := parseConfig([]byte(c.text), dir, "")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got.Server.Host != "k8s.example.com:6443" || got.Server.Path != "/base" || got.Namespace != "vms" {
			t.Errorf("%s: at %v, %s", name, got.Server, got.Namespace)
		}
		if got.Token != c.token || len(got.TLS.Certificates) != c.certificates || (got.TLS.RootCAs != nil) != c.roots {
			t.Errorf("%s: token %q, %+v", name, string(got.Token), got.TLS)
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
		"no such context":       {config(server, "token: a"), "four", fault.NotFound},
		"no such user":          {config(server, "token: a"), "two", fault.NotFound},
		"no such cluster":       {config(server, "token: a"), "three", fault.NotFound},
		"a server without TLS":  {config("server: 'http://x'", "token: a"), "", fault.Invalid},
		"no server":             {config("", "token: a"), "", fault.Invalid},
		"no credentials":        {config(server, ""), "", fault.Unsupported},
		"an old plugin":         {config(server, "exec: {command: aws, apiVersion: client.authentication.k8s.io/v1alpha1}"), "", fault.Unsupported},
		"a plugin, no command":  {config(server, "exec: {apiVersion: client.authentication.k8s.io/v1}"), "", fault.Invalid},
		"a plugin, no mode":     {config(server, "exec: {command: aws, apiVersion: client.authentication.k8s.io/v1}"), "", fault.Invalid},
		"a plugin, odd mode":    {config(server, "exec: {command: aws, apiVersion: client.authentication.k8s.io/v1, interactiveMode: always}"), "", fault.Invalid},
		"a plugin that prompts": {config(server, "exec: {command: aws, apiVersion: client.authentication.k8s.io/v1, interactiveMode: Always}"), "", fault.Unsupported},
		"a token of two lines":  {config(server, `token: "a\r\nHost: evil"`), "", fault.Invalid},
		"no base64":             {config(server+", certificate-authority-data: '%%'", "token: a"), "", fault.Invalid},
		"no PEM":                {config(server+", certificate-authority-data: YWJj", "token: a"), "", fault.Invalid},
		"no file":               {config(server, "tokenFile: not-there"), "", fault.NotFound},
		"a device":              {config(server, "tokenFile: /dev/zero"), "", fault.Invalid},
		"a certificate, no key": {config(server, "client-certificate-data: YWJj"), "", fault.Invalid},
	} {
		got, err := parseConfig([]byte(c.text), t.TempDir(), c.context)
		if !fault.Is(err, c.want) || fault.HintOf(err) == "" {
			t.Errorf("%s: %+v, %v (%v): %q", name, got, err, fault.KindOf(err), fault.HintOf(err))
		}
	}
}

func TestLoadIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "big")
	if err := os.WriteFile(path, []byte(strings.Repeat("#", maxFile+1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path, "", RefusePlugins); !fault.Is(err, fault.Invalid) {
		t.Errorf("%v", err)
	}
	if _, err := Load(path+".not", "", RefusePlugins); !fault.Is(err, fault.NotFound) {
		t.Errorf("%v", err)
	}
	t.Setenv("HOME", filepath.Dir(path))
	if err := os.WriteFile(path, []byte(config(server, "token: a")), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := Load("~/big", "one", RefusePlugins); err != nil || c.Token != "a" {
		t.Errorf("%v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(config(server, "token: a")), "one")
	f.Add([]byte(config(server, "exec: {command: /bin/false, apiVersion: client.authentication.k8s.io/v1beta1, env: [{name: a, value: b}]}")), "one")
	f.Add([]byte(config(server+", certificate-authority-data: YWJj", "client-certificate: /dev/null")), "two")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte, context string) {
		c, err := parseConfig(text, dir, context)
		if err == nil && (c.Server.Scheme != "https" || c.Token == "" && len(c.TLS.Certificates) == 0 && c.login == nil) {
			t.Errorf("%q is %+v", text, c)
		}
	})
}

// What the API server says becomes a fault with its kind, and a remedy where there is one.
func TestAnswersHaveKinds(t *testing.T) {
	status := func(message string) string { return fmt.Sprintf(`{"kind":"Status","message":%q}`, message) }
	for _, c := range []struct {
		code int
		text string
		want fault.Kind
		says string
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
			_, _ = w.Write([]byte(c.text)) // one that stops reading may
		}))
		err := clientOf(t, s).Read(t.Context(), Kind{Group: "g", Version: "v1", Plural: "things"}, "ns", "x", &struct{}{})
		s.Close()
		if !fault.Is(err, c.want) || !strings.Contains(err.Error(), c.says) || len(err.Error()) > 3000 {
			t.Errorf("%d: %.300v (%v)", c.code, err, fault.KindOf(err))
		}
		if c.want != fault.NotFound && c.want != fault.Conflict && c.says != "more than" && fault.HintOf(err) == "" {
			t.Errorf("%d: no remedy", c.code)
		}
	}
}

func clientOf(t *testing.T, s *httptest.Server) *Client {
	t.Helper()
	ca := filepath.Join(t.TempDir(), "ca")
	text := "-----BEGIN CERTIFICATE-----\n" + base64.StdEncoding.EncodeToString(s.Certificate().Raw) + "\n-----END CERTIFICATE-----\n"
	if err := os.WriteFile(ca, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := parseConfig([]byte(config("server: '"+s.URL+"', certificate-authority: "+ca, "token: abc")), "", "")
	if err != nil {
		t.Fatal(err)
	}
	client := New(c)
	t.Cleanup(client.Close)
	return client
}
