package https

import (
	"context"
	"errors"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/transport"
)

// patience is the number of consecutive failures of a kind, without a byte in between, that a request
// survives. With the back-off, ten of them take about three minutes: longer than the restart of a
// management agent. Kinds without an entry fail at once. Each kind has its own count, so that one 500
// of a restarted agent is not fatal after many failed connections.
var patience = map[fault.Kind]int{
	fault.Transient:   10,
	fault.Unreachable: 10,
	fault.Corrupt:     3, // a proxy may return a wrong answer once
	fault.Conflict:    2, // hostd answers 500 under load too
}

// retry counts the failures of one stream. Progress resets it.
type retry struct {
	failures int                // failures of all kinds since the last progress
	of       map[fault.Kind]int // failures of each kind since the last progress
	stale    string             // session cookie that was refused last
	renewed  bool               // the session was renewed since the last progress
}

// reset starts the counts again after progress.
func (t *retry) reset() { *t = retry{stale: t.stale} }

// wait returns nil after the back-off if the request should be tried again. Otherwise it returns the
// final error.
func (t *retry) wait(ctx context.Context, p *pool, err error) error {
	t.failures++
	if errors.Is(err, errGone) && t.failures == 1 {
		return nil
	}
	kind := fault.KindOf(err)
	if errors.Is(err, errGone) {
		kind = fault.Transient
	}
	if ctx.Err() != nil || patience[kind] == 0 {
		return err
	}
	if t.countKind(kind) > patience[kind] {
		return transport.GiveUp(t.failures, kind, err)
	}
	if kind == fault.Transient || kind == fault.Unreachable {
		p.reportDistress()
	}
	p.opts.Log.Debug("request failed, retrying", "host", p.host.Addr(), "err", err)
	return p.opts.Sleep(ctx, backOff(t.failures, err))
}

// countKind counts a failure and returns the number of its kind.
func (t *retry) countKind(kind fault.Kind) int {
	if t.of == nil {
		t.of = map[fault.Kind]int{}
	}
	t.of[kind]++
	return t.of[kind]
}

// backOff returns the back-off of package transport, or the host's Retry-After if that is longer, up to
// LongestBackOff.
func backOff(failures int, err error) time.Duration {
	d := transport.BackOff(failures)
	var busy *busyError
	if errors.As(err, &busy) {
		d = max(d, min(busy.after, transport.LongestBackOff))
	}
	return d
}
