package nfc

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/nfc"
)

const (
	firstBackOff   = time.Second
	longestBackOff = 30 * time.Second
)

// patience is how many failures of a kind a read survives. Ten are about three minutes
// with the back-off: longer than a management agent's restart, shorter than a night.
// Kinds that are not listed fail at once.
var patience = map[fault.Kind]int{
	fault.Transient:   10,
	fault.Unreachable: 10,
	fault.Corrupt:     3, // a wrong answer may be an overloaded host's
	fault.Conflict:    2, // a lock may be passing: hosts take it for a moment themselves
	fault.Denied:      1, // a ticket may be refused after a restart, a certificate just renewed
}

// retry is the patience of one read.
type retry struct {
	failures int                // of any kind
	of       map[fault.Kind]int // the same by kind
}

// wait returns nil when it should be tried again, after the back-off, and err when not.
func (t *retry) wait(ctx context.Context, o Options, err error) error {
	kind := fault.KindOf(err)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, nfc.ErrBuffers) && t.failures == 0:
		t.failures++
		return nil // with other buffers at once
	case patience[kind] == 0:
		return err
	}
	t.failures++
	if t.of == nil {
		t.of = map[fault.Kind]int{}
	}
	if t.of[kind]++; t.of[kind] > patience[kind] {
		return t.giveUp(kind, err)
	}
	o.Log.Debug("read failed, will be repeated", "err", err)
	return o.Sleep(ctx, backOff(t.failures))
}

// giveUp says how often it was tried. The remedy is err's own, if it has one.
func (t *retry) giveUp(kind fault.Kind, err error) error {
	final := fault.New(kind, "gave up after %d attempts: %w", t.failures, err)
	if fault.HintOf(err) == "" {
		return final.WithHint("look at the host's load and its network, then start again: the copy goes on where it stopped")
	}
	return final.WithHint("%s", fault.HintOf(err))
}

// backOff doubles from one second to thirty and takes up to half off, at random, so that
// readers that failed together do not come back together.
func backOff(failures int) time.Duration {
	d := longestBackOff
	if failures < 6 {
		d = min(d, firstBackOff<<(failures-1))
	}
	return d - rand.N(d/2)
}
