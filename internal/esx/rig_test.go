package esx_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vmware/govmomi/simulator"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/inventory"
)

const password = "p:a#s%s'w+o*r/d\" é" // characters on which other tools failed

// simServer is govmomi's simulator behind a server that adds features: quoted cookies,
// sessions that a test can end, files in /folder that need a cookie, a log of the API's
// methods, and replies of the test.
type simServer struct {
	*httptest.Server
	model *simulator.Model
	clock *clock

	mu       sync.Mutex
	calls    []string          // API methods, in order
	lines    []string          // HTTP requests other than the API's
	sessions map[string]string // simulator's cookies by ours; "" if the session ended
	files    map[file][]byte
	basic    bool // true if /folder refuses the API's cookie
	twice    bool // true if /folder decodes the query's values twice
	issued   int
	answer   func(call call, w http.ResponseWriter) bool // reply of the test; returns false if it sent none
}

// call is one call of the API.
type call struct {
	method string
	body   []byte // the SOAP envelope
}

type file struct{ datacenter, datastore, path string }

func newESX(t *testing.T) *simServer { return newSimServer(t, simulator.ESX()) }
func newVPX(t *testing.T) *simServer { return newSimServer(t, simulator.VPX()) }

func newSimServer(t *testing.T, m *simulator.Model) *simServer {
	t.Helper()
	m.Autostart = true
	if err := m.Create(); err != nil {
		t.Fatal(err)
	}
	m.Service.Listen = &url.URL{User: url.UserPassword("root", password)}
	plain := m.Service.NewServer()
	r := &simServer{model: m, clock: newClock(), sessions: map[string]string{}, files: map[file][]byte{}}
	r.Server = httptest.NewTLSServer(http.HandlerFunc(r.serve))
	r.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	t.Cleanup(func() {
		r.Close()
		plain.Close()
		m.Remove()
	})
	return r
}

// config returns the configuration of a client.
func (r *simServer) config() esx.Config {
	scheme := "esxi"
	if !r.model.Map().IsESX() {
		scheme = "vcenter"
	}
	return esx.Config{
		URL:         &url.URL{Scheme: scheme, User: url.User("root"), Host: r.addr()},
		Password:    func(context.Context) (esx.Secret, error) { return password, nil },
		Fingerprint: r.fingerprint(),
		Now:         r.clock.Now,
		After:       r.clock.After,
	}
}

func (r *simServer) addr() string { return strings.TrimPrefix(r.URL, "https://") }

func (r *simServer) fingerprint() string {
	sum := sha256.Sum256(r.Certificate().Raw)
	return hex.EncodeToString(sum[:])
}

func (r *simServer) dial(t *testing.T) *esx.Session { return dial(t, r.config()) }

func dial(t testing.TB, cfg esx.Config) *esx.Session {
	t.Helper()
	s, err := esx.Dial(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// set changes the server's behaviour.
func (r *simServer) set(change func(*simServer)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(r)
}

// expireSessions ends all sessions, like a restart of the host or a long idle time.
func (r *simServer) expireSessions() {
	r.set(func(r *simServer) {
		for c := range r.sessions {
			r.sessions[c] = ""
		}
	})
}

// countCalls returns the number of calls of an API method.
func (r *simServer) countCalls(method string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, c := range r.calls {
		if c == method {
			n++
		}
	}
	return n
}

// calledMethods returns the called API methods, sorted.
func (r *simServer) calledMethods() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := map[string]bool{}
	for _, c := range r.calls {
		seen[c] = true
	}
	return slices.Sorted(maps.Keys(seen))
}

// requests returns the HTTP requests other than the API's.
func (r *simServer) requests() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lines)
}

func (r *simServer) addFile(datacenter string, p inventory.Path, data []byte) {
	r.set(func(r *simServer) { r.files[file{datacenter, p.Datastore, p.File}] = data })
}

func (r *simServer) serve(w http.ResponseWriter, req *http.Request) {
	if req.ProtoMajor != 1 {
		http.Error(w, "HTTP/2", http.StatusHTTPVersionNotSupported)
		return
	}
	if strings.HasPrefix(req.URL.Path, "/sdk") {
		r.serveAPI(w, req)
		return
	}
	r.serveFolder(w, req)
}

var bodyElement = regexp.MustCompile(`<[^>]*Body[^>]*><([A-Za-z_]+)`)

func (r *simServer) serveAPI(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	req.Body = io.NopCloser(bytes.NewReader(body))
	method := "?"
	if m := bodyElement.FindSubmatch(body); m != nil {
		method = string(m[1])
	}
	r.mu.Lock()
	r.calls = append(r.calls, method)
	answer := r.answer
	inner := r.sessions[req.Header.Get("Cookie")]
	r.mu.Unlock()
	if answer != nil && answer(call{method, body}, w) {
		return
	}
	req.Header.Del("Cookie")
	if inner != "" {
		req.Header.Set("Cookie", inner)
	}
	res := httptest.NewRecorder()
	r.model.Service.ServeMux.ServeHTTP(res, req)
	if given := res.Header().Get("Set-Cookie"); given != "" {
		value, _, _ := strings.Cut(given, ";")
		res.Header().Set("Set-Cookie", r.issueCookie(value)+"; Path=/; HttpOnly; Secure; SameSite=Strict")
	}
	maps.Copy(w.Header(), res.Header())
	w.WriteHeader(res.Code)
	w.Write(res.Body.Bytes())
}

// issueCookie returns a new cookie for one of the simulator's, quoted as ESXi quotes it.
func (r *simServer) issueCookie(inner string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.issued++
	c := fmt.Sprintf(`vmware_soap_session="52%04x/+=="`, r.issued)
	r.sessions[c] = inner
	return c
}

func (r *simServer) serveFolder(w http.ResponseWriter, req *http.Request) {
	cookie := req.Header.Get("Cookie")
	user, pass, hasBasic := req.BasicAuth()
	r.mu.Lock()
	auth := "none"
	if hasBasic {
		auth = "basic"
	} else if cookie != "" {
		auth = "cookie"
	}
	r.lines = append(r.lines, req.Method+" "+req.RequestURI+" "+auth)
	inner := r.sessions[cookie]
	live := inner != "" && r.basic == strings.HasPrefix(inner, "folder")
	twice := r.twice
	r.mu.Unlock()
	switch {
	case hasBasic && user == "root" && pass == password:
		w.Header().Set("Set-Cookie", r.issueCookie("folder")+"; Path=/")
	case !live:
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	q := req.URL.Query()
	at := file{q.Get("dcPath"), q.Get("dsName"), strings.TrimPrefix(req.URL.Path, "/folder/")}
	if twice {
		at.datacenter, _ = url.QueryUnescape(at.datacenter)
		at.datastore, _ = url.QueryUnescape(at.datastore)
	}
	r.mu.Lock()
	data, ok := r.files[at]
	r.mu.Unlock()
	if !ok {
		http.NotFound(w, req)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(data))
}

// soapFault answers an API call with a fault and returns true.
func soapFault(w http.ResponseWriter, kind, members string) bool {
	w.WriteHeader(http.StatusInternalServerError)
	fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?>
<soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">
<soapenv:Body><soapenv:Fault><faultcode>ServerFaultCode</faultcode><faultstring>said by the test: %s</faultstring>
<detail><%sFault xmlns="urn:vim25" xsi:type="%s">%s</%sFault></detail></soapenv:Fault></soapenv:Body></soapenv:Envelope>`,
		kind, kind, kind, members, kind)
	return true
}

// soapReply answers an API call with the content of its response and returns true.
func soapReply(w http.ResponseWriter, method, content string) bool {
	fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?>
<soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">
<soapenv:Body><%sResponse xmlns="urn:vim25">%s</%sResponse></soapenv:Body></soapenv:Envelope>`, method, content, method)
	return true
}

// clock is a clock that tests advance. The channel of After receives the time
// when the clock reaches it.
type clock struct {
	mu      sync.Mutex
	now     time.Time
	waiting []alarm
	timers  chan struct{} // one element for each call of After
	auto    bool          // true if After advances the clock by durations below a minute
}

type alarm struct {
	at time.Time
	c  chan time.Time
}

func newClock() *clock {
	return &clock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), timers: make(chan struct{}, 1000)}
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) After(d time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	timer := make(chan time.Time, 1)
	if c.auto && d < time.Minute {
		c.now = c.now.Add(d)
		timer <- c.now
	} else {
		c.waiting = append(c.waiting, alarm{c.now.Add(d), timer})
	}
	c.timers <- struct{}{}
	return timer
}

// disableAuto makes After wait for advance.
func (c *clock) disableAuto() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.auto = false
}

// advance moves the clock and triggers the timers that it passes.
func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	var later []alarm
	for _, a := range c.waiting {
		if a.at.After(c.now) {
			later = append(later, a)
			continue
		}
		a.c <- c.now
	}
	c.waiting = later
}
