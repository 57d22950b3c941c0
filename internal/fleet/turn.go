package fleet

import (
	"context"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/roster"
)

// Turn implements Driver. While one turn is held a further one of the same VM returns at
// once, and what is held is given back with the last: the runs of a VM that goes to several
// folders are one transfer.
func (m *driver) Turn(ctx context.Context, stage roster.Stage, expected time.Duration) (func(), error) {
	select {
	case <-m.turns:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { m.turns <- struct{}{} }()
	if m.taken == 0 && !m.granted {
		if err := m.inLine(ctx, stage, expected); err != nil {
			return nil, err
		}
	}
	m.granted = false
	m.taken++
	return sync.OnceFunc(m.back), nil
}

// inLine asks for a turn and waits for it. A row that says that it holds may be older than
// the question, so what is waited for is newer than a look at the row behind it.
func (m *driver) inLine(ctx context.Context, stage roster.Stage, expected time.Duration) error {
	err := m.w.insist(ctx, func() error { return m.w.Roster.Claims.Ask(ctx, m.claim, stage, expected) })
	if err != nil {
		return err
	}
	asked, err := m.full(ctx)
	if err != nil {
		return err
	}
	for row := asked; !row.Holds || row.Rev < asked.Rev; {
		var news <-chan struct{}
		if row, _, news = m.look(); row.Rev >= asked.Rev && row.Holds {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// back gives one turn back.
func (m *driver) back() {
	<-m.turns
	defer func() { m.turns <- struct{}{} }()
	if m.taken--; m.taken == 0 {
		m.release()
	}
}

// giveUpUnused gives back what the VM was granted with, if it was not taken yet.
func (m *driver) giveUpUnused() {
	if m.try.Err() != nil {
		return
	}
	select {
	case <-m.turns:
	default: // it is being taken
		return
	}
	defer func() { m.turns <- struct{}{} }()
	if m.granted {
		m.granted = false
		m.release()
	}
}

// release tells the scheduler. Who may not write any more has nothing to tell: whoever has
// the VM next is granted anew.
func (m *driver) release() {
	if err := m.w.insist(m.ctx, func() error { return m.w.Roster.Claims.GiveBack(m.ctx, m.claim) }); err != nil {
		m.w.Log.Debug("turn not given back", "plan", m.claim.Plan, "vm", m.claim.VM, "err", err)
	}
}
