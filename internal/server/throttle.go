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
	guesses     = 10               // guesses of an address
	guessAgain  = 10 * time.Second // time after which an address gets one guess back
	mostGuessed = 4096             // addresses that are remembered
)

// throttle counts failed logins by address.
type throttle struct {
	now func() time.Time

	mu    sync.Mutex
	spent map[netip.Prefix]debt
}

// debt is how many guesses were spent, at a time.
type debt struct {
	n  float64
	at time.Time
}

func newThrottle(now func() time.Time) *throttle {
	return &throttle{now: now, spent: map[netip.Prefix]debt{}}
}

// wait returns how long an address has to wait before it may try; zero is not at all.
func (t *throttle) wait(from string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	over := t.owed(network(from)) - guesses + 1
	if over <= 0 {
		return 0
	}
	return time.Duration(over * float64(guessAgain))
}

// spend counts a guess and reports whether it was permitted.
func (t *throttle) spend(from string) bool {
	if t.wait(from) > 0 {
		return false
	}
	t.failed(from)
	return true
}

// failed counts a guess of an address.
func (t *throttle) failed(from string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	who := network(from)
	n := t.owed(who) + 1
	if len(t.spent) >= mostGuessed {
		t.forget()
	}
	t.spent[who] = debt{n, t.now()}
}

// owed returns what an address spent and has not back yet.
func (t *throttle) owed(who netip.Prefix) float64 {
	d, ok := t.spent[who]
	if !ok {
		return 0
	}
	return max(0, d.n-float64(t.now().Sub(d.at))/float64(guessAgain))
}

// forget frees entries: first addresses without recent guesses, then any. It frees many at once, as it
// checks all.
// looks at all.
func (t *throttle) forget() {
	for who := range t.spent {
		if t.owed(who) == 0 {
			delete(t.spent, who)
		}
	}
	for who := range t.spent {
		if len(t.spent) <= mostGuessed/2 {
			return
		}
		delete(t.spent, who)
	}
}

// network is what one guesser has: an IPv4 address, or a /64 of IPv6.
func network(from string) netip.Prefix {
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

// tooMany is for an address that guessed too often.
type tooMany struct {
	after time.Duration
	error
}

func (t *tooMany) Unwrap() error { return t.error }

func (t *tooMany) seconds() string { return strconv.Itoa(int(t.after.Seconds()) + 1) }
