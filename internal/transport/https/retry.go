package https

import (
	"context"
	"errors"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/transport"
)

// patience is how many failures of a kind, without a byte in between, a request survives.
// Ten are about three minutes with the back-off: longer than a management agent's
// restart, shorter than a night. Kinds that are not listed fail at once. Each kind is
// counted by itself: the 500 of an agent that has just come back must not be the last
// straw because nobody answered before.
var patience = map[fault.Kind]int{
	fault.Transient:   10,
	fault.Unreachable: 10,
	fault.Corrupt:     3, // a wrong answer may be a proxy's hiccup
	fault.Conflict:    2, // hostd also answers 500 when it is only out of breath
}

// retry is the patience of one stream. Progress renews it.
type retry struct {
	failures int                // of any kind, since the last progress
	of       map[fault.Kind]int // the same by kind
	stale    string             // the cookie that was refused last
	renewed  bool               // the session was renewed since the last progress
}

func (t *retry) reset() { *t = retry{stale: t.stale} }

// wait returns nil when the request should be tried again, after the back-off that err
// asks for, and err when it should not.
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
	p.opts.Log.Debug("request failed, will be repeated", "host", p.host.Addr(), "err", err)
	return p.opts.Sleep(ctx, backOff(t.failures, err))
}

// countKind notes a failure and returns how many of its kind there were.
func (t *retry) countKind(kind fault.Kind) int {
	if t.of == nil {
		t.of = map[fault.Kind]int{}
	}
	t.of[kind]++
	return t.of[kind]
}

// backOff is transport's, but a host's Retry-After is obeyed.
func backOff(failures int, err error) time.Duration {
	d := transport.BackOff(failures)
	var busy *busyError
	if errors.As(err, &busy) {
		d = max(d, min(busy.after, transport.LongestBackOff))
	}
	return d
}
