package targettest

import (
	"errors"
	"net/http"
	"sync"
)

// Tap decides the fate of each call to a platform. It is an http.RoundTripper; for calls of other
// protocols,
// the harness calls Fate. It is safe for concurrent use.
type Tap struct {
	Next http.RoundTripper // transport for requests that pass; required by RoundTrip

	mu   sync.Mutex     // guards n and hook
	n    int            // number of calls since Set
	hook func(int) Fate // returns the fate of the n-th call; nil passes all calls
}

// Set installs a hook and restarts the count. It is suitable as Site.Tap.
func (t *Tap) Set(hook func(n int) Fate) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n, t.hook = 0, hook
}

// Fate counts a call and returns its fate.
func (t *Tap) Fate() Fate {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n++
	if t.hook == nil {
		return Pass
	}
	return t.hook(t.n)
}

// RoundTrip implements http.RoundTripper. It sends the request unless its fate is Lost. It drops the
// response if the fate
// is Unanswered.
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
