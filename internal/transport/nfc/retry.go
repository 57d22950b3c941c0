package nfc

import (
	"context"
	"errors"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/nfc"
	"github.com/decamp/decamp/internal/transport"
)

// patience is the number of failures of a kind that a read survives. With the back-off, ten of them
// take about three minutes: longer than the restart of a management agent. Kinds without an entry fail
// at once.
var patience = map[fault.Kind]int{
	fault.Transient:   10,
	fault.Unreachable: 10,
	fault.Corrupt:     3, // an overloaded host may return a wrong answer
	fault.Conflict:    2, // hosts themselves lock files for a moment
	fault.Denied:      1, // tickets are refused after a restart, or a renewal of the certificate
}

// retry counts the failures of one read.
type retry struct {
	most     int                // failures of a kind that are survived, if patience permits more; 0 is no limit
	failures int                // failures of all kinds
	of       map[fault.Kind]int // failures of each kind
}

// wait returns nil after the back-off if the read should be tried again. Otherwise it returns the final
// error. For refused buffers it does not wait the first time, because the next session requests others.
func (t *retry) wait(ctx context.Context, o Options, err error) error {
	kind := fault.KindOf(err)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, nfc.ErrBuffers) && t.failures == 0:
		t.failures++
		return nil // the next session requests other buffers
	case patience[kind] == 0:
		return err
	}
	t.failures++
	if t.of == nil {
		t.of = map[fault.Kind]int{}
	}
	if t.of[kind]++; t.of[kind] > patience[kind] || t.most > 0 && t.of[kind] > t.most {
		return transport.GiveUp(t.failures, kind, err)
	}
	o.Log.Debug("read failed, retrying", "err", err)
	return o.Sleep(ctx, transport.BackOff(t.failures))
}
