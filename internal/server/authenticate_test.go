package server_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/server"
)

// authority signs certificates of clients.
type authority struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	path string // file of the certificate, in PEM
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{t: t, key: key, path: filepath.Join(t.TempDir(), "ca.pem")}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "CA"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(a.path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *authority) newCertificate(name string, units ...string) tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name, OrganizationalUnit: units},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// withCertificate returns the server with a client that has the certificate.
func (r *testServer) withCertificate(cert tls.Certificate) *testServer {
	client := r.Client()
	client.Transport.(*http.Transport).TLSClientConfig.Certificates = []tls.Certificate{cert}
	r.t.Cleanup(client.CloseIdleConnections)
	return &testServer{r.Fleet, r.t, client}
}

func TestClientCertificatesAuthenticate(t *testing.T) {
	ca := newAuthority(t)
	r := newTestServer(t, func(c *server.Config) { c.ClientCA = ca.path })
	if a := r.withCertificate(ca.newCertificate("alice", "view")).sendAs("", "GET", "/v1/plans", ""); a.status != http.StatusOK {
		t.Errorf("view: %d %s", a.status, a.body)
	}
	if a := r.withCertificate(ca.newCertificate("alice", "view")).sendAs("", "PUT", "/v1/limits", `{"limits":[{"name":"host:esx1/rate","units":1}]}`); a.status != http.StatusForbidden {
		t.Errorf("view sets a limit: %d", a.status)
	}
	if a := r.withCertificate(ca.newCertificate("bob", "staff", "operate")).sendAs("", "PUT", "/v1/limits", `{"limits":[{"name":"host:esx1/rate","units":1}]}`); a.status != http.StatusOK {
		t.Errorf("operate: %d %s", a.status, a.body)
	}
	if e := r.auditEntries(1)[0]; e.User != "bob" || e.Role != "operate" || e.On != "host:esx1/rate" || e.From != "127.0.0.1" {
		t.Errorf("the audit trail has %+v", e)
	}
	if a := r.withCertificate(ca.newCertificate("eve", "staff")).sendAs("", "GET", "/v1/plans", ""); a.status != http.StatusForbidden || !strings.Contains(a.body, "OU") {
		t.Errorf("no role: %d %s", a.status, a.body)
	}
	if a := r.sendAs(server.View, "GET", "/v1/plans", ""); a.status != http.StatusOK {
		t.Errorf("a token on a server that accepts certificates: %d", a.status)
	}
	other := r.withCertificate(newAuthority(t).newCertificate("mallory", "admin"))
	if resp, err := other.client.Get(r.URL + "/v1/plans"); err == nil {
		resp.Body.Close()
		t.Errorf("the certificate of another CA: %s", resp.Status)
	}
}

func TestWrongTokensAreThrottledAndAudited(t *testing.T) {
	r := newTestServer(t, nil)
	sendWrongToken := func() response {
		return r.send("GET", "/v1/plans", "", func(req *http.Request) { req.Header.Set("Authorization", "Bearer decamp_guess") })
	}
	statuses := map[int]int{}
	for range 30 {
		statuses[sendWrongToken().status]++
	}
	if statuses[http.StatusForbidden] == 0 || statuses[http.StatusTooManyRequests] == 0 || len(statuses) != 2 {
		t.Errorf("statuses %v", statuses)
	}
	a := sendWrongToken()
	if a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" {
		t.Errorf("got status %d, Retry-After %q", a.status, a.header.Get("Retry-After"))
	}
	if n := len(r.auditEntries(100)); n == 0 || n > 15 {
		t.Errorf("got %d audit entries for 31 wrong tokens, want 1 to 15", n)
	}
	if got := r.scrapeMetrics(); !strings.Contains(got, "\ndecamp_http_refusals_total 31\n") {
		t.Error("the metrics do not count 31 refusals")
	}
	if strings.Contains(r.auditEntries(1)[0].Err+r.auditEntries(1)[0].On, "decamp_guess") {
		t.Error("the audit trail contains the wrong token")
	}
}

// The server accepts a valid token, a session and a certificate from a throttled address. It throttles only wrong
// tokens, also in the login form.
func TestValidTokensWorkFromThrottledAddress(t *testing.T) {
	ca := newAuthority(t)
	r := newTestServer(t, func(c *server.Config) { c.ClientCA = ca.path })
	login := func(token string) response {
		return r.send("POST", "/login", url.Values{"token": {token}}.Encode(), func(req *http.Request) {
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		})
	}
	sendWrongToken := func() response {
		return r.send("GET", "/v1/plans", "", func(req *http.Request) { req.Header.Set("Authorization", "Bearer decamp_guess") })
	}
	session := login(r.Tokens[server.View])
	for sendWrongToken().status != http.StatusTooManyRequests {
	}
	if a := r.sendAs(server.View, "GET", "/v1/plans", ""); a.status != http.StatusOK {
		t.Errorf("a valid token: %d %s", a.status, a.body)
	}
	if a := login(r.Tokens[server.View]); a.status != http.StatusSeeOther || a.header.Get("Set-Cookie") == "" {
		t.Errorf("a valid token in the login form: %d %s", a.status, a.body)
	}
	if a := r.withCertificate(ca.newCertificate("alice", "view")).sendAs("", "GET", "/v1/plans", ""); a.status != http.StatusOK {
		t.Errorf("a certificate: %d %s", a.status, a.body)
	}
	a := r.send("GET", "/v1/plans", "", func(req *http.Request) { req.Header.Set("Cookie", session.header.Get("Set-Cookie")) })
	if a.status != http.StatusOK {
		t.Errorf("a session: %d %s", a.status, a.body)
	}
	if a := login("decamp_guess"); a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" {
		t.Errorf("a wrong token in the login form: %d, retry after %q", a.status, a.header.Get("Retry-After"))
	}
	if a := sendWrongToken(); a.status != http.StatusTooManyRequests {
		t.Errorf("a wrong token after valid ones: %d", a.status)
	}
}

// The server refuses a text that is much longer than a token.
func TestLongTokensAreRefused(t *testing.T) {
	r := newTestServer(t, nil)
	a := r.send("GET", "/v1/plans", "", func(req *http.Request) { req.Header.Set("Authorization", "Bearer "+strings.Repeat("x", 20<<10)) })
	if a.status != http.StatusForbidden {
		t.Errorf("got %d %s, want status 403", a.status, a.body)
	}
}

// Requests without a token throttle no other requests.
func TestRequestsWithoutTokenAreNotThrottled(t *testing.T) {
	r := newTestServer(t, nil)
	for range 50 {
		if a := r.sendAs("", "GET", "/v1/plans", ""); a.status != http.StatusUnauthorized || a.header.Get("WWW-Authenticate") == "" {
			t.Fatalf("got status %d, want 401 with WWW-Authenticate", a.status)
		}
	}
	if a := r.sendAs(server.View, "GET", "/v1/plans", ""); a.status != http.StatusOK {
		t.Errorf("a request with a token: %d", a.status)
	}
	if n := len(r.auditEntries(100)); n == 0 || n > 15 {
		t.Errorf("got %d audit entries for 50 requests, want 1 to 15", n)
	}
}

func TestPlainHTTPOnlyOnLoopback(t *testing.T) {
	for addr, want := range map[string]bool{
		"127.0.0.1:0": true, "[::1]:0": true, "localhost:0": true, ":0": false, "0.0.0.0:0": false, "192.0.2.1:80": false, "nonsense": false,
	} {
		if err := server.MayListen(addr, true); (err == nil) != want || err != nil && !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", addr, err)
		}
	}
}

func TestServerCertificateSurvivesRestart(t *testing.T) {
	r := newTestServer(t, nil)
	before := r.Fingerprint
	r.must(r.Stop())
	r.must(r.Serve(t.Context(), nil))
	if r.Fingerprint != before || len(before) != 32*3-1 {
		t.Errorf("fingerprint %s, then %s", before, r.Fingerprint)
	}
	if st, err := os.Stat(filepath.Join(r.State, "tls.pem")); err != nil || st.Mode() != 0o600 {
		t.Errorf("the key file: %v, %v", st.Mode(), err)
	}
}
