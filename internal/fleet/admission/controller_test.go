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

// newFleet returns a fleet with n queued VMs of plan "wave" on host esx1, and workers w1 and w2 with so many slots.
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
		f.set(fleetdb.VM{
			Key: fleetdb.Key{Plan: "wave", VM: fmt.Sprintf("vm-%d", i+1)}, Seq: int64(i + 1), State: fleetdb.Queued, Requested: fleetdb.First,
			Source: "vc1:443", Host: "esx1", To: []string{"dir:/srv"},
		})
	}
	return f
}

func (f *fleet) set(v fleetdb.VM) {
	v.Rev = f.rows[v.Key].Rev + 1
	f.rows[v.Key] = v
	f.SetVM(v)
}

// begin records all grants and returns their rows.
func (f *fleet) begin() (began []fleetdb.VM) {
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

// fail queues a VM again after a failure.
func (f *fleet) fail(v fleetdb.VM, kind string) {
	v = f.rows[v.Key]
	v.State, v.Requested, v.Granted, v.Failure = fleetdb.Queued, fleetdb.First, false, &fleetdb.Failure{Kind: kind, Text: "no route"}
	f.set(v)
}

// reason returns why VMs of the plan wait, the reason of the first one.
func (f *fleet) reason() string {
	for _, w := range f.Snapshot().Waiting {
		return w.Reason
	}
	return ""
}

func TestHostRestsAfterFailuresInARow(t *testing.T) {
	f := newFleet(10, 100)
	f.SetLimit(fleetdb.Limit{Name: "host:*/vms", Units: failuresInARow})
	for _, v := range f.begin() {
		f.fail(v, "unreachable")
	}
	if n := len(f.begin()); n > 0 {
		t.Fatalf("%d VMs begin on a host that rests", n)
	}
	if why := f.reason(); !strings.HasPrefix(why, "host esx1 is paused") {
		t.Errorf("the others wait for %q", why)
	}
	var saved []byte
	if err := f.Hosts().Save(func(_ string, record []byte) error { saved = record; return nil }); err != nil || len(saved) == 0 {
		t.Fatalf("saved %q, %v", saved, err)
	}
	f.now = f.now.Add(firstRest)
	f.Tick()
	if n := len(f.begin()); n != 1 {
		t.Fatalf("%d VMs try the host after its rest", n)
	}
	next := newFleet(10, 100) // the scheduler of the next term
	if err := next.Hosts().Restore("esx1", saved); err != nil {
		t.Fatal(err)
	}
	next.Tick()
	if n := len(next.begin()); n > 0 {
		t.Errorf("%d VMs begin in the next term", n)
	}
	f.now = f.now.Add(trialTime)
	f.Tick()
	if n := len(f.begin()); n != failuresInARow-1 {
		t.Errorf("%d VMs follow the one that tried", n)
	}
}

func TestRefusedLoginClosesItsSource(t *testing.T) {
	f := newFleet(1, 1)
	refused := login.Refusal{Source: "vc1:443", Text: "wrong password"}
	if added := f.SetRefusals(map[string]login.Refusal{"vc1:443": refused}); len(added) != 1 {
		t.Errorf("new refusals: %v", added)
	}
	if n := len(f.begin()); n > 0 || !strings.Contains(f.reason(), "wrong password") {
		t.Errorf("%d VMs begin; the others wait for %q", n, f.reason())
	}
	f.SetRefusals(nil)
	if n := len(f.begin()); n != 1 {
		t.Errorf("%d VMs begin after an operator resumed the plan", n)
	}
}

// VMs of a lost worker are queued unless only that worker has their images.
func TestVMsOfALostWorker(t *testing.T) {
	f := newFleet(4, 2)
	var images fleetdb.VM
	for _, v := range f.begin() {
		if v.Worker == "w1" {
			images = v
			images.Storage = []string{"local disk of w1"}
		}
	}
	f.set(images)
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
	if n := len(f.begin()); n > 0 {
		t.Fatalf("%d VMs begin at a closed host", n)
	}
	f.SetPlan(Plan{Name: "wave", Ready: true, Order: fleetdb.Cancel})
	by := map[string]int{}
	for _, v := range f.begin() {
		by[v.Worker]++
	}
	if by["w1"] != 2 || by["w2"] != 2 {
		t.Errorf("undone by %v", by)
	}
}

// The slots of a grant that the database does not record are free for others, and the VM is granted again after a tick.
func TestUnrecordedGrantIsGivenBack(t *testing.T) {
	f := newFleet(2, 1)
	f.SetLimit(fleetdb.Limit{Name: "host:esx1/vms", Units: 1})
	grants := f.Decide()
	f.Recorded(grants, nil)
	if other := f.begin(); len(grants) != 1 || len(other) != 1 || other[0].Key == grants[0].Key {
		t.Fatalf("granted %v, then %v", grants, other)
	}
	f.SetLimit(fleetdb.Limit{Name: "host:esx1/vms", Units: 2})
	f.Tick()
	if again := f.begin(); len(again) != 1 || again[0].Key != grants[0].Key {
		t.Errorf("after a tick: granted %v", again)
	}
}
