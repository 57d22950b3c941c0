package fleet

import (
	"context"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/roster"
)

const (
	// unusedFor is how long a grant may lie unused: a warm VM that was granted anew, to be
	// driven again, may not want to transfer for an hour.
	unusedFor = time.Minute

	// reportEvery is how often progress is written.
	reportEvery = time.Second
)

// A driver is what one Move calls. Steps and orders are passed on by a goroutine of its own,
// the clerk, so that a Move does not wait for the roster where it need not.
type driver struct {
	*attempt
	ctx context.Context // of the worker
	try context.Context // of the attempt
	vm  roster.VM

	turns   chan struct{} // one token: who has it changes what is held
	granted bool          // what the VM was granted with was not taken yet; with the token
	taken   int           // turns that were not given back; with the token

	mu        sync.Mutex
	step      string
	waits     string
	told      roster.Order // to the Mover
	asked     string       // of the Mover: the rehearsal
	rehearsed []roster.Rehearsed
	first     roster.Progress
	last      roster.Progress
	begun     bool // first is there
	knock     chan struct{}
	clerkGone chan struct{}
}

func (a *attempt) newDriver(ctx, try context.Context, vm roster.VM) *driver {
	m := &driver{
		attempt: a, ctx: ctx, try: try, vm: vm, granted: vm.Holds,
		turns: make(chan struct{}, 1), knock: make(chan struct{}, 1), clerkGone: make(chan struct{}),
	}
	m.turns <- struct{}{}
	return m
}

// move has the Mover move, and looks after what it calls.
func (m *driver) move(vm roster.VM) error {
	try, end := context.WithCancel(m.try)
	go m.clerk(try)
	idle, stop := m.w.until(try, m.w.Now().Add(unusedFor))
	unused := context.AfterFunc(idle, m.giveUpUnused)
	_, vm.Order, _ = m.look()
	err := m.w.Mover.Move(try, vm, m)
	unused()
	stop()
	end()
	<-m.clerkGone
	return err
}

// gained reports whether the attempt got further.
func (m *driver) gained() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last.Done > m.first.Done || m.last.Round > m.first.Round
}

func (m *driver) Epoch() int64 { return m.claim.Epoch }

func (m *driver) Progress(p roster.Progress) {
	p.Key = m.claim.Key
	m.mu.Lock()
	if !m.begun {
		m.begun, m.first = true, p
	}
	m.last = p
	m.mu.Unlock()
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	m.w.told[p.Key] = p
}

func (m *driver) Rehearsed(done roster.Rehearsed) {
	m.mu.Lock()
	m.rehearsed = append(m.rehearsed, done)
	m.mu.Unlock()
	m.wakeClerk()
}

func (m *driver) Storage(ids []string) error {
	return m.w.insist(m.try, func() error { return m.w.Roster.Claims.Begin(m.try, m.claim, ids) })
}

func (m *driver) Step(name, waits string) {
	m.mu.Lock()
	m.step, m.waits = name, waits
	m.mu.Unlock()
	m.wakeClerk()
}
