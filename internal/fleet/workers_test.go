package fleet

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
)

const (
	// short is a lease that a test waits for the end of.
	short = time.Second

	// kept is one that is to be renewed until the test ends that: on a busy machine somebody may not be
	// scheduled for a second.
	kept = 5 * time.Second
)

func (r *rig) only(c Config, schedule, drive bool) Config {
	c.Schedule, c.Drive = schedule, drive
	return c
}

func offering(c Config, vms int, folders map[string]string) Config {
	c.Worker.VMs, c.Worker.Offers = vms, folders
	return c
}

// A worker that comes back under its name goes on with its own at once, with a new epoch.
func TestWorkerThatComesBackGoesOn(t *testing.T) {
	r := newRig(t, nil)
	m := newMover(t, vmsOn(3, 1)...)
	held, letGo := m.hold()
	r.submit("wave")
	r.start(r.only(r.config(m, "s"), true, false))
	dead, kill := context.WithCancel(t.Context())
	defer kill()
	w := r.config(m, "w1")
	w.Schedule = false
	w.Mover = killed{m, dead}
	r.start(w) // its end is no matter: it is fenced
	for range 3 {
		next(t, held)
	}
	kill()
	r.wait("it to be dead", m.idle)
	r.start(r.only(r.config(m, "w1"), false, true))
	for range 3 {
		next(t, held)
	}
	for v := range r.each("wave") {
		if v.Epoch != 2 || v.State != fleetdb.Running || !v.Granted {
			t.Errorf("%s: epoch %d, %s, holds %v", v.VM, v.Epoch, v.State, v.Granted)
		}
	}
	close(letGo)
	r.waitEnded("wave")
}

// killed is the Mover of a process that dies: what it drives is gone without a word.
type killed struct {
	*mover
	dead context.Context
}

func (k killed) Move(ctx context.Context, vm fleetdb.VM, d Driver) error {
	if k.dead.Err() != nil {
		k.t.Errorf("%s is begun by a process that another one took the name of", vm.Key)
		return errBroken
	}
	both, end := context.WithCancel(ctx)
	defer end()
	context.AfterFunc(k.dead, end)
	err := k.mover.Move(both, vm, silent{d, k.dead})
	if k.dead.Err() != nil {
		<-ctx.Done() // it says nothing more until its worker is fenced
	}
	return err
}

// silent is the Driver that a dead process had.
type silent struct {
	Driver
	dead context.Context
}

func (s silent) RequestSlot(ctx context.Context, stage fleetdb.TransferKind, expected time.Duration) (func(), error) {
	back, err := s.Driver.RequestSlot(ctx, stage, expected)
	return func() {
		if s.dead.Err() == nil {
			back()
		}
	}, err
}

// idle reports whether nothing is driven.
func (m *mover) idle() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range m.perHost {
		if n > 0 {
			return false
		}
	}
	return true
}

func TestNameIsTheNewestProcess(t *testing.T) {
	r := newRig(t, nil)
	m := newMover(t)
	c := r.only(r.config(m, "w1"), false, true)
	first := r.start(c)
	r.wait("the worker", func() bool { return len(r.workers()) == 1 })
	second := r.start(c)
	r.wait("the first to notice", func() bool {
		select {
		case <-first.done:
			return true
		default:
			return false
		}
	})
	if !fault.Is(first.err, fault.Conflict) || fault.HintOf(first.err) == "" {
		t.Errorf("it ended with %v", first.err)
	}
	select {
	case <-second.done:
		t.Errorf("the second ended with %v, too", second.err)
	default:
	}
	if w := r.workers(); len(w) != 1 || !w[0].Alive {
		t.Errorf("workers %+v, want the second", w)
	}
}

func (r *rig) workers() []fleetdb.Worker {
	r.Helper()
	all, err := r.db.Workers.List(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	return all
}

// A worker leaves in order: what it drove goes back to the queue and did not fail; another
// that has the same storage goes on with it, one that has not does not.
func TestWorkerThatLeavesFailsNothing(t *testing.T) {
	r := newRig(t, nil)
	vms := vmsOn(4, 1)
	m := newMover(t, vms...)
	held, letGo := m.hold()
	r.submit("wave")
	s := r.only(r.config(m, "s"), true, false)
	s.TTL = short
	r.start(s)
	first := r.start(r.only(r.config(m, "w1"), false, true))
	for range 4 {
		next(t, held)
	}
	first.end()
	for v := range r.each("wave") {
		if v.State == fleetdb.Failed || v.Attempts > 0 {
			t.Errorf("%s is %s after %d attempts", v.VM, v.State, v.Attempts)
		}
	}
	r.start(offering(r.only(r.config(m, "other"), false, true), 10, map[string]string{"/srv": "another-disk"}))
	r.start(r.only(r.config(m, "w2"), false, true)) // the same disk
	for range 4 {
		next(t, held)
	}
	close(letGo)
	r.waitEnded("wave")
	for v := range r.each("wave") {
		if v.Worker != "w2" {
			t.Errorf("%s was driven by %s", v.VM, v.Worker)
		}
	}
}

// A worker is dead. Whose images only it has wait for it and say so; what it never began, and
// what is on shared storage, others take over.
func TestWorkerThatDies(t *testing.T) {
	r := newRig(t, nil)
	vms := vmsOn(4, 1)
	vms[2].To = []string{"dir:/nfs/vm"}
	vms[3].To = []string{"dir:/nfs/vm"}
	m := newMover(t, vms...)
	storage := map[string]string{"dir:/srv/vm": "disk1", "dir:/nfs/vm": "shared"}
	held := make(chan string, 10)
	var letGo sync.Map
	m.move = func(ctx context.Context, vm fleetdb.VM, d Driver) error {
		d.Step("copy", "")
		if vm.VM != "vm-1" { // which never gets as far as writing
			if err := d.Storage([]string{storage[vm.To[0]]}); err != nil {
				return err
			}
		}
		held <- vm.VM
		if _, ok := letGo.Load("all"); ok {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	}
	r.submit("wave")
	s := r.only(r.config(m, "s"), true, false)
	s.TTL = short
	r.start(s)
	dying, kill := context.WithCancel(t.Context())
	first := r.only(offering(r.config(m, "w1"), 10, map[string]string{"/srv": "disk1", "/nfs": "shared"}), false, true)
	first.Sleep = func(ctx context.Context, d time.Duration) error { // once it is dead it never beats again
		select {
		case <-time.After(d):
			return nil
		case <-dying.Done():
			<-ctx.Done()
		case <-ctx.Done():
		}
		return ctx.Err()
	}
	first.TTL = kept
	first.Mover = killed{m, dying}
	r.start(first)
	for range 4 {
		next(t, held)
	}
	kill()
	letGo.Store("all", true)
	r.start(r.only(offering(r.config(m, "w2"), 10, map[string]string{"/srv": "disk2", "/nfs": "shared"}), false, true))
	r.waitFor("wave", fleetdb.Done, 3)
	r.waitFor("wave", fleetdb.Stranded, 1)
	v := r.vm("wave", "vm-2")
	if !strings.HasPrefix(v.WaitReason, "worker w1 has ended since ") || !strings.HasSuffix(v.WaitReason, "start it again") {
		t.Errorf("it waits for %q", v.WaitReason)
	}
	r.start(r.only(offering(r.config(m, "w1"), 10, map[string]string{"/srv": "disk1"}), false, true))
	r.waitEnded("wave")
	for v := range r.each("wave") {
		if want := map[bool]string{true: "w1", false: "w2"}[v.VM == "vm-2"]; v.Worker != want {
			t.Errorf("%s was driven by %s, want %s", v.VM, v.Worker, want)
		}
	}
}

// A worker that cannot renew its lease stops what it drives before the lease is over, and goes
// on when it can.
func TestWorkerThatIsCutOffStopsByItself(t *testing.T) {
	r := newRig(t, newClock())
	m := newMover(t, vmsOn(2, 1)...)
	held, letGo := m.hold()
	r.submit("wave")
	c := r.config(m, "w1")
	c.TTL = 10 * time.Second
	r.start(c)
	next(t, held)
	next(t, held)
	r.clock.add(c.TTL) // it stood still, or its clock jumped
	r.wait("it to go on with both", func() bool {
		r.clock.add(time.Second) // the scheduler waits a moment before it is one again
		return len(held) == 2
	})
	close(letGo)
	r.wait("the end", func() bool {
		r.clock.add(time.Second)
		return r.plan("wave").State.IsFinal()
	})
	for v := range r.each("wave") {
		if v.Attempts != 0 {
			t.Errorf("%s counts %d attempts", v.VM, v.Attempts)
		}
	}
}

// The clock of a machine is set while a plan runs: an hour forward, then two back. The
// database's is not.
func TestClockThatJumpsFailsNothing(t *testing.T) {
	r := newRig(t, nil)
	m := newMover(t, vmsOn(12, 2)...)
	m.caps = map[string]int64{"host:*/vms": 1}
	var wrong atomic.Int64 // by so much
	var before sync.Map
	m.move = func(ctx context.Context, vm fleetdb.VM, d Driver) error {
		_, again := before.LoadOrStore(vm.VM, true)
		switch {
		case vm.VM == "vm-3" && !again: // stopped, because nobody knows how long it stood still
			wrong.Store(int64(time.Hour))
			<-ctx.Done()
			return ctx.Err()
		case vm.VM == "vm-7" && !again: // goes on: its lease is renewed as before
			wrong.Store(int64(-time.Hour))
			began := r.workers()[0].Until
			r.wait("the lease to be renewed", func() bool { return r.workers()[0].Until.After(began.Add(short)) })
		}
		return m.transfer(ctx, vm, d)
	}
	r.submit("wave")
	c := r.config(m, "w1")
	c.TTL = kept
	c.Now = func() time.Time { return time.Now().Add(time.Duration(wrong.Load())) }
	r.start(c)
	r.waitEnded("wave")
	for v := range r.each("wave") {
		if v.State != fleetdb.Done || v.Attempts > 0 {
			t.Errorf("%s is %s after %d attempts that failed", v.VM, v.State, v.Attempts)
		}
	}
	if n := m.times(fleetdb.Key{Plan: "wave", VM: "vm-7"}); n != 1 {
		t.Errorf("vm-7 was begun %d times", n)
	}
}

// VMs are spread over the workers that can take them; one that comes later gets its part.
func TestWorkersShareTheWork(t *testing.T) {
	r := newRig(t, nil)
	m := newMover(t, vmsOn(30, 3)...)
	m.caps = nil
	held, letGo := m.hold()
	r.submit("wave")
	r.start(r.only(r.config(m, "s"), true, false))
	small := func(name string) {
		r.start(r.only(offering(r.config(m, name), 5, map[string]string{"/srv": "disk-dir:/srv/vm"}), false, true))
	}
	small("w1")
	for range 5 {
		next(t, held)
	}
	small("w2")
	small("w3")
	for range 10 {
		next(t, held)
	}
	per := map[string]int{}
	for v := range r.each("wave") {
		if v.Granted {
			per[v.Worker]++
		}
	}
	if per["w1"] != 5 || per["w2"] != 5 || per["w3"] != 5 {
		t.Errorf("transfers by worker: %v", per)
	}
	close(letGo)
	r.waitEnded("wave")
}

func TestDrainedWorkerIsGivenNothingMore(t *testing.T) {
	r := newRig(t, nil)
	m := newMover(t, vmsOn(6, 1)...)
	m.caps = map[string]int64{"host:*/vms": 1}
	held, letGo := m.hold()
	r.submit("wave")
	r.start(r.config(m, "w1"))
	next(t, held)
	if err := r.db.Workers.Drain(t.Context(), "w1", true); err != nil {
		t.Fatal(err)
	}
	r.start(r.config(m, "w2"))
	r.wait("the second worker", func() bool { return len(r.workers()) == 2 })
	close(letGo)
	r.waitEnded("wave")
	by := map[string]int{}
	for v := range r.each("wave") {
		by[v.Worker]++
	}
	if by["w1"] != 1 {
		t.Errorf("driven by %v", by)
	}
}
