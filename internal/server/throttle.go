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

// throttle counts failed logins by address. It is safe for concurrent use.
type throttle struct {
	now func() time.Time // clock of the throttle

	mu    sync.Mutex                  // guards spent
	spent map[netip.Prefix]guessCount // guesses by network, at most maxRemembered
}

// guessCount is a number of guesses that decreases with time.
type guessCount struct {
	n  float64   // guesses at the time at
	at time.Time // time of the last guess
}

// newThrottle returns a throttle without guesses.
func newThrottle(now func() time.Time) *throttle {
	return &throttle{now: now, spent: map[netip.Prefix]guessCount{}}
}

// waitTime returns how long an address must wait before its next guess; 0 if it need not wait.
func (t *throttle) waitTime(from string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	over := t.guessesOwed(networkOfAddr(from)) - maxGuesses + 1
	return time.Duration(max(0, over) * float64(guessInterval))
}

// spendGuess counts a guess and reports true, or reports false if the address must wait.
func (t *throttle) spendGuess(from string) bool {
	if t.waitTime(from) > 0 {
		return false
	}
	t.countGuess(from)
	return true
}

// countGuess counts a failed guess of an address.
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

// guessesOwed returns the guesses of a network that count now. mu must be held.
func (t *throttle) guessesOwed(who netip.Prefix) float64 {
	d, ok := t.spent[who]
	if !ok {
		return 0
	}
	return max(0, d.n-float64(t.now().Sub(d.at))/float64(guessInterval))
}

// dropEntries removes entries: first addresses without recent guesses, then any. It removes many at
// once, because it checks all. mu must be held.
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

// networkOfAddr returns the network of one client: an IPv4 address, or an IPv6 /64. Invalid addresses
// share the zero value.
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
	prefix, _ := addr.Prefix(bits)
	return prefix
}

// tooManyError is the error for an address with too many guesses.
type tooManyError struct {
	after time.Duration // time until the next guess
	error
}

// Unwrap returns the fault.
func (t *tooManyError) Unwrap() error { return t.error }

// retrySeconds returns the value of the header Retry-After.
func (t *tooManyError) retrySeconds() string { return strconv.Itoa(int(t.after.Seconds()) + 1) }
