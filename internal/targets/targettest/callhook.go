package targettest

import (
	"errors"
	"net/http"
	"sync"
)

// CallHook decides the outcome of each call to a platform. It is an http.RoundTripper; for calls of other
// protocols, the harness calls NextOutcome. It is safe for concurrent use.
type CallHook struct {
	Next http.RoundTripper // transport for requests that pass; required by RoundTrip

	mu    sync.Mutex        // guards reads and hook
	reads []bool            // calls since SetHook, by whether the call only reads
	hook  func(int) Outcome // returns the outcome of the n-th call; nil passes all calls
}

// SetHook installs a hook and restarts the count. It is suitable as Site.SetCallHook.
func (t *CallHook) SetHook(hook func(n int) Outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reads, t.hook = nil, hook
}

// Reads reports whether the n-th call since SetHook only reads. It is suitable as Site.Reads.
func (t *CallHook) Reads(n int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reads[n-1]
}

// NextOutcome counts a call and returns its outcome. reads reports whether the call changes nothing at the
// platform.
func (t *CallHook) NextOutcome(reads bool) Outcome {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reads = append(t.reads, reads)
	if t.hook == nil {
		return Pass
	}
	return t.hook(len(t.reads))
}

// RoundTrip implements http.RoundTripper. It sends the request unless its outcome is Lost. It drops the
// response if the outcome is Unanswered.
func (t *CallHook) RoundTrip(r *http.Request) (*http.Response, error) {
	outcome := t.NextOutcome(r.Method == http.MethodGet || r.Method == http.MethodHead)
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
