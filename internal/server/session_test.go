package server

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
)

func newTestSessions(t *testing.T) (*sessions, *clock) {
	t.Helper()
	s := newSessions(true)
	c := newClock()
	s.now = c.now
	return s, c
}

func requestWith(c *http.Cookie) *http.Request {
	r := httptest.NewRequest("GET", "/", nil)
	if c != nil {
		r.AddCookie(c)
	}
	return r
}

var someToken = Token{Name: "ci", Role: Operate, SHA256: strings.Repeat("0123456789abcdef", 4)}

func TestSessionsExpireAndEndWithServer(t *testing.T) {
	s, clock := newTestSessions(t)
	cookie, err := s.newCookie(someToken)
	if err != nil {
		t.Fatal(err)
	}
	if !cookie.Secure || !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || !strings.HasPrefix(cookie.Name, "__Host-") || cookie.Path != "/" {
		t.Errorf("got cookie %+v", cookie)
	}
	if payload, value, ok := s.readSession(requestWith(cookie)); !ok || payload.Token != "ci" || payload.Mark != someToken.SHA256[:hashMark] || value != cookie.Value {
		t.Errorf("got session %+v, %v", payload, ok)
	}
	again, _ := newTestSessions(t)
	if _, _, ok := again.readSession(requestWith(cookie)); ok {
		t.Error("a session is valid after a restart of the server")
	}
	clock.advance(sessionAge)
	if _, _, ok := s.readSession(requestWith(cookie)); ok {
		t.Error("a session is valid after its end")
	}
}

// A copy of the state directory does not contain the key that signs sessions.
func TestStateDirectoryHasNoSessionKey(t *testing.T) {
	state := t.TempDir()
	old := filepath.Join(state, "session.key")
	if err := os.WriteFile(old, make([]byte, keyBytes), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{Database: &fleetdb.Database{}, State: state, Plain: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(old); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the key file of an earlier version exists: %v", err)
	}
	err = filepath.WalkDir(state, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		for _, key := range []string{string(s.gate.auth.sessions.key), hex.EncodeToString(s.gate.auth.sessions.key), base64.StdEncoding.EncodeToString(s.gate.auth.sessions.key)} {
			if strings.Contains(string(text), key) {
				t.Errorf("%s contains the key of sessions", path)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	forger := &sessions{key: make([]byte, keyBytes), now: time.Now, cookie: s.gate.auth.sessions.cookie}
	cookie, err := forger.newCookie(someToken)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, ok := s.gate.auth.sessions.readSession(requestWith(cookie)); ok {
		t.Error("a session signed with the old key is accepted")
	}
}

func TestCookiesWithoutOurSignatureAreRefused(t *testing.T) {
	s, _ := newTestSessions(t)
	cookie, err := s.newCookie(someToken)
	if err != nil {
		t.Fatal(err)
	}
	other, _ := newTestSessions(t)
	if _, _, ok := other.readSession(requestWith(cookie)); ok {
		t.Error("the cookie of another server is accepted")
	}
	payload, signature, _ := strings.Cut(cookie.Value, ".")
	for _, value := range []string{"", ".", payload, payload + ".", "." + signature, payload[:len(payload)-2] + "." + signature, payload + "." + s.formProof(cookie.Value), "x." + s.sign("session", "x")} {
		c := *cookie
		c.Value = value
		if _, _, ok := s.readSession(requestWith(&c)); ok {
			t.Errorf("cookie %q is accepted", value)
		}
	}
	if _, _, ok := s.readSession(requestWith(nil)); ok {
		t.Error("a request without a cookie is accepted")
	}
}

func TestFormProof(t *testing.T) {
	s, _ := newTestSessions(t)
	one, _ := s.newCookie(someToken)
	two, _ := s.newCookie(someToken)
	if !s.isProof(one.Value, s.formProof(one.Value)) {
		t.Error("the proof of the session is refused")
	}
	for _, proof := range []string{"", s.formProof(two.Value), one.Value} {
		if s.isProof(one.Value, proof) {
			t.Errorf("%q is accepted as the proof of another session", proof)
		}
	}
}

// A session is valid while its token exists and has not expired.
func TestSessionsEndWithTheirToken(t *testing.T) {
	tokens, clock := newTokens(t)
	addToken(t, tokens, "ci", Operate, 0)
	all, _ := tokens.List()
	s, _ := newTestSessions(t)
	a := &authenticator{tokens, s, newThrottle(time.Now)}
	cookie, err := s.newCookie(all[0])
	if err != nil {
		t.Fatal(err)
	}
	if who, err := a.identifyUser(requestWith(cookie)); err != nil || who.Role != Operate || who.Session != cookie.Value {
		t.Fatalf("got user %+v, %v", who, err)
	}
	if err := tokens.Remove("ci"); err != nil {
		t.Fatal(err)
	}
	addToken(t, tokens, "ci", Admin, 0) // another token with the same name
	if who, err := a.identifyUser(requestWith(cookie)); err != nil || who.Role != Nobody {
		t.Errorf("got %+v, %v for the session of a removed token", who, err)
	}

	addToken(t, tokens, "guest", View, time.Hour)
	all, _ = tokens.List()
	cookie, err = s.newCookie(all[1])
	if err != nil {
		t.Fatal(err)
	}
	for passes, want := range []Role{View, Nobody} { // before and after the token expires
		clock.advance(time.Duration(passes) * time.Hour)
		if who, err := a.identifyUser(requestWith(cookie)); err != nil || who.Role != want {
			t.Errorf("after %d hours: %+v, %v", passes, who, err)
		}
	}
}

func FuzzCookie(f *testing.F) {
	s := &sessions{key: make([]byte, keyBytes), now: time.Now, cookie: http.Cookie{Name: "decamp"}}
	cookie, err := s.newCookie(someToken)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(cookie.Value)
	f.Add("e30." + s.sign("session", "e30"))
	f.Add("..")
	f.Fuzz(func(t *testing.T, value string) {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Cookie", "decamp="+value)
		session, got, ok := s.readSession(r)
		if payload, _, _ := strings.Cut(got, "."); ok && got != payload+"."+s.sign("session", payload) {
			t.Errorf("cookie %q is accepted as %+v", value, session)
		}
	})
}
