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
	path string // of its certificate, in PEM
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

func (a *authority) sign(name string, units ...string) tls.Certificate {
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

// with is the rig with a client of that certificate.
func (r *rig) with(cert tls.Certificate) *rig {
	client := r.Client()
	client.Transport.(*http.Transport).TLSClientConfig.Certificates = []tls.Certificate{cert}
	r.t.Cleanup(client.CloseIdleConnections)
	return &rig{r.Fleet, r.t, client}
}

func TestCertificatesSayWhoAsks(t *testing.T) {
	ca := newAuthority(t)
	r := newRig(t, func(c *server.Config) { c.ClientCA = ca.path })
	if a := r.with(ca.sign("alice", "view")).ask("", "GET", "/v1/plans", ""); a.status != http.StatusOK {
		t.Errorf("view: %d %s", a.status, a.body)
	}
	if a := r.with(ca.sign("alice", "view")).ask("", "PUT", "/v1/limits", `{"limits":[{"name":"host:esx1/rate","units":1}]}`); a.status != http.StatusForbidden {
		t.Errorf("view sets a limit: %d", a.status)
	}
	if a := r.with(ca.sign("bob", "staff", "operate")).ask("", "PUT", "/v1/limits", `{"limits":[{"name":"host:esx1/rate","units":1}]}`); a.status != http.StatusOK {
		t.Errorf("operate: %d %s", a.status, a.body)
	}
	if e := r.audit(1)[0]; e.User != "bob" || e.Role != "operate" || e.On != "host:esx1/rate" || e.From != "127.0.0.1" {
		t.Errorf("noted %+v", e)
	}
	if a := r.with(ca.sign("eve", "staff")).ask("", "GET", "/v1/plans", ""); a.status != http.StatusForbidden || !strings.Contains(a.body, "OU") {
		t.Errorf("no role: %d %s", a.status, a.body)
	}
	if a := r.ask(server.View, "GET", "/v1/plans", ""); a.status != http.StatusOK {
		t.Errorf("a token beside certificates: %d", a.status)
	}
	other := r.with(newAuthority(t).sign("mallory", "admin"))
	if resp, err := other.client.Get(r.URL + "/v1/plans"); err == nil {
		resp.Body.Close()
		t.Errorf("another CA's certificate: %s", resp.Status)
	}
}

func TestWrongTokensAreThrottledAndNoted(t *testing.T) {
	r := newRig(t, nil)
	guess := func() answer {
		return r.askWith("GET", "/v1/plans", "", func(req *http.Request) { req.Header.Set("Authorization", "Bearer decamp_guess") })
	}
	statuses := map[int]int{}
	for range 30 {
		statuses[guess().status]++
	}
	if statuses[http.StatusForbidden] == 0 || statuses[http.StatusTooManyRequests] == 0 || len(statuses) != 2 {
		t.Errorf("statuses %v", statuses)
	}
	a := guess()
	if a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" {
		t.Errorf("%d, retry after %q", a.status, a.header.Get("Retry-After"))
	}
	if n := len(r.audit(100)); n == 0 || n > 15 {
		t.Errorf("%d lines in the audit trail of 31 guesses", n)
	}
	if got := r.metrics(); !strings.Contains(got, "\ndecamp_http_refusals_total 31\n") {
		t.Error("the metrics do not count 31 refusals")
	}
	if strings.Contains(r.audit(1)[0].Err+r.audit(1)[0].On, "decamp_guess") {
		t.Error("the audit trail repeats what was guessed")
	}
}

// A valid token, a session and a certificate count from an address that guessed too often: only wrong
// tokens are throttled, in the login form, too.
func TestGuessesOfOthersLockNoTokenOut(t *testing.T) {
	ca := newAuthority(t)
	r := newRig(t, func(c *server.Config) { c.ClientCA = ca.path })
	login := func(token string) answer {
		return r.askWith("POST", "/login", url.Values{"token": {token}}.Encode(), func(req *http.Request) {
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		})
	}
	wrong := func() answer {
		return r.askWith("GET", "/v1/plans", "", func(req *http.Request) { req.Header.Set("Authorization", "Bearer decamp_guess") })
	}
	session := login(r.Tokens[server.View])
	for wrong().status != http.StatusTooManyRequests {
	}
	if a := r.ask(server.View, "GET", "/v1/plans", ""); a.status != http.StatusOK {
		t.Errorf("a valid token: %d %s", a.status, a.body)
	}
	if a := login(r.Tokens[server.View]); a.status != http.StatusSeeOther || a.header.Get("Set-Cookie") == "" {
		t.Errorf("a valid token in the login form: %d %s", a.status, a.body)
	}
	if a := r.with(ca.sign("alice", "view")).ask("", "GET", "/v1/plans", ""); a.status != http.StatusOK {
		t.Errorf("a certificate: %d %s", a.status, a.body)
	}
	a := r.askWith("GET", "/v1/plans", "", func(req *http.Request) { req.Header.Set("Cookie", session.header.Get("Set-Cookie")) })
	if a.status != http.StatusOK {
		t.Errorf("a session: %d %s", a.status, a.body)
	}
	if a := login("decamp_guess"); a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" {
		t.Errorf("a wrong token in the login form: %d, retry after %q", a.status, a.header.Get("Retry-After"))
	}
	if a := wrong(); a.status != http.StatusTooManyRequests {
		t.Errorf("a wrong token after valid ones: %d", a.status)
	}
}

// What is much longer than a token is refused like a wrong one.
func TestLongTokensAreRefused(t *testing.T) {
	r := newRig(t, nil)
	a := r.askWith("GET", "/v1/plans", "", func(req *http.Request) { req.Header.Set("Authorization", "Bearer "+strings.Repeat("x", 20<<10)) })
	if a.status != http.StatusForbidden {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// Strangers who show nothing throttle nobody.
func TestStrangersWithoutATokenThrottleNobody(t *testing.T) {
	r := newRig(t, nil)
	for range 50 {
		if a := r.ask("", "GET", "/v1/plans", ""); a.status != http.StatusUnauthorized || a.header.Get("WWW-Authenticate") == "" {
			t.Fatalf("%d", a.status)
		}
	}
	if a := r.ask(server.View, "GET", "/v1/plans", ""); a.status != http.StatusOK {
		t.Errorf("with a token: %d", a.status)
	}
	if n := len(r.audit(100)); n == 0 || n > 15 {
		t.Errorf("%d lines in the audit trail of 50 strangers", n)
	}
}

func TestWithoutTLSOnlyThisMachineIsServed(t *testing.T) {
	for addr, want := range map[string]bool{
		"127.0.0.1:0": true, "[::1]:0": true, "localhost:0": true, ":0": false, "0.0.0.0:0": false, "192.0.2.1:80": false, "nonsense": false,
	} {
		if err := server.MayListen(addr, true); (err == nil) != want || err != nil && !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", addr, err)
		}
	}
}

func TestOurCertificateStays(t *testing.T) {
	r := newRig(t, nil)
	before := r.Fingerprint
	r.must(r.Stop())
	r.must(r.Serve(t.Context(), nil))
	if r.Fingerprint != before || len(before) != 32*3-1 {
		t.Errorf("fingerprint %s, then %s", before, r.Fingerprint)
	}
	if st, err := os.Stat(filepath.Join(r.State, "tls.pem")); err != nil || st.Mode() != 0o600 {
		t.Errorf("key: %v, %v", st.Mode(), err)
	}
}
