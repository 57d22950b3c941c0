package admission

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fleet/login"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/sched"
)

// A fleet is a Controller with the rows that a fleet database would have.
type fleet struct {
	*Controller
	now  time.Time
	rows map[fleetdb.Key]fleetdb.VM
}

// newFleet returns a fleet with n queued VMs of plan "wave" on host esx1, and workers w1 and w2 with that number of
// slots.
func newFleet(n, slots int) *fleet {
	f := &fleet{now: time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC), rows: map[fleetdb.Key]fleetdb.VM{}}
	f.Controller = New(Options{
		Needs: func(v fleetdb.VM, _ fleetdb.TransferKind) ([]sched.Need, time.Duration) {
			return []sched.Need{{Resource: "host:" + v.Host + "/vms", Weight: 1}}, time.Minute
		},
		Now: func() time.Time { return f.now }, Log: slog.New(slog.DiscardHandler),
	})
	f.Start()
	for _, name := range []string{"w1", "w2"} {
		f.SetWorkers([]fleetdb.Worker{{Name: name, Offers: map[string]string{"/": "disk"}, VMs: slots, Alive: true}})
	}
	f.SetPlan(Plan{Name: "wave", Ready: true})
	for i := range n {
		f.setVM(fleetdb.VM{
			Key: fleetdb.Key{Plan: "wave", VM: fmt.Sprintf("vm-%d", i+1)}, Seq: int64(i + 1), State: fleetdb.Queued, Requested: fleetdb.First,
			Source: "vc1:443", Host: "esx1", To: []string{"dir:/srv"},
		})
	}
	return f
}

func (f *fleet) setVM(v fleetdb.VM) {
	v.Rev = f.rows[v.Key].Rev + 1
	f.rows[v.Key] = v
	f.SetVM(v)
}

// beginGranted records all grants and returns their rows.
func (f *fleet) beginGranted() (began []fleetdb.VM) {
	grants := f.Decide()
	for _, g := range grants {
		v := f.rows[g.Key]
		v.State, v.Requested, v.Granted, v.Worker, v.Since, v.Rev = fleetdb.Running, fleetdb.NoTransfer, true, g.Worker, f.now, v.Rev+1
		f.rows[g.Key] = v
		began = append(began, v)
	}
	f.Recorded(grants, began)
	return began
}

// failVM queues a VM again after a failure.
func (f *fleet) failVM(v fleetdb.VM, kind string) {
	v = f.rows[v.Key]
	v.State, v.Requested, v.Granted, v.Failure = fleetdb.Queued, fleetdb.First, false, &fleetdb.Failure{Kind: kind, Text: "no route"}
	f.setVM(v)
}

// firstWaitReason returns why the first waiting VM waits.
func (f *fleet) firstWaitReason() string {
	for _, w := range f.Snapshot().Waiting {
		return w.Reason
	}
	return ""
}

func TestHostIsPausedAfterConsecutiveFailures(t *testing.T) {
	f := newFleet(10, 100)
	f.SetLimit(fleetdb.Limit{Name: "host:*/vms", Units: failuresInARow})
	for _, v := range f.beginGranted() {
		f.failVM(v, "unreachable")
	}
	if n := len(f.beginGranted()); n > 0 {
		t.Fatalf("%d VMs begin on a host that rests", n)
	}
	if why := f.firstWaitReason(); !strings.HasPrefix(why, "host esx1 is paused") {
		t.Errorf("the wait reason of the others is %q", why)
	}
	var saved []byte
	if err := f.Hosts().Save(func(_ string, record []byte) error { saved = record; return nil }); err != nil || len(saved) == 0 {
		t.Fatalf("saved %q, %v", saved, err)
	}
	f.now = f.now.Add(firstRest)
	f.Tick()
	if n := len(f.beginGranted()); n != 1 {
		t.Fatalf("%d VMs try the host after its rest, want 1", n)
	}
	next := newFleet(10, 100) // the scheduler of the next term
	if err := next.Hosts().Restore("esx1", saved); err != nil {
		t.Fatal(err)
	}
	next.Tick()
	if n := len(next.beginGranted()); n > 0 {
		t.Errorf("%d VMs begin in the next term, want 0", n)
	}
	f.now = f.now.Add(trialTime)
	f.Tick()
	if n := len(f.beginGranted()); n != failuresInARow-1 {
		t.Errorf("%d VMs follow the trial, want %d", n, failuresInARow-1)
	}
}

func TestRefusedLoginClosesItsSource(t *testing.T) {
	f := newFleet(1, 1)
	refused := login.Refusal{Source: "vc1:443", Text: "wrong password"}
	if added := f.SetRefusals(map[string]login.Refusal{"vc1:443": refused}); len(added) != 1 {
		t.Errorf("new refusals: %v", added)
	}
	if n := len(f.beginGranted()); n > 0 || !strings.Contains(f.firstWaitReason(), "wrong password") {
		t.Errorf("%d VMs begin, and the wait reason of the others is %q", n, f.firstWaitReason())
	}
	f.SetRefusals(nil)
	if n := len(f.beginGranted()); n != 1 {
		t.Errorf("%d VMs begin after an operator resumed the plan, want 1", n)
	}
}

// VMs of a lost worker are queued unless only that worker has their images.
func TestVMsOfALostWorker(t *testing.T) {
	f := newFleet(4, 2)
	var images fleetdb.VM
	for _, v := range f.beginGranted() {
		if v.Worker == "w1" {
			images = v
			images.Storage = []string{"local disk of w1"}
		}
	}
	f.setVM(images)
	f.SetWorkers([]fleetdb.Worker{{Name: "w1", VMs: 2}})
	queue, strand := f.VMsOfEndedWorkers()
	if len(queue["w1"]) != 1 || !slices.Equal(strand["w1"], []fleetdb.Key{images.Key}) || len(queue)+len(strand) != 2 {
		t.Errorf("queued %v, stranded %v", queue, strand)
	}
}

// An undo needs a worker and no slot of a host; a worker undoes as many at a time as it has slots.
func TestUndoNeedsNoSlot(t *testing.T) {
	f := newFleet(10, 2)
	f.SetLimit(fleetdb.Limit{Name: "host:esx1/vms", Units: 0})
	if n := len(f.beginGranted()); n > 0 {
		t.Fatalf("%d VMs begin at a closed host", n)
	}
	f.SetPlan(Plan{Name: "wave", Ready: true, Order: fleetdb.Cancel})
	by := map[string]int{}
	for _, v := range f.beginGranted() {
		by[v.Worker]++
	}
	if by["w1"] != 2 || by["w2"] != 2 {
		t.Errorf("undos by worker: %v, want 2 each", by)
	}
}

// The slots of a grant that the database does not record are free for others, and the VM is granted again after a tick.
func TestUnrecordedGrantIsReleased(t *testing.T) {
	f := newFleet(2, 1)
	f.SetLimit(fleetdb.Limit{Name: "host:esx1/vms", Units: 1})
	grants := f.Decide()
	f.Recorded(grants, nil)
	if other := f.beginGranted(); len(grants) != 1 || len(other) != 1 || other[0].Key == grants[0].Key {
		t.Fatalf("granted %v, then %v", grants, other)
	}
	f.SetLimit(fleetdb.Limit{Name: "host:esx1/vms", Units: 2})
	f.Tick()
	if again := f.beginGranted(); len(again) != 1 || again[0].Key != grants[0].Key {
		t.Errorf("after a tick: granted %v", again)
	}
}
