package kube

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/childenv/childenvtest"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/lab/executable"
)

// credentialJSON returns an ExecCredential with this status.
func credentialJSON(version, status string) string {
	return fmt.Sprintf(`{"apiVersion":%q,"kind":"ExecCredential","status":{%s}}`, version, status)
}

// pluginConfig writes a kubeconfig whose plugin is a shell script, and returns its path and the folder of both.
// The script counts its runs in the file runs. Its name has a slash, so it is found beside the kubeconfig.
func pluginConfig(t *testing.T, s *httptest.Server, fields, script string) (path, dir string) {
	t.Helper()
	dir = t.TempDir()
	ca := base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "-----BEGIN CERTIFICATE-----\n%s\n-----END CERTIFICATE-----\n", base64.StdEncoding.EncodeToString(s.Certificate().Raw)))
	path = filepath.Join(dir, "config")
	text := kubeconfig(fmt.Sprintf("server: %q, certificate-authority-data: %s, extensions: [{name: %s, extension: {audience: vms}}]", s.URL, ca, execExtension),
		"exec: {command: ./plugin, "+fields+"}")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	executable.Write(t, filepath.Join(dir, "plugin"), "#!/bin/sh\ncd "+dir+"\necho run >>runs\n"+script)
	return path, dir
}

func loadPlugin(t *testing.T, path string) *Client {
	t.Helper()
	c, err := Load(path, "", AllowPlugins)
	if err != nil {
		t.Fatal(err)
	}
	client := New(c)
	t.Cleanup(client.Close)
	return client
}

func readObject(ctx context.Context, c *Client) error {
	return c.Read(ctx, Kind{Group: "g", Version: "v1", Plural: "things"}, "ns", "x", &struct{}{})
}

func countRuns(t *testing.T, dir string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "runs"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Count(string(text), "\n")
}

const (
	v1Fields   = "apiVersion: " + execV1 + ", interactiveMode: IfAvailable"
	betaFields = "apiVersion: " + execV1beta1
)

// tokenServer answers requests with an accepted bearer token, and all others with 401.
func tokenServer(t *testing.T, accepts func(token string) bool) *httptest.Server {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !accepts(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")) {
			w.WriteHeader(http.StatusUnauthorized)
		}
		fmt.Fprint(w, "{}")
	}))
	t.Cleanup(s.Close)
	return s
}

// A plugin gets the documented input, has a new session without input, and its token is sent. It runs at the first
// request, and again only after the token expires.
func TestPluginLogsInByToken(t *testing.T) {
	for version, fields := range map[string]string{execV1: v1Fields, execV1beta1: betaFields} {
		var got string
		s := tokenServer(t, func(token string) bool { got = token; return true })
		expires := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
		path, dir := pluginConfig(t, s, fields+`, args: [one, "two three"], env: [{name: EXTRA, value: more}], provideClusterInfo: true`, `
read -r pid name state parent group session rest </proc/$$/stat
[ "$session" = $$ ] || exit 3
[ -z "$(cat)" ] || exit 4
[ "$1/$2/$EXTRA" = "one/two three/more" ] || exit 5
printf %s "$KUBERNETES_EXEC_INFO" >info
echo '`+credentialJSON(version, fmt.Sprintf(`"token":"secret","expirationTimestamp":%q`, expires.Format(time.RFC3339)))+`'`)
		c := loadPlugin(t, path)
		if n := countRuns(t, dir); n != 0 {
			t.Errorf("%s: Load ran the plugin", version)
		}
		now := expires.Add(-time.Minute)
		c.config.login.now = func() time.Time { return now }
		for range 2 {
			if err := readObject(t.Context(), c); err != nil || got != "secret" {
				t.Fatalf("%s: token %q, error %v", version, got, err)
			}
		}
		if n := countRuns(t, dir); n != 1 {
			t.Errorf("%s: %d runs for two requests", version, n)
		}
		now = expires
		if err := readObject(t.Context(), c); err != nil || countRuns(t, dir) != 2 {
			t.Errorf("%s: %d runs after the token expired, error %v", version, countRuns(t, dir), err)
		}
		var info struct {
			APIVersion, Kind string
			Spec             struct {
				Interactive *bool
				Cluster     struct {
					Server string
					CA     []byte `json:"certificate-authority-data"`
					Config map[string]string
				}
			}
		}
		text, err := os.ReadFile(filepath.Join(dir, "info"))
		if err != nil || json.Unmarshal(text, &info) != nil {
			t.Fatalf("%s: KUBERNETES_EXEC_INFO is %q, error %v", version, text, err)
		}
		cluster := info.Spec.Cluster
		if info.APIVersion != version || info.Kind != "ExecCredential" || info.Spec.Interactive == nil || *info.Spec.Interactive ||
			cluster.Server != s.URL || len(cluster.CA) == 0 || cluster.Config["audience"] != "vms" {
			t.Errorf("%s: KUBERNETES_EXEC_INFO is %s", version, text)
		}
	}
}

// The client uses the certificate that a plugin prints.
func TestPluginLogsInByCertificate(t *testing.T) {
	cert, key := newCertificate(t)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) != 1 || r.Header.Get("Authorization") != "" {
			t.Errorf("%d certificates, authorization %q", len(r.TLS.PeerCertificates), r.Header.Get("Authorization"))
		}
		fmt.Fprint(w, "{}")
	}))
	s.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	s.StartTLS()
	defer s.Close()
	status, err := json.Marshal(map[string]string{"clientCertificateData": cert, "clientKeyData": key})
	if err != nil {
		t.Fatal(err)
	}
	path, _ := pluginConfig(t, s, v1Fields, "cat <<'END'\n"+credentialJSON(execV1, strings.Trim(string(status), "{}"))+"\nEND\n")
	if err := readObject(t.Context(), loadPlugin(t, path)); err != nil {
		t.Error(err)
	}
}

// For each request, a token that the API server refuses is renewed once.
func TestRefusedTokenIsRenewedOnce(t *testing.T) {
	accepted := "2"
	s := tokenServer(t, func(token string) bool { return token == accepted })
	path, dir := pluginConfig(t, s, v1Fields, `echo '`+credentialJSON(execV1, `"token":"'$(wc -l <runs)'"`)+`'`)
	c := loadPlugin(t, path)
	if err := readObject(t.Context(), c); err != nil || countRuns(t, dir) != 2 {
		t.Errorf("%d runs, error %v", countRuns(t, dir), err)
	}
	accepted = "never"
	if err := readObject(t.Context(), c); !errors.Is(err, fault.ErrLogin) || countRuns(t, dir) != 3 {
		t.Errorf("%d runs, error %v", countRuns(t, dir), err)
	}
}

func TestPluginFails(t *testing.T) {
	s := tokenServer(t, func(string) bool { return true })
	half, err := json.Marshal(map[string]string{"clientCertificateData": "x"})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		script, message string
		want            fault.Kind
	}{
		"exit code":            {"echo 'no session' >&2; exit 7", "no session", fault.Denied},
		"no output":            {"exit 0", "not an ExecCredential", fault.Corrupt},
		"no JSON":              {"echo token", "not an ExecCredential", fault.Corrupt},
		"another version":      {"echo '" + credentialJSON(execV1beta1, `"token":"a"`) + "'", execV1beta1, fault.Corrupt},
		"no status":            {`echo '{"apiVersion":"` + execV1 + `","kind":"ExecCredential"}'`, "neither", fault.Denied},
		"an empty status":      {"echo '" + credentialJSON(execV1, "") + "'", "neither", fault.Denied},
		"a certificate, alone": {"echo '" + credentialJSON(execV1, strings.Trim(string(half), "{}")) + "'", "certificate", fault.Corrupt},
		"a token of two lines": {"cat <<'END'\n" + credentialJSON(execV1, `"token":"a\r\nHost: evil"`) + "\nEND\n", "token", fault.Invalid},
		"too much output":      {"exec cat /dev/zero", "more than", fault.Corrupt},
	} {
		path, _ := pluginConfig(t, s, v1Fields, c.script)
		err := readObject(t.Context(), loadPlugin(t, path))
		if !fault.Is(err, c.want) || fault.HintOf(err) == "" || !strings.Contains(fmt.Sprint(err), c.message) || len(err.Error()) > 3000 {
			t.Errorf("%s: got %.500v (%v, hint %q)", name, err, fault.KindOf(err), fault.HintOf(err))
		}
	}
}

func TestPluginIsNotInstalled(t *testing.T) {
	s := tokenServer(t, func(string) bool { return true })
	path, dir := pluginConfig(t, s, v1Fields+`, installHint: "install\nthe \x1b[31mtool"`, "")
	if err := os.Remove(filepath.Join(dir, "plugin")); err != nil {
		t.Fatal(err)
	}
	err := readObject(t.Context(), loadPlugin(t, path))
	if !fault.Is(err, fault.Unsupported) || fault.HintOf(err) != "install the [31mtool" || !errors.Is(err, fault.ErrLogin) {
		t.Errorf("got %v (hint %q)", err, fault.HintOf(err))
	}
}

// A plugin that exceeds the timeout is killed.
func TestHangingPluginIsKilled(t *testing.T) {
	s := tokenServer(t, func(string) bool { return true })
	path, _ := pluginConfig(t, s, v1Fields, "sleep 1000000 & wait")
	c := loadPlugin(t, path)
	c.config.login.timeout = time.Millisecond
	if err := readObject(t.Context(), c); !fault.Is(err, fault.Unreachable) || !strings.Contains(err.Error(), "did not end") {
		t.Errorf("got %v, want unreachable", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := readObject(ctx, c); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want canceled", err)
	}
}

// Load refuses plugins unless the caller allows them, and if other users can write to the kubeconfig.
func TestPluginsAreRefused(t *testing.T) {
	s := tokenServer(t, func(string) bool { return true })
	path, dir := pluginConfig(t, s, v1Fields, "")
	if _, err := Load(path, "", RefusePlugins); !fault.Is(err, fault.Denied) || !strings.Contains(fault.HintOf(err), "access.yaml") {
		t.Errorf("refused plugins: %v (%q)", err, fault.HintOf(err))
	}
	for _, mode := range []os.FileMode{0o620, 0o602} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(path, "", AllowPlugins); !fault.Is(err, fault.Denied) || !strings.Contains(fault.HintOf(err), "chmod") {
			t.Errorf("mode %v: %v (%q)", mode, err, fault.HintOf(err))
		}
	}
	if n := countRuns(t, dir); n != 0 {
		t.Errorf("the plugin ran %d times", n)
	}
}

// The environment of a plugin does not contain secrets of decamp.
func TestPluginGetsNoSecrets(t *testing.T) {
	s := tokenServer(t, func(string) bool { return true })
	path, _ := pluginConfig(t, s, v1Fields, "")
	check := childenvtest.Replace(t, "decamp-test-plugin", "KUBERNETES_EXEC_INFO", "AWS_PROFILE", "HTTPS_PROXY")
	c := loadPlugin(t, path)
	c.config.login.plugin.Command = "decamp-test-plugin"
	_, err := c.config.login.currentCredential(t.Context()) // the plugin prints no credential
	if !fault.Is(err, fault.Corrupt) {
		t.Error(err)
	}
	check()
}
