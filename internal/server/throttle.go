package server

import (
	"net/netip"
	"strconv"
	"sync"
	"time"
)

// Bounds on guessing. A token has 256 random bits, so these bound the work and the lines in the audit
// trail that guesses cause.
const (
	maxGuesses    = 10               // guesses of an address
	guessInterval = 10 * time.Second // time after which an address gets one guess back
	maxRemembered = 4096             // addresses that are remembered
)

// throttle counts failed logins by address.
type throttle struct {
	now func() time.Time

	mu    sync.Mutex
	spent map[netip.Prefix]guessCount
}

// debt is how many guesses were spent, at a time.
type guessCount struct {
	n  float64
	at time.Time
}

func newThrottle(now func() time.Time) *throttle {
	return &throttle{now: now, spent: map[netip.Prefix]guessCount{}}
}

// waitTime returns how long an address has to wait before it may try; zero is not at all.
func (t *throttle) waitTime(from string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	over := t.guessesOwed(networkOfAddr(from)) - maxGuesses + 1
	if over <= 0 {
		return 0
	}
	return time.Duration(over * float64(guessInterval))
}

// spendGuess counts a guess and reports whether it was permitted.
func (t *throttle) spendGuess(from string) bool {
	if t.waitTime(from) > 0 {
		return false
	}
	t.countGuess(from)
	return true
}

// countGuess counts a guess of an address.
func (t *throttle) countGuess(from string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	who := networkOfAddr(from)
	n := t.guessesOwed(who) + 1
	if len(t.spent) >= maxRemembered {
		t.dropEntries()
	}
	t.spent[who] = guessCount{n, t.now()}
}

// guessesOwed returns what an address spent and has not back yet.
func (t *throttle) guessesOwed(who netip.Prefix) float64 {
	d, ok := t.spent[who]
	if !ok {
		return 0
	}
	return max(0, d.n-float64(t.now().Sub(d.at))/float64(guessInterval))
}

// dropEntries frees entries: first addresses without recent guesses, then any. It frees many at once, as it
// checks all.
// looks at all.
func (t *throttle) dropEntries() {
	for who := range t.spent {
		if t.guessesOwed(who) == 0 {
			delete(t.spent, who)
		}
	}
	for who := range t.spent {
		if len(t.spent) <= maxRemembered/2 {
			return
		}
		delete(t.spent, who)
	}
}

// networkOfAddr is what one guesser has: an IPv4 address, or a /64 of IPv6.
func networkOfAddr(from string) netip.Prefix {
	addr, err := netip.ParseAddr(from)
	if err != nil {
		return netip.Prefix{}
	}
	addr = addr.Unmap()
	bits := addr.BitLen()
	if addr.Is6() {
		bits = 64
	}
	prefix, _ := addr.WithZone("").Prefix(bits)
	return prefix
}

// tooManyError is for an address that guessed too often.
type tooManyError struct {
	after time.Duration
	error
}

func (t *tooManyError) Unwrap() error { return t.error }

func (t *tooManyError) retrySeconds() string { return strconv.Itoa(int(t.after.Seconds()) + 1) }
