package fleet

import (
	"context"

	"github.com/decamp/decamp/internal/roster"
)

func (m *driver) wakeClerk() {
	select {
	case m.knock <- struct{}{}:
	default: // he is on his way already
	}
}

// clerk writes steps and answers to the roster, and passes orders and rehearsals on to the Mover, until
// try ends.
func (m *driver) clerk(try context.Context) {
	defer close(m.clerkGone)
	var step, waits string
	for {
		row, order, news := m.look()
		m.tellOrder(order)
		m.tellRehearsal(row.Rehearse)
		if m.answer(try) != nil {
			return
		}
		m.mu.Lock()
		newStep := m.step != step || m.waits != waits
		step, waits = m.step, m.waits
		m.mu.Unlock()
		if newStep && m.w.insist(try, func() error { return m.w.Roster.Claims.SetStep(try, m.claim, step, waits) }) != nil {
			return // fenced, or at an end
		}
		if waits != "" {
			m.giveUpUnused()
		}
		select {
		case <-try.Done():
			return
		case <-news:
		case <-m.knock:
		}
	}
}

// tellOrder passes an order on once the run is there to hear it, which its first step tells: until
// then the Move gives it the order that it was begun with. A VM that is moved cold
// has nothing to be told: its order is what it may begin, or that it ends.
func (m *driver) tellOrder(o roster.Order) {
	m.mu.Lock()
	told, there := m.told, m.step != ""
	m.mu.Unlock()
	if !m.vm.Warm || !there || o == told || o == roster.Retry {
		return
	}
	if err := m.w.Mover.Order(m.vm, o); err != nil {
		m.w.Log.Debug("order not told yet", "plan", m.vm.Plan, "vm", m.vm.Name, "err", err)
		return
	}
	m.mu.Lock()
	m.told = o
	m.mu.Unlock()
}

// tellRehearsal passes on the rehearsal that is asked of the VM, nil for none, and that one is not
// asked any more, once the run is there to hear it.
func (m *driver) tellRehearsal(ask *roster.Rehearsal) {
	m.mu.Lock()
	was, there := m.asked, m.step != ""
	m.mu.Unlock()
	var now string
	if ask != nil {
		now = ask.ID
	}
	if !m.vm.Warm || !there || now == was {
		return
	}
	if was != "" {
		if err := m.w.Mover.TakeBack(m.vm, was); err != nil {
			m.w.Log.Warn("rehearsal not taken back", "plan", m.vm.Plan, "vm", m.vm.Name, "err", err)
		}
	}
	if ask != nil {
		if err := m.w.Mover.Rehearse(m.vm, *ask); err != nil {
			m.Rehearsed(roster.Rehearsed{Rehearsal: *ask, Failure: failureOf(err)})
		}
	}
	m.mu.Lock()
	m.asked = now
	m.mu.Unlock()
}

// answer writes how rehearsals ended.
func (m *driver) answer(try context.Context) error {
	m.mu.Lock()
	all := m.rehearsed
	m.rehearsed = nil
	m.mu.Unlock()
	for _, done := range all {
		if err := m.w.insist(try, func() error { return m.w.Roster.Rehearsals.Answer(try, m.claim, done) }); err != nil {
			return err
		}
	}
	return nil
}
