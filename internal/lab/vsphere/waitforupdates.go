package vsphere

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"regexp"
	"sync"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// waits are the WaitForUpdates calls in progress. The simulator continues them after their client has
// disconnected; therefore the emulator cancels them.
type waits struct {
	mu   sync.Mutex                               // guards open
	open map[waitKey]*simulator.PropertyCollector // collectors of the calls
}

// A waitKey identifies a collector of a session.
type waitKey struct{ session, collector string }

// waitCall matches the body of a WaitForUpdates call; the group is the collector.
var waitCall = regexp.MustCompile(`WaitForUpdates(?:Ex)?[ >][^<]*<(?:\w+:)?_this[^>]*>([^<]+)<`)

// watchWait reads the body of the request in advance. If it is a WaitForUpdates call, the call is
// canceled when the client disconnects. The returned function ends that.
func (e *endpoint) watchWait(r *http.Request) func() {
	body, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body)) // the simulator reads it again
	match := waitCall.FindSubmatch(body)
	cookie, cookieErr := r.Cookie(sessionCookie)
	if err != nil || cookieErr != nil || match == nil {
		return func() {}
	}
	key := waitKey{cookie.Value, string(match[1])}
	stop := context.AfterFunc(r.Context(), func() { e.lab.waits.cancelWait(key) })
	return func() {
		stop()
		e.lab.waits.removeWait(key)
	}
}

// addWait registers the collector of a WaitForUpdates call.
func (w *waits) addWait(ctx *simulator.Context, method *simulator.Method) {
	if method.Name != "WaitForUpdatesEx" && method.Name != "WaitForUpdates" {
		return
	}
	var pc *simulator.PropertyCollector
	switch c := ctx.Session.Get(method.This).(type) {
	case *collector:
		pc = &c.PropertyCollector
	case *simulator.PropertyCollector: // one that the client made
		pc = c
	default:
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open == nil {
		w.open = map[waitKey]*simulator.PropertyCollector{}
	}
	w.open[waitKey{ctx.Session.Key, method.This.Value}] = pc
}

// removeWait removes a call that has returned.
func (w *waits) removeWait(key waitKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.open, key)
}

// cancelWait cancels a call in progress.
func (w *waits) cancelWait(key waitKey) {
	w.mu.Lock()
	pc := w.open[key]
	w.mu.Unlock()
	if pc != nil {
		pc.CancelWaitForUpdates(&types.CancelWaitForUpdates{This: pc.Self})
	}
}

// cancelAll cancels all calls in progress.
func (w *waits) cancelAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, pc := range w.open {
		pc.CancelWaitForUpdates(&types.CancelWaitForUpdates{This: pc.Self})
	}
}
