package fleet

import (
	"context"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
)

const (
	// unusedTime is how long a slot may stay unused after the grant: a warm VM that continues in another worker
	// may not transfer for an hour.
	unusedTime = time.Minute

	// reportEvery is how often progress is written.
	reportEvery = time.Second
)

// A driver is the Driver of one Move. A separate goroutine exchanges steps, commands and rehearsals
// with the fleet database (exchangeLoop), so that the Move waits for the database only if necessary.
type driver struct {
	*attempt
	ctx context.Context // context of the worker
	try context.Context // context of the attempt
	vm  fleetdb.VM      // row of the VM when the attempt began

	slotToken chan struct{} // holds one token; the caller that took it may use granted and slots
	granted   bool          // the slot of the grant is not used yet
	slots     int           // slots that are in use

	mu           sync.Mutex          // guards the fields below
	step         string              // current step, from Step; "" before the first one
	waits        string              // why the VM waits in that step; "" if it does not wait
	orderPassed  fleetdb.Command     // last order that was passed to the Mover
	rehearsal    string              // id of the rehearsal that was passed to the Mover; "" for none
	rehearsed    []fleetdb.Rehearsed // results of rehearsals that are not written yet
	first, last  fleetdb.Progress    // first and last reported progress
	progressed   bool                // first is set
	summary      fleetdb.Summary     // result of the published VM, from Published
	wake         chan struct{}       // holds one token if exchangeLoop has work
	exchangeDone chan struct{}       // closed when exchangeLoop has returned
}

// newDriver returns the driver of an attempt. A VM that holds slots by its row has a granted slot.
func (a *attempt) newDriver(ctx, try context.Context, vm fleetdb.VM) *driver {
	d := &driver{
		attempt: a, ctx: ctx, try: try, vm: vm, granted: vm.Granted,
		slotToken: make(chan struct{}, 1), wake: make(chan struct{}, 1), exchangeDone: make(chan struct{}),
	}
	d.slotToken <- struct{}{}
	return d
}

// moveVM calls the Mover, and exchanges data with the database until it returns.
func (d *driver) moveVM(vm fleetdb.VM) error {
	try, end := context.WithCancel(d.try)
	go d.exchangeLoop(try)
	idle, stop := d.w.withDeadline(try, d.w.Now().Add(unusedTime))
	unused := context.AfterFunc(idle, d.releaseUnused)
	_, vm.Command, _ = d.currentState()
	err := d.w.Mover.Move(try, vm, d)
	unused()
	stop()
	end()
	<-d.exchangeDone
	return err
}

// hasProgressed reports whether the attempt has done more bytes or rounds than at its first report.
func (d *driver) hasProgressed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last.Done > d.first.Done || d.last.Round > d.first.Round
}

// Epoch implements Driver.
func (d *driver) Epoch() int64 { return d.claim.Epoch }

// Progress implements Driver. It keeps the last report for reportLoop.
func (d *driver) Progress(p fleetdb.Progress) {
	p.Key = d.claim.Key
	d.mu.Lock()
	if !d.progressed {
		d.progressed, d.first = true, p
	}
	more := p.Read - d.last.Read // an attempt begins with 0
	d.last = p
	d.mu.Unlock()
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	d.w.unreported[p.Key] = p
	if more > 0 {
		d.w.read[p.Plan] += more
	}
}

// Published implements Driver.
func (d *driver) Published(s fleetdb.Summary) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.summary = s
}

// publishedSummary returns the last report of Published.
func (d *driver) publishedSummary() fleetdb.Summary {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.summary
}

// Rehearsed implements Driver. The result is written by exchangeLoop.
func (d *driver) Rehearsed(done fleetdb.Rehearsed) {
	d.mu.Lock()
	d.rehearsed = append(d.rehearsed, done)
	d.mu.Unlock()
	d.wakeExchange()
}

// Storage implements Driver. It returns when the storages are recorded.
func (d *driver) Storage(ids []string) error {
	return d.w.retryWhileAway(d.try, func() error { return d.w.Database.Claims.Begin(d.try, d.claim, ids) })
}

// Step implements Driver. The step is written by exchangeLoop.
func (d *driver) Step(name, waits string) {
	d.mu.Lock()
	d.step, d.waits = name, waits
	d.mu.Unlock()
	d.wakeExchange()
}
