package migrate

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/convert/virtv2v"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/flow"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/plan"
	"github.com/decamp/decamp/internal/sleep"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/transport"
	"github.com/decamp/decamp/internal/trial"
)

// Source is what a run needs of the host a VM lives on.
type Source interface {
	// VM reads a VM's description anew, by its reference.
	VM(ctx context.Context, ref string) (*inventory.VM, error)

	// BareVM is VM without what people put on it in a vCenter (inventory.VM.Adorn), which may take
	// more calls.
	BareVM(ctx context.Context, ref string) (*inventory.VM, error)

	// PowerOff asks the guest to shut down, waits, and only with force pulls the plug. A
	// VM that stays on is fault.Conflict.
	PowerOff(ctx context.Context, vm inventory.MoRef, wait time.Duration, force bool) error
}

// Rig is what one run works with. The caller opens and closes its parts.
type Rig struct {
	Source    Source
	Transport transport.Transport
	Target    targets.Target

	// Seen is the VM as the caller has just read it by Source: a cold run does not read it again
	// to begin with. Nil: it does.
	Seen *inventory.VM

	// Open opens a disk of the source to compare a sample with it when a copy is resumed. Nil leaves
	// that out.
	Open func(ctx context.Context, d transport.Disk) (disk.Source, error)

	// Reread opens a disk of the source over another connection than Transport's, and returns how it
	// is read: https or nfc. A disk that cannot be read a second time is fault.Unsupported. Nil: none can.
	Reread func(ctx context.Context, d transport.Disk) (src disk.Source, by string, err error)

	// Sum has the host itself hash a disk, and returns the hash. A disk that no file there
	// holds byte for byte is fault.Unsupported. Nil: hosts are not asked.
	Sum func(ctx context.Context, d transport.Disk) (SourceSum, error)

	// NVRAM reads the file VM.NVRAM of a VM that is off. Nil: nobody asks for it.
	NVRAM func(ctx context.Context, vm *inventory.VM) ([]byte, error)

	// Boot starts the VM that a libvirt domain defines, sees how far it comes, and leaves no trace
	// on its images. static are the addresses that its guest is to have. Nil: there are no trial boots.
	Boot func(ctx context.Context, domain string, static []trial.Static) (trial.Report, error)

	// Rehearse boots the VM of a warm run from its images as they are, while it goes on. Nil: nobody
	// rehearses.
	Rehearse func(ctx context.Context, what Rehearsing) (trial.Report, error)

	// Trials returns when the VM may boot here, and what says that it is over; waits is told why it
	// has to wait first. Nil: at once.
	Trials func(ctx context.Context, waits func(why string)) (leave func(), err error)

	// Convert changes a guest on overlays so that it boots from virtio: convert.LinuxAppend. Nil:
	// no guest is converted.
	Convert func(ctx context.Context, disks []convert.Disk, o convert.Options) (convert.Result, error)

	// Prepare changes on overlays what virt-v2v leaves out: convert.Prepare. Nil: nothing.
	Prepare func(ctx context.Context, disks []convert.Disk, o convert.Options) (convert.Result, error)

	// V2V has virt-v2v change a guest on disks that are thrown away if it fails: virtv2v.Engine. Nil:
	// it is not there, or not to be used.
	V2V func(ctx context.Context, j virtv2v.Job) (virtv2v.Report, error)

	// Keys open encrypted volumes of guests for virt-v2v.
	Keys []virtv2v.Key

	// Settled is told when the run needs no transfer of a disk, or no other one, by the
	// disk's key; it may be told so more than once, and change its mind. Nil: nobody asks.
	Settled func(disk int32)

	// Pace returns when so many bytes may be asked of the source (transport.Job). Nil: at once.
	Pace func(ctx context.Context, bytes int64) error

	// Free reports whether Pace need not be asked now (transport.Job). Nil: nobody knows.
	Free func() bool

	// Epoch goes up with each process that takes the run over from another. It is part of its
	// snapshots' names. 0: nobody counts.
	Epoch int64

	// Turn returns when the run may transfer, and what gives the right back. It is asked by one
	// step at a time, and waits as long as ctx. Nil: at once.
	Turn func(ctx context.Context, s Stage) (giveBack func(), err error)
}

// Permit is what the user allows this time. It is not part of the plan.
type Permit struct {
	PowerOff bool          // shut the VM down if it runs
	Warm     bool          // the VM is moved while it runs; a suspended VM is refused, whatever Force permits
	Wait     time.Duration // for the guest to shut down; 0 is the source's default
	Force    bool          // then pull the plug

	Cutover  Cutover // of a warm run
	Paranoid bool    // a warm run compares all of every disk in the end, whatever the host says changed

	Spot       Spot // how much of each disk verify reads from the source a second time
	SourceHash bool // verify has the host hash each disk, and compares
	Trial      bool // verify boots the VM, and only one that boots is published
	Start      bool // commit starts the VM once it is published
}

// Options are the same for all runs of a Migrator.
type Options struct {
	Version  string          // decamp's, for the record of a published VM
	Disks    int             // copied at once; default 4
	Log      *slog.Logger    // default discards
	Notify   plan.Subscriber // told everything; nil is fine
	Shared   bool            // with other processes: one of their runs is taken over by Migrate
	Attempts int             // at a disk that fails for a passing reason without getting further; default 6
	Now      func() time.Time
	Sleep    func(context.Context, time.Duration) error
	Seed     uint64 // of samples; default random
}

func (o Options) withDefaults() Options {
	if o.Disks <= 0 {
		o.Disks = 4
	}
	if o.Attempts <= 0 {
		o.Attempts = 6
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Notify == nil {
		o.Notify = func(plan.Event) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Sleep == nil {
		o.Sleep = sleep.For
	}
	if o.Seed == 0 {
		o.Seed = rand.Uint64()
	}
	return o
}

// A Migrator drives runs over a flow engine. Several may be under way at once.
type Migrator struct {
	engine *flow.Engine
	store  *plan.Store
	opts   Options

	orders  orders // by the clock of opts
	cancels orders // by the real one, for those who watch

	mu   sync.Mutex
	runs map[plan.ID]*attendance // by Migrate, while it is there

	notifying sync.Mutex // held while somebody is told an event: one at a time
	warning   sync.Mutex // held while a run's warnings grow: its disks are copied in parallel
}

// attendance is what a run needs of the process that drives it.
type attendance struct {
	rig     Rig
	permit  Permit
	journal *plan.Journal
	telling sync.Mutex // held while one event is journaled and told: they come in order
	turn    turn
	sight   sight
	stand   stand

	late bool // to be given up: commit has begun. Migrator.mu guards it
}

// New registers the migration with engine, which must not be launched yet.
func New(engine *flow.Engine, store *plan.Store, o Options) *Migrator {
	m := &Migrator{engine: engine, store: store, orders: orders{store: store}, cancels: orders{store: store}, opts: o.withDefaults(), runs: map[plan.ID]*attendance{}}
	m.register()
	return m
}

// Outcome is what a finished run leaves.
type Outcome struct {
	Run      plan.ID `json:"run"`
	Facts    Facts   `json:"facts"`
	Repeated bool    `json:"repeated,omitempty"` // it was done before, and nothing was done now
}

// Migrate carries out p, or continues it where an earlier attempt ended. A plan that is
// done and still published is not done again. Images that another process has are
// fault.Transient. If ctx ends, the step under way is stopped
// and the run can be continued; the error is then fault.Canceled.
func (m *Migrator) Migrate(ctx context.Context, p plan.Plan, rig Rig, permit Permit) (Outcome, error) {
	release, err := m.hold(ctx, p, rig)
	if err != nil {
		return Outcome{}, err
	}
	defer release()
	p, repeated, err := m.admit(ctx, p, rig)
	if errors.Is(err, flow.ErrRefused) {
		p, err = m.anew(ctx, p, err)
	}
	if err != nil {
		return Outcome{}, err
	}
	if repeated {
		return m.repeat(ctx, p, rig, permit)
	}
	err = m.attend(ctx, p, &attendance{rig: rig, permit: permit})
	if errors.Is(err, flow.ErrRefused) {
		if p, err = m.anew(ctx, p, err); err == nil {
			err = m.attend(ctx, p, &attendance{rig: rig, permit: permit})
		}
	}
	if err != nil {
		return Outcome{}, err
	}
	facts, err := m.facts(ctx, p.ID)
	return Outcome{Run: p.ID, Facts: facts}, err
}

// hold keeps other processes away from the images, from before the first look at them until the
// run is left: also between its transfers, while they are verified and when they are published.
func (m *Migrator) hold(ctx context.Context, p plan.Plan, rig Rig) (release func(), err error) {
	vm := &inventory.VM{Ref: p.VM.Ref, Name: p.VM.Name, UUID: p.VM.UUID, InstanceUUID: p.VM.InstanceUUID}
	free, err := rig.Target.Hold(ctx, vm)
	if err != nil {
		return nil, err
	}
	return func() {
		if err := free(); err != nil { // whoever died has no lock either
			m.opts.Log.Warn("lock of the images is left", "run", p.ID, "err", err)
		}
	}, nil
}

// admit records the plan. A run that is done begins afresh if what it published is gone,
// and so does one that is not the same intent but got no further than preflight, or is to have
// other hardware: what it copied is found by its manifests. A run whose withdrawal did not end is a Conflict.
func (m *Migrator) admit(ctx context.Context, p plan.Plan, rig Rig) (_ plan.Plan, repeated bool, err error) {
	st, err := m.engine.Status(ctx, string(p.ID))
	if err != nil {
		return p, false, err
	}
	facts, err := factsOf(st)
	if err != nil {
		return p, false, err
	}
	if st.State == flow.Done {
		if err := m.notWithdrawing(p); err != nil {
			return p, false, err
		}
		if _, err := rig.Target.Plan(ctx, facts.VM); fault.Is(err, fault.Conflict) {
			return p, true, nil
		}
	}
	recorded, err := m.store.Create(p)
	switch {
	case fault.Is(err, fault.Conflict) && st.State != flow.Done && m.otherHardware(p, facts):
		return m.change(ctx, p, st)
	case st.State == flow.Done || fault.Is(err, fault.Conflict) && len(facts.Images) == 0:
		return m.replace(ctx, p, st)
	}
	return recorded, false, err
}

// otherHardware reports whether a recorded run may go on as p, which differs from it by the
// hardware and what is done in the guest only: no image was changed yet, and its VM is not known by how it was found.
func (m *Migrator) otherHardware(p plan.Plan, f Facts) bool {
	was, err := m.store.Plan(p.ID)
	if err != nil || f.Verified != nil || p.Warm {
		return false
	}
	was.Hardware, was.Engine, was.GuestAgent = p.Hardware, p.Engine, p.GuestAgent
	return was.Same(p) == nil
}

// change begins a run again as another intent, with what it has on disk. Its journal still knows how
// the VM was found.
func (m *Migrator) change(ctx context.Context, p plan.Plan, st flow.Status) (plan.Plan, bool, error) {
	err := m.halt(ctx, st)
	if err == nil {
		err = m.engine.Forget(ctx, st.Run)
	}
	if err == nil {
		err = m.store.Change(p)
	}
	return p, false, err
}

// anew forgets a run whose record is refused, so that it begins again. What it copied is found by
// its manifests. Of a run that is done the VM is published, so it does not begin again.
func (m *Migrator) anew(ctx context.Context, p plan.Plan, why error) (plan.Plan, error) {
	st, err := m.engine.Status(ctx, string(p.ID))
	switch {
	case err != nil:
		return p, err
	case st.State == flow.Done:
		return p, why
	}
	m.opts.Log.Warn("run begins again", "run", p.ID, "err", why)
	p, _, err = m.replace(ctx, p, st)
	return p, err
}

// replace forgets a run of which nothing is left but its record.
func (m *Migrator) replace(ctx context.Context, p plan.Plan, st flow.Status) (plan.Plan, bool, error) {
	if err := m.halt(ctx, st); err != nil {
		return p, false, err
	}
	if err := m.forget(ctx, p.ID); err != nil {
		return p, false, err
	}
	p, err := m.store.Create(p)
	return p, false, err
}

// attend runs p to its end, or until ctx ends, with its journal open.
func (m *Migrator) attend(ctx context.Context, p plan.Plan, a *attendance) (err error) {
	if a.journal, err = m.store.Journal(p.ID); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.journal.Close()) }()
	if p.Warm {
		if err := a.permit.Cutover.ready(m.store, p.ID); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(scratchOf(m.store, p.ID)); err != nil { // of a rehearsal that was killed
		return err
	}
	if err := m.enter(p.ID, a); err != nil {
		return err
	}
	defer m.leave(p.ID)
	m.tell(p.ID, plan.Event{Kind: plan.RunBegan})
	err = m.obey(ctx, p)
	a.turn.end()
	if err != nil && p.Warm {
		m.letGo(ctx, p, a)
	}
	switch unsaid := m.journal(p.ID, ending(err)); {
	case err == nil:
		return unsaid // the next Migrate has nothing to do but to say it
	case unsaid != nil:
		m.opts.Log.Error("the end of an attempt is not journaled", "run", p.ID, "err", unsaid)
	}
	return err
}

// obey drives the run until it is done, or until somebody orders to give it up. What then is
// to be undone is Discard's.
func (m *Migrator) obey(ctx context.Context, p plan.Plan) error {
	if !p.Warm {
		return m.drive(ctx, p)
	}
	ctx, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer stop()
	a := m.attending(p.ID)
	a.stand.attend(ctx)
	defer a.stand.stop(errRunEnded)
	watching.Go(func() { m.watch(ctx, p.ID, stop) })
	return m.drive(ctx, p)
}

// watch calls stop when the run is ordered to be given up, and begins the rehearsals that are asked
// for while the run is in line for its turn. It returns when ctx ends.
func (m *Migrator) watch(ctx context.Context, id plan.ID, stop func()) {
	for {
		switch k, err := m.cancels.all(id, time.Now()); {
		case err != nil:
		case k.order == plan.GiveUp:
			m.unlessLate(id, stop)
		case k.order != plan.CutOver:
			m.consider(id, k)
		}
		if sleep.For(ctx, untilTick(time.Now(), watchEvery)) != nil {
			return
		}
	}
}

// unlessLate calls stop unless commit has begun.
func (m *Migrator) unlessLate(id plan.ID, stop func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a := m.runs[id]; a != nil && !a.late {
		stop()
	}
}

func (m *Migrator) enter(id plan.ID, a *attendance) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.runs[id] != nil {
		return fault.New(fault.Conflict, "run %s is under way in this process", id)
	}
	m.runs[id] = a
	return nil
}

func (m *Migrator) leave(id plan.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.runs, id)
	m.orders.forget(id)
	m.cancels.forget(id)
}

// drive starts the flow and waits for it. When ctx ends it stops the flow and waits for
// the step to let go of the images.
func (m *Migrator) drive(ctx context.Context, p plan.Plan) error {
	run := string(p.ID)
	if err := m.begin(ctx, p); err != nil {
		return err
	}
	err := m.engine.Wait(ctx, run)
	if ctx.Err() == nil {
		return err
	}
	return m.stop(run)
}

// begin starts the flow, or has it go on. Where processes share runs it goes on from what
// another one recorded: who calls Migrate has the claim.
func (m *Migrator) begin(ctx context.Context, p plan.Plan) error {
	if m.opts.Shared {
		if err := m.engine.TakeOver(ctx, string(p.ID)); !fault.Is(err, fault.NotFound) {
			return err
		}
	}
	return m.engine.Start(ctx, string(p.ID), flowOf(p), p)
}

// flowOf is the pipeline of a plan.
func flowOf(p plan.Plan) string {
	if p.Warm {
		return warmFlow
	}
	return flowName
}

// stop ends what is done of a run here, and waits until its step has returned. Another process
// may have taken the run over, and the record may be out of reach: neither keeps it from
// stopping.
func (m *Migrator) stop(run string) error {
	if err := m.engine.Halt(run); err == nil || !fault.Is(err, fault.Canceled) {
		return err
	}
	return fault.New(fault.Canceled, "run %s was stopped", run).
		WithHint("run the same command again to continue it, or with --discard to give it up")
}

func ending(err error) plan.Event {
	kind := plan.RunFailed
	switch {
	case err == nil:
		kind = plan.RunDone
	case fault.Is(err, fault.Canceled):
		kind = plan.RunStopped
	}
	return plan.Event{Kind: kind, Failure: plan.FailureOf(err)}
}

// facts returns what the last step of a run recorded.
func (m *Migrator) facts(ctx context.Context, id plan.ID) (Facts, error) {
	st, err := m.engine.Status(ctx, string(id))
	if err != nil {
		return Facts{}, err
	}
	return factsOf(st)
}

func factsOf(st flow.Status) (f Facts, err error) {
	_, err = st.Last(&f)
	return f, err
}
