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
	// shortTTL is the length of a lease whose end a test waits for.
	shortTTL = time.Second

	// renewedTTL is the length of a lease that a test keeps renewing. A process on a busy machine may not run for a
	// second.
	renewedTTL = 5 * time.Second
)

func (r *testFleet) withRoles(c Config, schedule, drive bool) Config {
	c.Schedule, c.Drive = schedule, drive
	return c
}

func withOffers(c Config, vms int, folders map[string]string) Config {
	c.Worker.VMs, c.Worker.Offers = vms, folders
	return c
}

// A worker that is started again under the same name continues its VMs at once, with a new epoch.
func TestRestartedWorkerContinuesItsVMs(t *testing.T) {
	r := newTestFleet(t, nil)
	m := newFakeMover(t, vmsOn(3, 1)...)
	held, release := m.holdTransfers()
	r.submitPlan("wave")
	r.startNode(r.withRoles(r.nodeConfig(m, "s"), true, false))
	dead, kill := context.WithCancel(t.Context())
	defer kill()
	w := r.nodeConfig(m, "w1")
	w.Schedule = false
	w.Mover = killableMover{m, dead}
	r.startNode(w) // fenced by the second w1
	for range 3 {
		receive(t, held)
	}
	kill()
	r.waitUntil("the first worker to stop", m.isIdle)
	r.startNode(r.withRoles(r.nodeConfig(m, "w1"), false, true))
	for range 3 {
		receive(t, held)
	}
	for v := range r.allVMs("wave") {
		if v.Epoch != 2 || v.State != fleetdb.Running || !v.Granted {
			t.Errorf("%s: epoch %d, %s, granted %v; want epoch 2, running and granted", v.VM, v.Epoch, v.State, v.Granted)
		}
	}
	close(release)
	r.waitEnded("wave")
}

// A killableMover is the Mover of a process that dies: its moves end without a report.
type killableMover struct {
	*fakeMover
	dead context.Context
}

func (k killableMover) Move(ctx context.Context, vm fleetdb.VM, d Driver) error {
	if k.dead.Err() != nil {
		k.t.Errorf("%s was started by a process that another one has replaced", vm.Key)
		return errCorrupt
	}
	both, end := context.WithCancel(ctx)
	defer end()
	context.AfterFunc(k.dead, end)
	err := k.fakeMover.Move(both, vm, killableDriver{d, k.dead})
	if k.dead.Err() != nil {
		<-ctx.Done() // no report until the worker is fenced
	}
	return err
}

// A killableDriver is the Driver of a process that dies: it returns no slot then.
type killableDriver struct {
	Driver
	dead context.Context
}

func (s killableDriver) RequestSlot(ctx context.Context, stage fleetdb.TransferKind, expected time.Duration) (func(), error) {
	giveBack, err := s.Driver.RequestSlot(ctx, stage, expected)
	return func() {
		if s.dead.Err() == nil {
			giveBack()
		}
	}, err
}

// isIdle reports whether no transfer runs.
func (m *fakeMover) isIdle() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range m.perHost {
		if n > 0 {
			return false
		}
	}
	return true
}

func TestNewestProcessReplacesWorkerOfSameName(t *testing.T) {
	r := newTestFleet(t, nil)
	m := newFakeMover(t)
	c := r.withRoles(r.nodeConfig(m, "w1"), false, true)
	first := r.startNode(c)
	r.waitUntil("the worker", func() bool { return len(r.workers()) == 1 })
	second := r.startNode(c)
	r.waitUntil("the first worker to end", func() bool {
		select {
		case <-first.done:
			return true
		default:
			return false
		}
	})
	if !fault.Is(first.err, fault.Conflict) || fault.HintOf(first.err) == "" {
		t.Errorf("the first worker ended with %v, want a conflict with a hint", first.err)
	}
	select {
	case <-second.done:
		t.Errorf("the second worker ended with %v", second.err)
	default:
	}
	if w := r.workers(); len(w) != 1 || !w[0].Alive {
		t.Errorf("workers are %+v, want only the second", w)
	}
}

func (r *testFleet) workers() []fleetdb.Worker {
	r.Helper()
	all, err := r.db.Workers.List(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	return all
}

// A worker is stopped. Its VMs return to the queue and do not fail. A worker with the same storage continues them,
// and one with another storage does not.
func TestStoppedWorkerReturnsVMsToQueue(t *testing.T) {
	r := newTestFleet(t, nil)
	vms := vmsOn(4, 1)
	m := newFakeMover(t, vms...)
	held, release := m.holdTransfers()
	r.submitPlan("wave")
	s := r.withRoles(r.nodeConfig(m, "s"), true, false)
	s.TTL = shortTTL
	r.startNode(s)
	first := r.startNode(r.withRoles(r.nodeConfig(m, "w1"), false, true))
	for range 4 {
		receive(t, held)
	}
	first.end()
	for v := range r.allVMs("wave") {
		if v.State == fleetdb.Failed || v.Attempts > 0 {
			t.Errorf("%s is %s after %d attempts", v.VM, v.State, v.Attempts)
		}
	}
	r.startNode(withOffers(r.withRoles(r.nodeConfig(m, "other"), false, true), 10, map[string]string{"/srv": "another-disk"}))
	r.startNode(r.withRoles(r.nodeConfig(m, "w2"), false, true)) // the same disk
	for range 4 {
		receive(t, held)
	}
	close(release)
	r.waitEnded("wave")
	for v := range r.allVMs("wave") {
		if v.Worker != "w2" {
			t.Errorf("%s was driven by %s, want w2", v.VM, v.Worker)
		}
	}
}

// A worker dies. VMs whose images are on its local storage wait for it, with that reason. Another worker takes over
// the VMs on shared storage and those without images.
func TestVMsOfDeadWorkerAreTakenOver(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	r := newTestFleet(t, nil)
	vms := vmsOn(4, 1)
	vms[2].To = []string{"dir:/nfs/vm"}
	vms[3].To = []string{"dir:/nfs/vm"}
	m := newFakeMover(t, vms...)
	storage := map[string]string{"dir:/srv/vm": "disk1", "dir:/nfs/vm": "shared"}
	held := make(chan string, 10)
	var released sync.Map
	m.move = func(ctx context.Context, vm fleetdb.VM, d Driver) error {
		d.Step("copy", "")
		if vm.VM != "vm-1" { // vm-1 writes no image
			if err := d.Storage([]string{storage[vm.To[0]]}); err != nil {
				return err
			}
		}
		held <- vm.VM
		if _, ok := released.Load("all"); ok {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	}
	r.submitPlan("wave")
	s := r.withRoles(r.nodeConfig(m, "s"), true, false)
	s.TTL = shortTTL
	r.startNode(s)
	dying, kill := context.WithCancel(t.Context())
	first := r.withRoles(withOffers(r.nodeConfig(m, "w1"), 10, map[string]string{"/srv": "disk1", "/nfs": "shared"}), false, true)
	first.Sleep = func(ctx context.Context, d time.Duration) error { // a dead worker does not renew its lease
		select {
		case <-time.After(d):
			return nil
		case <-dying.Done():
			<-ctx.Done()
		case <-ctx.Done():
		}
		return ctx.Err()
	}
	first.TTL = renewedTTL
	first.Mover = killableMover{m, dying}
	r.startNode(first)
	for range 4 {
		receive(t, held)
	}
	kill()
	released.Store("all", true)
	r.startNode(r.withRoles(withOffers(r.nodeConfig(m, "w2"), 10, map[string]string{"/srv": "disk2", "/nfs": "shared"}), false, true))
	r.waitForVMs("wave", fleetdb.Done, 3)
	r.waitForVMs("wave", fleetdb.Stranded, 1)
	v := r.getVM("wave", "vm-2")
	if !strings.HasPrefix(v.WaitReason, "worker w1 has ended since ") || !strings.HasSuffix(v.WaitReason, "start it again") {
		t.Errorf("the wait reason of vm-2 is %q", v.WaitReason)
	}
	r.startNode(r.withRoles(withOffers(r.nodeConfig(m, "w1"), 10, map[string]string{"/srv": "disk1"}), false, true))
	r.waitEnded("wave")
	for v := range r.allVMs("wave") {
		if want := map[bool]string{true: "w1", false: "w2"}[v.VM == "vm-2"]; v.Worker != want {
			t.Errorf("%s was driven by %s, want %s", v.VM, v.Worker, want)
		}
	}
}

// A worker that has not renewed its lease in time stops its VMs. It continues them when it can renew the lease again.
func TestDisconnectedWorkerStopsItsVMs(t *testing.T) {
	r := newTestFleet(t, newFakeClock())
	m := newFakeMover(t, vmsOn(2, 1)...)
	held, release := m.holdTransfers()
	r.submitPlan("wave")
	c := r.nodeConfig(m, "w1")
	c.TTL = 10 * time.Second
	r.startNode(c)
	receive(t, held)
	receive(t, held)
	r.clock.advance(c.TTL) // the process was suspended, or its clock jumped
	r.waitUntil("the worker to continue both VMs", func() bool {
		r.clock.advance(time.Second) // the node requests the scheduler's lease again after a pause
		return len(held) >= 2        // more if a lease was lost again, because each poll takes a second of the clock
	})
	close(release)
	r.waitUntil("the end of the plan", func() bool {
		r.clock.advance(time.Second)
		return r.getPlan("wave").State.IsFinal()
	})
	for v := range r.allVMs("wave") {
		if v.Attempts != 0 {
			t.Errorf("%s has %d failed attempts, want 0", v.VM, v.Attempts)
		}
	}
}

// The clock of a machine is set an hour forward, and then two hours back, while a plan runs. The clock of the database
// is not set. No VM fails.
func TestClockJumpFailsNoVM(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	r := newTestFleet(t, nil)
	m := newFakeMover(t, vmsOn(12, 2)...)
	m.caps = map[string]int64{"host:*/vms": 1}
	var wrong atomic.Int64 // error of the clock
	var before sync.Map
	m.move = func(ctx context.Context, vm fleetdb.VM, d Driver) error {
		_, again := before.LoadOrStore(vm.VM, true)
		switch {
		case vm.VM == "vm-3" && !again: // stopped, because the machine may have been suspended
			wrong.Store(int64(time.Hour))
			<-ctx.Done()
			return ctx.Err()
		case vm.VM == "vm-7" && !again: // not stopped: its lease is renewed as before
			wrong.Store(int64(-time.Hour))
			began := r.workers()[0].Until
			r.waitUntil("the lease to be renewed", func() bool { return r.workers()[0].Until.After(began.Add(shortTTL)) })
		}
		return m.transferCold(ctx, vm, d)
	}
	r.submitPlan("wave")
	c := r.nodeConfig(m, "w1")
	c.TTL = renewedTTL
	c.Now = func() time.Time { return time.Now().Add(time.Duration(wrong.Load())) }
	r.startNode(c)
	r.waitEnded("wave")
	for v := range r.allVMs("wave") {
		if v.State != fleetdb.Done || v.Attempts > 0 {
			t.Errorf("%s is %s after %d failed attempts, want %s after 0", v.VM, v.State, v.Attempts, fleetdb.Done)
		}
	}
	if n := m.moveCount(fleetdb.Key{Plan: "wave", VM: "vm-7"}); n != 1 {
		t.Errorf("vm-7 was started %d times, want 1", n)
	}
}

// VMs are spread over the workers that can move them, including workers that start later.
func TestWorkersShareTheWork(t *testing.T) {
	r := newTestFleet(t, nil)
	m := newFakeMover(t, vmsOn(30, 3)...)
	m.caps = nil
	held, release := m.holdTransfers()
	r.submitPlan("wave")
	r.startNode(r.withRoles(r.nodeConfig(m, "s"), true, false))
	small := func(name string) {
		r.startNode(r.withRoles(withOffers(r.nodeConfig(m, name), 5, map[string]string{"/srv": "disk-dir:/srv/vm"}), false, true))
	}
	small("w1")
	for range 5 {
		receive(t, held)
	}
	small("w2")
	small("w3")
	for range 10 {
		receive(t, held)
	}
	per := map[string]int{}
	for v := range r.allVMs("wave") {
		if v.Granted {
			per[v.Worker]++
		}
	}
	if per["w1"] != 5 || per["w2"] != 5 || per["w3"] != 5 {
		t.Errorf("transfers by worker: %v, want 5 each", per)
	}
	close(release)
	r.waitEnded("wave")
}

func TestDrainedWorkerGetsNoMoreVMs(t *testing.T) {
	r := newTestFleet(t, nil)
	m := newFakeMover(t, vmsOn(6, 1)...)
	m.caps = map[string]int64{"host:*/vms": 1}
	held, release := m.holdTransfers()
	r.submitPlan("wave")
	r.startNode(r.nodeConfig(m, "w1"))
	receive(t, held)
	if err := r.db.Workers.Drain(t.Context(), "w1", true); err != nil {
		t.Fatal(err)
	}
	r.startNode(r.nodeConfig(m, "w2"))
	r.waitUntil("the second worker", func() bool { return len(r.workers()) == 2 })
	close(release)
	r.waitEnded("wave")
	by := map[string]int{}
	for v := range r.allVMs("wave") {
		by[v.Worker]++
	}
	if by["w1"] != 1 {
		t.Errorf("VMs by worker: %v, want 1 of w1", by)
	}
}
