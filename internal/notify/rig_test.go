package notify

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/lab/executable"
)

// waitTimeout is the longest wait of a test for an event that should occur at once.
const waitTimeout = time.Minute

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// writeFile writes a file with a mode into a new folder.
func writeFile(t testing.TB, name, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	must(t, os.WriteFile(path, []byte(text), mode))
	return path
}

// writeProgram writes a program, and returns its path.
func writeProgram(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "page")
	executable.Write(t, path, text)
	return path
}

// whsec is the key that signs requests in tests.
const whsec = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYqr"

// loadReceivers loads a notification file.
func loadReceivers(t testing.TB, text string) *Receivers {
	t.Helper()
	r, err := Load(writeFile(t, "notify.yaml", text, 0o644), Options{Commands: true, Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	return r
}

// hook is a webhook that records the requests that it accepts.
type hook struct {
	*httptest.Server
	t        testing.TB
	ca       string             // file with its certificate
	received chan *http.Request // requests that it accepted, with their body in Body
	mu       sync.Mutex         // guards status
	status   []int              // next responses; 200 when it is empty
	before   func()             // called before each response unless it is nil
}

// newHook starts a webhook with TLS. It answers with each status once, then with 200.
func newHook(t testing.TB, status ...int) *hook {
	t.Helper()
	h := &hook{t: t, received: make(chan *http.Request, 10_000), status: status}
	h.Server = httptest.NewTLSServer(h)
	t.Cleanup(h.Close)
	h.ca = writeFile(t, "ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw})), 0o644)
	return h
}

// ServeHTTP implements http.Handler.
func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	h.mu.Lock()
	status := 200
	if len(h.status) > 0 {
		status, h.status = h.status[0], h.status[1:]
	}
	h.mu.Unlock()
	if h.before != nil {
		h.before()
	}
	if status/100 == 3 {
		w.Header().Set("Location", "/elsewhere")
	}
	w.WriteHeader(status)
	if status == 200 {
		h.received <- r
	}
}

// next returns the body of the next accepted request.
func (h *hook) next() (r *http.Request, body string) {
	h.t.Helper()
	select {
	case r := <-h.received:
		text, err := io.ReadAll(r.Body)
		must(h.t, err)
		return r, string(text)
	case <-time.After(waitTimeout):
		h.t.Fatal("the webhook received nothing")
		return nil, ""
	}
}

// config returns the entry of the webhook in a notification file.
func (h *hook) config(t testing.TB) string {
	return fmt.Sprintf("{url: %q, caFile: %q, secretFile: %q}", h.URL+"/hook", h.ca, writeFile(t, "key", whsec+"\n", 0o600))
}

// openFleet opens a fleet database.
func openFleet(t testing.TB, url string) *fleetdb.Database {
	t.Helper()
	d, err := fleetdb.Open(t.Context(), fleetdb.Config{URL: url})
	must(t, err)
	t.Cleanup(func() { must(t, d.Close()) })
	return d
}

// sqliteURL returns the URL of a new database in a file.
func sqliteURL(t testing.TB) string { return "sqlite:" + filepath.Join(t.TempDir(), "fleet.db") }

// addPlan adds a running plan with VMs.
func addPlan(t testing.TB, d *fleetdb.Database, name string, vms ...fleetdb.VM) {
	t.Helper()
	_, err := d.Plans.Add(t.Context(), fleetdb.Plan{Name: name, Text: "version: 1"})
	must(t, err)
	for i := range vms {
		vms[i].Plan, vms[i].Source, vms[i].To = name, "esx1:443", []string{"dir:/srv/vm"}
	}
	must(t, d.VMs.Add(t.Context(), vms))
	must(t, d.Plans.SetState(t.Context(), name, fleetdb.PlanRunning, nil))
}

// failedVM returns a VM that was not found on the source.
func failedVM(ref, name, why string) fleetdb.VM {
	return fleetdb.VM{Key: fleetdb.Key{VM: ref}, Name: name, State: fleetdb.Failed, Failure: &fleetdb.Failure{Kind: "not found", Text: why, Hint: "correct the plan"}}
}

// fastPauses are pauses for tests.
var fastPauses = pauses{first: time.Millisecond, longest: 4 * time.Millisecond, between: time.Millisecond, idle: time.Second}

// startNotifier runs a notifier until stop is called or the test ends.
func startNotifier(t testing.TB, d *fleetdb.Database, to *Receivers, owner string) (stop func()) {
	t.Helper()
	n := New(d, to, owner, slog.New(slog.DiscardHandler))
	n.pauses = fastPauses
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { n.Run(ctx) })
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(stop)
	return stop
}

// waitFor polls until ok returns true.
func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(waitTimeout); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("timeout: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// count returns the number of notifications of a receiver in a state.
func count(t testing.TB, d *fleetdb.Database, receiver string, state fleetdb.NotificationState) int64 {
	t.Helper()
	counts, err := d.Notifications.Counts(t.Context())
	must(t, err)
	for _, c := range counts {
		if c.Receiver == receiver && c.State == state {
			return c.Count
		}
	}
	return 0
}

// newCertificate writes a certificate of localhost and its key.
func newCertificate(t testing.TB) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &private.PublicKey, private)
	must(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	must(t, err)
	cert = writeFile(t, "cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), 0o644)
	return cert, writeFile(t, "key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})), 0o600)
}

// mailServer is a running aiosmtpd.
type mailServer struct {
	port string         // port on 127.0.0.1
	cert string         // path of the certificate
	out  *bufio.Scanner // mails, one for each line
}

// startMail starts testdata/smtpd.py in a mode, with these methods of login.
func startMail(t testing.TB, mode, methods string) *mailServer {
	t.Helper()
	m := &mailServer{}
	var key string
	m.cert, key = newCertificate(t)
	cmd := exec.Command("../../build/aiosmtpd/bin/python", "testdata/smtpd.py", mode, m.cert, key, methods)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	m.out = bufio.NewScanner(out)
	m.out.Buffer(nil, 1<<20)
	if !m.out.Scan() {
		t.Fatal("no mail server: run scripts/setup.sh")
	}
	m.port = m.out.Text()
	return m
}
