package vsphere

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// clock is a clock that tests advance.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// withCookie returns a /folder request with a cookie and without a password.
func withCookie(t *testing.T, l *Lab, c *http.Cookie) *http.Request {
	t.Helper()
	r := folderRequest(t, l, "HEAD", folderURL(l, flat))
	r.Header.Del("Authorization")
	if c != nil {
		r.AddCookie(c)
	}
	return r
}

func fetchStatus(t *testing.T, c *http.Client, r *http.Request) int {
	t.Helper()
	resp, _, err := fetch(t, c, r)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode
}

// basicLogin returns the cookie that a Basic login sets.
func basicLogin(t *testing.T, l *Lab, c *http.Client) *http.Cookie {
	t.Helper()
	resp, _, err := fetch(t, c, folderRequest(t, l, "HEAD", folderURL(l, flat)))
	if err != nil || len(resp.Cookies()) != 1 {
		t.Fatalf("Basic login: %v %v", resp, err)
	}
	return resp.Cookies()[0]
}

func soapLogin(l *Lab, password string) error {
	u := &url.URL{Scheme: "https", Host: l.Addr(), Path: "/sdk", User: url.UserPassword(l.User(), password)}
	c, err := govmomi.NewClient(context.Background(), u, true)
	if err == nil {
		c.CloseIdleConnections()
	}
	return err
}

func TestFolderNeedsALogin(t *testing.T) {
	l := startLab(t, Config{VMs: []VM{web01()}})
	c := newClient(t, l)
	for what, r := range map[string]*http.Request{
		"nothing": withCookie(t, l, nil),
		"cookie":  withCookie(t, l, &http.Cookie{Name: sessionCookie, Value: "made-up"}),
		"ticket":  withCookie(t, l, &http.Cookie{Name: ticketCookie, Value: "made-up"}),
	} {
		resp, _, err := fetch(t, c, r)
		if err != nil || resp.StatusCode != 401 || !strings.HasPrefix(resp.Header.Get("WWW-Authenticate"), "Basic ") {
			t.Errorf("%s: %v %v", what, resp, err)
		}
	}
}

func TestBasicLoginSetsACookieForFolderAndSOAP(t *testing.T) {
	l := startLab(t, Config{VMs: []VM{web01()}})
	c := newClient(t, l)
	resp, _, err := fetch(t, c, folderRequest(t, l, "HEAD", folderURL(l, flat)))
	if err != nil {
		t.Fatal(err)
	}
	if raw := resp.Header.Get("Set-Cookie"); !strings.HasPrefix(raw, sessionCookie+`="`) || !strings.Contains(raw, "Secure") || !strings.Contains(raw, "HttpOnly") {
		t.Errorf("Set-Cookie: %s", raw)
	}
	cookie := resp.Cookies()[0]
	if got := fetchStatus(t, c, withCookie(t, l, cookie)); got != 200 {
		t.Errorf("/folder with the cookie: %d", got)
	}
	// virt-v2v sends the value unchanged, with quotes.
	r := withCookie(t, l, nil)
	r.Header.Set("Cookie", strings.SplitN(resp.Header.Get("Set-Cookie"), ";", 2)[0])
	if got := fetchStatus(t, c, r); got != 200 {
		t.Errorf("/folder with the raw cookie: %d", got)
	}
	u, err := soap.ParseURL(l.URL())
	if err != nil {
		t.Fatal(err)
	}
	sc := soap.NewClient(u, true)
	sc.Jar.SetCookies(u, []*http.Cookie{cookie})
	defer sc.CloseIdleConnections()
	if _, err := methods.GetCurrentTime(t.Context(), sc); err != nil {
		t.Errorf("SOAP with the cookie: %v", err)
	}
}

func TestSOAPCookieOpensFolder(t *testing.T) {
	l := startLab(t, Config{VMs: []VM{web01()}})
	c := login(t, l)
	u, _ := url.Parse("https://" + l.Addr() + "/folder/")
	cookies := c.Jar.Cookies(u)
	if len(cookies) != 1 {
		t.Fatalf("cookies: %v", cookies)
	}
	if got := fetchStatus(t, newClient(t, l), withCookie(t, l, cookies[0])); got != 200 {
		t.Errorf("/folder with the SOAP cookie: %d", got)
	}
	if err := c.Logout(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := fetchStatus(t, newClient(t, l), withCookie(t, l, cookies[0])); got != 401 {
		t.Errorf("/folder after logout: %d", got)
	}
}

func TestIdleSessionsExpireDespiteTransfers(t *testing.T) {
	now := newClock()
	l := startLab(t, Config{Clock: now.Now, VMs: []VM{web01()}})
	c := newClient(t, l)
	sdk := login(t, l)
	cookie := basicLogin(t, l, c)
	for range 2 { // the SOAP session is used, the other one only transfers
		now.advance(20 * time.Minute)
		if _, err := methods.GetCurrentTime(t.Context(), sdk); err != nil {
			t.Fatalf("SOAP session within 30 minutes: %v", err)
		}
		fetchStatus(t, c, withCookie(t, l, cookie))
	}
	if got := fetchStatus(t, c, withCookie(t, l, cookie)); got != 401 {
		t.Errorf("cookie used only for transfers, after 40 minutes: %d", got)
	}
	now.advance(30 * time.Minute)
	_, err := methods.GetCurrentTime(t.Context(), sdk)
	if !fault.Is(err, &types.NotAuthenticated{}) {
		t.Errorf("SOAP session after 30 idle minutes: %v", err)
	}
	if err := sdk.Login(t.Context(), url.UserPassword(l.User(), l.Password())); err != nil {
		t.Errorf("second login with the old cookie: %v", err)
	}
}

func TestFiveWrongPasswordsLockTheAccount(t *testing.T) {
	for _, way := range []string{"basic", "soap", "mixed"} {
		t.Run(way, func(t *testing.T) {
			now := newClock()
			l := startLab(t, Config{Clock: now.Now, VMs: []VM{web01()}})
			c := newClient(t, l)
			try := func(i int, password string) bool {
				if way == "soap" || way == "mixed" && i%2 == 0 {
					return soapLogin(l, password) == nil
				}
				r := folderRequest(t, l, "HEAD", folderURL(l, flat))
				r.SetBasicAuth(l.User(), password)
				return fetchStatus(t, c, r) == 200
			}
			for i := range 4 {
				if try(i, "wrong") {
					t.Fatal("a wrong password was accepted")
				}
			}
			if !try(0, l.Password()) {
				t.Fatal("locked after four failures")
			}
			for i := range 5 {
				try(i, "wrong")
			}
			if try(0, l.Password()) {
				t.Error("not locked after five failures in a row")
			}
			now.advance(899 * time.Second)
			if try(1, l.Password()) {
				t.Error("unlocked before 900 s")
			}
			now.advance(time.Second)
			if !try(0, l.Password()) {
				t.Error("still locked after 900 s")
			}
		})
	}
}

func TestSessionLimit(t *testing.T) {
	l := startLab(t, Config{Sessions: Sessions{Max: 2}, VMs: []VM{web01()}})
	c := newClient(t, l)
	basicLogin(t, l, c)
	cookie := basicLogin(t, l, c)
	if got := fetchStatus(t, c, folderRequest(t, l, "HEAD", folderURL(l, flat))); got != 503 {
		t.Errorf("third Basic login: %d", got)
	}
	if err := soapLogin(l, l.Password()); err == nil {
		t.Error("a SOAP login above the limit was accepted")
	}
	if got := fetchStatus(t, c, withCookie(t, l, cookie)); got != 200 {
		t.Errorf("an open session: %d", got)
	}
}

func TestKillSessions(t *testing.T) {
	l := startLab(t, Config{VMs: []VM{web01()}})
	c := newClient(t, l)
	sdk, cookie := login(t, l), basicLogin(t, l, c)
	l.KillSessions()
	if got := fetchStatus(t, c, withCookie(t, l, cookie)); got != 401 {
		t.Errorf("/folder: %d", got)
	}
	if _, err := methods.GetCurrentTime(t.Context(), sdk); !fault.Is(err, &types.NotAuthenticated{}) {
		t.Errorf("SOAP: %v", err)
	}
}

func TestTerminatedSessionEnds(t *testing.T) {
	l := startLab(t, Config{VMs: []VM{web01()}})
	victim, other := login(t, l), login(t, l)
	s, err := victim.SessionManager.UserSession(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := session.NewManager(other.Client).TerminateSession(t.Context(), []string{s.Key}); err != nil {
		t.Fatal(err)
	}
	if _, err := methods.GetCurrentTime(t.Context(), victim); !fault.Is(err, &types.NotAuthenticated{}) {
		t.Errorf("terminated session: %v", err)
	}
}
