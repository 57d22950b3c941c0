//go:build kube

package kubevirt

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/targets/kubevirt/kube"
)

// buildDir is where scripts/kube.sh puts the programs and definitions that these tests use.
const buildDir = "../../../build/kube"

// startupTimeout limits the time until the API server is ready, on a busy machine.
const startupTimeout = 5 * time.Minute

// An apiServer is a real Kubernetes API server with etcd. No controllers run.
type apiServer struct {
	url   string
	ca    []byte // PEM
	admin string // token with all privileges
	http  *http.Client
}

// startAPIServer returns a server that is ready. If another program has taken one of the chosen ports, it tries again
// with other ports.
func startAPIServer(t *testing.T) *apiServer {
	t.Helper()
	for range 5 {
		if s := tryAPIServer(t); s != nil {
			return s
		}
	}
	t.Fatal("the API server did not start")
	return nil
}

// tryAPIServer returns nil if etcd or the API server ends.
func tryAPIServer(t *testing.T) *apiServer {
	t.Helper()
	dir := t.TempDir()
	etcd, peer, secure := freePort(t), freePort(t), freePort(t)
	s := &apiServer{url: fmt.Sprintf("https://127.0.0.1:%d", secure), admin: rand.Text()}
	writeFile(t, dir, "tokens.csv", fmt.Appendf(nil, "%s,admin,admin,system:masters\n", s.admin))
	writeFile(t, dir, "account.key", newSigningKey(t))
	client := fmt.Sprintf("http://127.0.0.1:%d", etcd)
	between := fmt.Sprintf("http://127.0.0.1:%d", peer)
	store := startProgram(t, dir, "etcd", "--data-dir="+dir+"/etcd", "--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+between, "--initial-advertise-peer-urls="+between, "--initial-cluster=default="+between)
	path, err := filepath.Abs(buildDir + "/kube-apiserver")
	if err != nil {
		t.Fatal(err)
	}
	server := startProgram(t, dir, path, "--etcd-servers="+client, "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", secure), "--endpoint-reconciler-type=none", "--cert-dir="+dir, "--authorization-mode=RBAC",
		"--token-auth-file="+dir+"/tokens.csv", "--service-cluster-ip-range=10.0.0.0/24", "--disable-admission-plugins=ServiceAccount",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+dir+"/account.key",
		"--service-account-signing-key-file="+dir+"/account.key")
	if !s.waitReady(t, dir, store, server) {
		return nil
	}
	return s
}

// waitReady reports whether the server is ready before one of the programs ends. It authenticates the server by its
// certificate, and itself by the token.
func (s *apiServer) waitReady(t *testing.T, dir string, ended ...<-chan struct{}) bool {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(startupTimeout)
	for {
		select {
		case <-ended[0]:
			return false
		case <-ended[1]:
			return false
		case <-deadline:
			t.Fatalf("the API server is not ready; see %s", logTail(filepath.Join(dir, "kube-apiserver.log")))
		case <-tick.C:
		}
		ca, err := os.ReadFile(filepath.Join(dir, "apiserver.crt"))
		if err != nil {
			continue
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(ca)
		s.ca, s.http = ca, &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}, Timeout: time.Minute}
		if code, _, err := s.send(t.Context(), http.MethodGet, "/readyz", "", nil); err == nil && code == http.StatusOK {
			t.Cleanup(s.http.CloseIdleConnections)
			return true
		}
	}
}

// startProgram starts a program that is killed when the test ends. The channel is closed when the program has ended.
func startProgram(t *testing.T, dir, path string, args ...string) <-chan struct{} {
	t.Helper()
	log, err := os.Create(filepath.Join(dir, filepath.Base(path)+".log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v: make test-kube installs and builds the programs of this test", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // error of the killed program
		_ = log.Close()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // fails if the program has ended
		<-ended
	})
	return ended
}

// send sends one request as the administrator. An empty contentType sets no header.
func (s *apiServer) send(ctx context.Context, method, path, contentType string, body any) (code int, text []byte, err error) {
	content, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(content))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+s.admin)
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	text, err = io.ReadAll(resp.Body)
	return resp.StatusCode, text, err
}

// create creates an object and returns the server's answer.
func (s *apiServer) create(t *testing.T, path string, body any) (created map[string]any) {
	t.Helper()
	return s.mustSend(t, http.MethodPost, path, "application/json", body)
}

// patch changes fields of an object.
func (s *apiServer) patch(t *testing.T, path string, body any) map[string]any {
	t.Helper()
	return s.mustSend(t, http.MethodPatch, path, "application/merge-patch+json", body)
}

// mustSend sends a request and returns the answer. It fails the test if the server refuses.
func (s *apiServer) mustSend(t *testing.T, method, path, contentType string, body any) (o map[string]any) {
	t.Helper()
	code, text, err := s.send(t.Context(), method, path, contentType, body)
	if err != nil || code/100 != 2 {
		t.Fatalf("%s %s: %d %s, %v", method, path, code, text, err)
	}
	if err := json.Unmarshal(text, &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// kubeconfig returns a kubeconfig for the server, or for a proxy in front of it, with a token.
func kubeconfig(url string, ca []byte, token, namespace string) []byte {
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: test, namespace: %s}}]
clusters: [{name: test, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: test, user: {token: %q}}]
`, namespace, url, base64.StdEncoding.EncodeToString(ca), token)
}

// newClient returns decamp's client with a token.
func (s *apiServer) newClient(t *testing.T, token, namespace string) *kube.Client {
	t.Helper()
	config, err := kube.Load(writeKubeconfig(t, kubeconfig(s.url, s.ca, token, namespace)), "", kube.RefusePlugins)
	if err != nil {
		t.Fatal(err)
	}
	c := kube.New(config)
	t.Cleanup(c.Close)
	return c
}

// openCluster returns decamp's Cluster for a namespace with a token. It polls often.
func (s *apiServer) openCluster(t *testing.T, token, namespace string) *Cluster {
	t.Helper()
	return openClusterAt(t, s.url, s.ca, token, namespace)
}

func openClusterAt(t *testing.T, url string, ca []byte, token, namespace string) *Cluster {
	t.Helper()
	c, err := newCluster(address{kubeconfig: writeKubeconfig(t, kubeconfig(url, ca, token, namespace)), Options: Options{Network: "multus:lan"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // Close never fails
	c.poll = 10 * time.Millisecond
	return c
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func writeFile(t *testing.T, dir, name string, text []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// newSigningKey returns a PEM key that signs the tokens of service accounts.
func newSigningKey(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

// logTail returns the end of a log.
func logTail(path string) []byte {
	text, _ := os.ReadFile(path) // without a log the tail is empty
	return text[max(0, len(text)-4000):]
}
