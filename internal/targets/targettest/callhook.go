package targettest

import (
	"errors"
	"net/http"
	"sync"
)

// CallHook decides the outcome of each call to a platform. It is an http.RoundTripper; for calls of other
// protocols,
// the harness calls NextOutcome. It is safe for concurrent use.
type CallHook struct {
	Next http.RoundTripper // transport for requests that pass; required by RoundTrip

	mu   sync.Mutex        // guards n and hook
	n    int               // number of calls since SetHook
	hook func(int) Outcome // returns the outcome of the n-th call; nil passes all calls
}

// SetHook installs a hook and restarts the count. It is suitable as Site.SetCallHook.
func (t *CallHook) SetHook(hook func(n int) Outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n, t.hook = 0, hook
}

// NextOutcome counts a call and returns its outcome.
func (t *CallHook) NextOutcome() Outcome {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n++
	if t.hook == nil {
		return Pass
	}
	return t.hook(t.n)
}

// RoundTrip implements http.RoundTripper. It sends the request unless its outcome is Lost. It drops the
// response if the outcome
// is Unanswered.
func (t *CallHook) RoundTrip(r *http.Request) (*http.Response, error) {
	outcome := t.NextOutcome()
	if outcome == Lost {
		return nil, errors.New("the connection broke")
	}
	res, err := t.Next.RoundTrip(r)
	if outcome == Unanswered && err == nil {
		res.Body.Close()
		return nil, errors.New("the connection broke before the answer")
	}
	return res, err
}
