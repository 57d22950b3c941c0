package targettest

import (
	"errors"
	"net/http"
	"sync"
)

// A Tap decides what becomes of each call that goes through it: of requests by HTTP as a RoundTripper, of
// all else where it is asked by Fate.
type Tap struct {
	Next http.RoundTripper // of those who use it as one

	mu   sync.Mutex
	n    int
	hook func(int) Fate
}

// Set is a Site's Tap.
func (t *Tap) Set(hook func(n int) Fate) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n, t.hook = 0, hook
}

// Fate counts a call, and says what becomes of it.
func (t *Tap) Fate() Fate {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n++
	if t.hook == nil {
		return Pass
	}
	return t.hook(t.n)
}

// RoundTrip makes a request, or not, and tells of the answer, or not.
func (t *Tap) RoundTrip(r *http.Request) (*http.Response, error) {
	fate := t.Fate()
	if fate == Lost {
		return nil, errors.New("the connection broke")
	}
	res, err := t.Next.RoundTrip(r)
	if fate == Unanswered && err == nil {
		res.Body.Close()
		return nil, errors.New("the connection broke before the answer")
	}
	return res, err
}
