package server

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// clock is a clock that tests advance.
type clock struct{ at time.Time }

func newClock() *clock                   { return &clock{time.Date(2026, 11, 22, 6, 0, 0, 0, time.UTC)} }
func (c *clock) now() time.Time          { return c.at }
func (c *clock) advance(d time.Duration) { c.at = c.at.Add(d) }

func newTokens(t *testing.T) (*Tokens, *clock) {
	c := newClock()
	tokens := NewTokens(t.TempDir())
	tokens.now = c.now
	return tokens, c
}

func addToken(t *testing.T, tokens *Tokens, name string, role Role, ttl time.Duration) string {
	t.Helper()
	secret, err := tokens.Add(name, role, ttl)
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

func TestTokensAreValidUntilTheyExpire(t *testing.T) {
	tokens, clock := newTokens(t)
	ever := addToken(t, tokens, "ci", Operate, 0)
	hour := addToken(t, tokens, "guest", View, time.Hour)
	if ever == hour || !strings.HasPrefix(ever, tokenPrefix) || len(ever) < 40 {
		t.Errorf("got secrets %q and %q", ever, hour)
	}
	for secret, want := range map[string]Token{ever: {Name: "ci", Role: Operate}, hour: {Name: "guest", Role: View}} {
		if got, ok := tokens.Check(secret); !ok || got.Name != want.Name || got.Role != want.Role {
			t.Errorf("got %v, %v; want %v", got, ok, want)
		}
	}
	for _, wrong := range []string{"", tokenPrefix, ever[:len(ever)-1], ever + "A", strings.ToUpper(ever)} {
		if got, ok := tokens.Check(wrong); ok {
			t.Errorf("secret %q is accepted as %v", wrong, got)
		}
	}
	clock.advance(time.Hour)
	if _, ok := tokens.Check(hour); ok {
		t.Error("an expired token is accepted")
	}
	if err := tokens.Remove("ci"); err != nil {
		t.Fatal(err)
	}
	if _, ok := tokens.Check(ever); ok {
		t.Error("a removed token is accepted")
	}
	if err := tokens.Remove("ci"); !fault.Is(err, fault.NotFound) {
		t.Errorf("the second removal: %v", err)
	}
}

// The server sees tokens that another process adds and removes.
func TestTokenChangesOfOtherProcessesApply(t *testing.T) {
	dir := t.TempDir()
	ours, theirs := NewTokens(dir), NewTokens(dir)
	for range 20 {
		secret := addToken(t, theirs, "ci", Admin, 0)
		if _, ok := ours.Check(secret); !ok {
			t.Fatal("a new token is refused")
		}
		if err := theirs.Remove("ci"); err != nil {
			t.Fatal(err)
		}
		if _, ok := ours.Check(secret); ok {
			t.Fatal("a removed token is accepted")
		}
	}
}

// No token is valid without the folder. Files with another extension are ignored.
func TestTokensAreReadFromFolder(t *testing.T) {
	tokens, _ := newTokens(t)
	secret := addToken(t, tokens, "ci", View, 0)
	if err := os.WriteFile(filepath.Join(tokens.dir, "README"), []byte("ask ops"), 0o600); err != nil {
		t.Fatal(err)
	}
	if all, err := tokens.List(); len(all) != 1 || err != nil {
		t.Errorf("got tokens %v, %v", all, err)
	}
	if _, ok := tokens.Check(secret); !ok {
		t.Error("the token is not valid")
	}
	if err := os.RemoveAll(tokens.dir); err != nil {
		t.Fatal(err)
	}
	if got, ok := tokens.Check(secret); ok {
		t.Errorf("%v is valid without its folder", got)
	}
}

func TestNoSecretIsInTheFiles(t *testing.T) {
	tokens, _ := newTokens(t)
	secret := addToken(t, tokens, "ci", View, 0)
	path := filepath.Join(tokens.dir, "ci.json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), strings.TrimPrefix(secret, tokenPrefix)) {
		t.Errorf("the secret is in %s", text)
	}
	for path, want := range map[string]os.FileMode{path: 0o600, tokens.dir: 0o700 | os.ModeDir} {
		if st, err := os.Stat(path); err != nil || st.Mode() != want {
			t.Errorf("%s: got mode %v, %v; want %v", path, st.Mode(), err, want)
		}
	}
}

func TestInvalidTokenNamesAreRefused(t *testing.T) {
	tokens, _ := newTokens(t)
	addToken(t, tokens, "ci", View, 0)
	for _, name := range []string{"", ".", "..", "a/b", "../x", "x\x00", strings.Repeat("x", 65), "-x"} {
		if _, err := tokens.Add(name, View, 0); !fault.Is(err, fault.Invalid) {
			t.Errorf("name %q: %v", name, err)
		}
		if err := tokens.Remove(name); !fault.Is(err, fault.NotFound) {
			t.Errorf("remove %q: %v", name, err)
		}
	}
	if _, err := tokens.Add("x", "root", 0); !fault.Is(err, fault.Invalid) {
		t.Errorf("role root: %v", err)
	}
	if _, err := tokens.Add("ci", Admin, 0); !fault.Is(err, fault.Conflict) {
		t.Errorf("a name in use: %v", err)
	}
}

// The server ignores token files that are corrupt or renamed. Other tokens stay valid.
func TestCorruptTokenFilesAreIgnored(t *testing.T) {
	tokens, _ := newTokens(t)
	good := addToken(t, tokens, "good", View, 0)
	bad := addToken(t, tokens, "bad", Admin, 0)
	if err := os.Rename(filepath.Join(tokens.dir, "bad.json"), filepath.Join(tokens.dir, "other.json")); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"empty.json": "", "array.json": "[]", "short.json": `{"name":"short","role":"admin","sha256":""}`} {
		if err := os.WriteFile(filepath.Join(tokens.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := tokens.Check(good); !ok {
		t.Error("a valid token is refused")
	}
	for _, secret := range []string{bad, ""} {
		if got, ok := tokens.Check(secret); ok {
			t.Errorf("the token %v is accepted", got)
		}
	}
	all, err := tokens.List()
	if names := slices.Collect(func(yield func(string) bool) {
		for _, x := range all {
			yield(x.Name)
		}
	}); !slices.Equal(names, []string{"good"}) || !fault.Is(err, fault.Corrupt) {
		t.Errorf("got tokens %v, %v", names, err)
	}
}

func TestThrottleExpires(t *testing.T) {
	c := newClock()
	th := newThrottle(c.now)
	for range maxGuesses {
		if th.waitTime("192.0.2.1") != 0 {
			t.Fatal("throttled too early")
		}
		th.countGuess("192.0.2.1")
	}
	if got := th.waitTime("192.0.2.1"); got != guessInterval {
		t.Errorf("got wait time %s, want %s", got, guessInterval)
	}
	if th.waitTime("192.0.2.2") != 0 {
		t.Error("another address is throttled")
	}
	c.advance(guessInterval)
	if got := th.waitTime("192.0.2.1"); got != 0 {
		t.Errorf("got wait time %s, want 0", got)
	}
	for range maxGuesses {
		th.countGuess("2001:db8::1")
	}
	if th.waitTime("2001:db8::ffff") == 0 {
		t.Error("another address of the /64 is not throttled")
	}
}

// The throttle ignores the zone of a link-local address and the IPv6 notation of an IPv4 address.
func TestThrottleCountsAClientOnce(t *testing.T) {
	for from, same := range map[string]string{"192.0.2.1": "::ffff:192.0.2.1", "fe80::1%eth0": "fe80::1"} {
		th := newThrottle(newClock().now)
		for range maxGuesses {
			th.countGuess(from)
		}
		if th.waitTime(same) == 0 {
			t.Errorf("%s is not throttled, %s is", same, from)
		}
		if th.waitTime("::ffff:192.0.2.2") != 0 {
			t.Error("another address is throttled")
		}
	}
}

func TestThrottleIsBounded(t *testing.T) {
	th := newThrottle(newClock().now)
	for i := range maxRemembered * 2 {
		th.countGuess(fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255))
	}
	if len(th.spent) > maxRemembered {
		t.Errorf("the throttle has %d addresses, want at most %d", len(th.spent), maxRemembered)
	}
}

// A full throttle first forgets the addresses that may guess again. It forgets others only if it needs more room.
func TestThrottleForgetsSettledAddressesFirst(t *testing.T) {
	c := newClock()
	th := newThrottle(c.now)
	fail := func(n int, network byte) {
		for i := range n {
			th.countGuess(fmt.Sprintf("10.%d.%d.%d", network, i>>8, i&255))
		}
	}
	const settled, throttled = 3000, "192.0.2.1"
	fail(settled, 1)
	c.advance(guessInterval)
	for range maxGuesses {
		th.countGuess(throttled)
	}
	fail(maxRemembered-settled-1, 2)
	if len(th.spent) != maxRemembered {
		t.Fatalf("got %d addresses before the throttle is full, want %d", len(th.spent), maxRemembered)
	}
	fail(1, 3)
	if len(th.spent) != maxRemembered-settled+1 || th.waitTime(throttled) == 0 {
		t.Errorf("got %d addresses, want %d; the wait time of the throttled address is %s", len(th.spent), maxRemembered-settled+1, th.waitTime(throttled))
	}
	th = newThrottle(c.now)
	fail(maxRemembered, 4)
	fail(1, 5)
	if len(th.spent) != maxRemembered/2+1 {
		t.Errorf("got %d throttled addresses, want %d", len(th.spent), maxRemembered/2+1)
	}
}

// The server reads the tokens again if the folder changed, or if its modification time is too recent to show a change.
func TestTokensAreReadAgain(t *testing.T) {
	state := t.TempDir()
	server, other := NewTokens(state), NewTokens(state)
	add := func(name string, changed time.Time) string {
		t.Helper()
		secret, err := other.Add(name, View, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(filepath.Join(state, "tokens"), changed, changed); err != nil {
			t.Fatal(err)
		}
		return secret
	}
	long, now := time.Now().Add(-time.Hour), time.Now().Add(time.Minute) // old enough, and too recent for the whole test
	for i, changed := range []time.Time{long, now, now} {
		secret := add(fmt.Sprintf("t%d", i), changed)
		if _, ok := server.Check(secret); !ok {
			t.Errorf("token %d of a folder with time %s is refused", i, changed)
		}
	}
}
