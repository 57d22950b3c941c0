package sched

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

var epoch = time.Date(2026, 11, 20, 22, 0, 0, 0, time.UTC)

// An oracle implements the scheduler's rules in a simple and slow way. It passes all calls to a scheduler, and fails
// the test if a decision of the scheduler breaks a rule.
type oracle struct {
	t          *testing.T
	s          *Scheduler
	now        time.Time
	patience   time.Duration
	capacity   map[string]int64
	paused     map[string]bool // runs and plans, by "run x" and "plan x"
	waiting    map[string]Request
	asked      map[string]time.Time // time of the first request of each waiting run
	holding    map[string]Request
	priorities bool // check the priorities at every grant
}

func newOracle(t *testing.T, patience time.Duration) *oracle {
	return &oracle{
		t: t, s: New(Options{ReserveAfter: patience}), now: epoch, patience: patience, capacity: map[string]int64{},
		paused: map[string]bool{}, waiting: map[string]Request{}, asked: map[string]time.Time{}, holding: map[string]Request{},
	}
}

func (o *oracle) setCapacity(name string, units int64) {
	o.capacity[name] = units
	if err := o.s.SetCapacity(name, units); err != nil {
		o.t.Fatal(err)
	}
}

func (o *oracle) submit(q Request) {
	held, holds := o.holding[q.Run]
	err := o.s.Submit(o.now, q)
	if holds {
		same := held.Plan == q.Plan && slices.Equal(sortNeeds(held.Needs), sortNeeds(q.Needs))
		if (err == nil) != same {
			o.t.Fatalf("submit %+v while %+v is held: %v", q, held, err)
		}
		return
	}
	if err != nil {
		o.t.Fatal(err)
	}
	if _, again := o.waiting[q.Run]; !again {
		o.asked[q.Run] = o.now
	}
	o.waiting[q.Run] = q
}

func (o *oracle) release(run string) {
	_, waits := o.waiting[run]
	_, holds := o.holding[run]
	if got := o.s.Release(run); got != (waits || holds) {
		o.t.Fatalf("Release of %s: got %v, want %v", run, got, !got)
	}
	delete(o.waiting, run)
	delete(o.holding, run)
}

func (o *oracle) setPaused(kind, name string, on bool) {
	calls := map[string][2]func(string){
		"run ":  {o.s.ResumeRun, o.s.PauseRun},
		"plan ": {o.s.ResumePlan, o.s.PausePlan},
	}
	o.paused[kind+name] = on
	if on {
		calls[kind][1](name)
	} else {
		calls[kind][0](name)
	}
}

// decide calls Decide, checks every grant in turn, and then checks the state after all grants.
func (o *oracle) decide() []Grant {
	grants := o.s.Decide(o.now)
	for _, g := range grants {
		o.checkGrant(g)
		o.holding[g.Run] = o.waiting[g.Run]
		delete(o.waiting, g.Run)
	}
	o.checkState()
	if more := o.s.Decide(o.now); len(more) > 0 {
		o.t.Fatalf("Decide granted %v without a change", more)
	}
	return grants
}

func (o *oracle) checkGrant(g Grant) {
	q, ok := o.waiting[g.Run]
	if !ok || !slices.Equal(sortNeeds(q.Needs), g.Needs) || g.Plan != q.Plan {
		o.t.Fatalf("granted %+v, but the request is %+v (waiting: %v)", g, q, ok)
	}
	if !o.eligible(q) || !o.fits(q) {
		o.t.Fatalf("granted %+v, which is not eligible or does not fit", q)
	}
	for _, other := range o.waiting {
		if o.priorities && rankOf(other) > rankOf(q) && o.eligible(other) && o.fits(other) {
			o.t.Fatalf("granted %+v before %+v", q, other)
		}
	}
}

func rankOf(q Request) int64 { return (&run{req: q}).rank() }

func (o *oracle) eligible(q Request) bool {
	open := len(q.Windows) == 0
	for _, w := range q.Windows {
		open = open || (w.From.IsZero() || !o.now.Before(w.From)) && (w.To.IsZero() || o.now.Before(w.To))
	}
	return open && !o.paused["run "+q.Run] && !o.paused["plan "+q.Plan]
}

// usedUnits returns the units of a resource that runs hold.
func (o *oracle) usedUnits(resource string) (used int64) {
	for _, q := range o.holding {
		used += weightIn(q, resource)
	}
	return used
}

func weightIn(q Request, resource string) (weight int64) {
	for _, n := range q.Needs {
		if n.Resource == resource {
			weight += n.Weight
		}
	}
	return weight
}

func (o *oracle) fits(q Request) bool {
	for _, n := range q.Needs {
		used, capacity := o.usedUnits(n.Resource), o.capacity[n.Resource]
		if capacity == 0 || used > 0 && n.Weight > capacity-used {
			return false
		}
	}
	return true
}

// checkState fails the test if a run waits although it fits, unless the units that it needs are reserved for a run that
// has waited for longer than the patience.
func (o *oracle) checkState() {
	reserved := map[string]string{} // run by resource
	for _, r := range o.s.Snapshot().Resources {
		if r.Used != o.usedUnits(r.Name) {
			o.t.Fatalf("%s: %d units in use, want %d", r.Name, r.Used, o.usedUnits(r.Name))
		}
		if r.ReservedFor != "" {
			reserved[r.Name] = r.ReservedFor
			o.checkReservation(r)
		}
	}
	for _, q := range o.waiting {
		if o.eligible(q) && o.fits(q) && !o.mustYield(q, reserved) {
			o.t.Fatalf("%+v waits although it fits\nreserved: %v\nholding: %+v", q, reserved, o.holding)
		}
	}
}

func (o *oracle) checkReservation(r ResourceState) {
	q, ok := o.waiting[r.ReservedFor]
	if !ok || !o.eligible(q) || weightIn(q, r.Name) == 0 || o.now.Sub(o.asked[q.Run]) < o.patience {
		o.t.Fatalf("%s is reserved for %s at %v: %+v of %v", r.Name, r.ReservedFor, o.now, q, o.asked[q.Run])
	}
}

// mustYield reports whether q fits only into units that are reserved for a run of its rank or a higher one.
func (o *oracle) mustYield(q Request, reserved map[string]string) bool {
	for _, n := range q.Needs {
		y, ok := o.waiting[reserved[n.Resource]]
		if !ok || y.Run == q.Run || rankOf(y) < rankOf(q) {
			continue
		}
		capacity := o.capacity[n.Resource]
		if n.Weight > capacity-o.usedUnits(n.Resource)-min(capacity, weightIn(y, n.Resource)) {
			return true
		}
	}
	return false
}

// drainAll removes all pauses, closed resources and windows, and then decides until no run waits.
func (o *oracle) drainAll() {
	for name, on := range o.paused {
		if on {
			kind, rest, _ := strings.Cut(name, " ")
			o.setPaused(kind+" ", rest, false)
		}
	}
	for name, units := range o.capacity {
		o.setCapacity(name, max(1, units))
	}
	for _, name := range sortedKeys(o.waiting) {
		if q := o.waiting[name]; len(q.Windows) > 0 {
			q.Windows = nil
			o.submit(q)
		}
	}
	for range 10 * (len(o.waiting) + len(o.holding) + 1) {
		o.decide()
		if len(o.holding) == 0 {
			break
		}
		o.now = o.now.Add(time.Minute)
		o.release(sortedKeys(o.holding)[0])
	}
	if len(o.waiting) > 0 {
		o.t.Fatalf("never granted: %+v", o.waiting)
	}
	o.checkEmpty()
}

// checkEmpty fails the test if the scheduler still has data of released runs.
func (o *oracle) checkEmpty() {
	s := o.s
	if len(s.registry.runs)+len(s.queue.fresh) > 0 {
		o.t.Fatalf("%d runs and %d fresh runs are left", len(s.registry.runs), len(s.queue.fresh))
	}
	for name, r := range s.registry.resources {
		if len(r.holders)+len(r.uses)+len(r.lanes)+len(r.byKey)+r.waiting != 0 || r.used != 0 || r.backlog != 0 || r.reservedFor != nil {
			o.t.Fatalf("data of %s is left: %+v", name, r)
		}
	}
}

func sortedKeys[V any](m map[string]V) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// dice are bytes that determine the next operations. All rolls are 0 when no bytes are left.
type dice []byte

func (d *dice) roll(n int) int {
	if len(*d) == 0 {
		return 0
	}
	v := int((*d)[0])
	*d = (*d)[1:]
	return v % n
}

var oracleResources = []string{"host:a/vms", "host:a/disks", "host:b/vms", "host:b/disks", "datastore:x", "vcenter:v"}

func (d *dice) randomRequest() Request {
	q := Request{
		Run: fmt.Sprint("r", d.roll(24)), Plan: fmt.Sprint("p", d.roll(4)), Priority: d.roll(3) - 1,
		Kind: TransferKind(d.roll(8)).orFirst(), Expected: time.Duration(d.roll(90)) * time.Minute,
	}
	mask := 1 + d.roll(1<<len(oracleResources)-1)
	for i, name := range oracleResources {
		if mask>>i&1 == 1 {
			q.Needs = append(q.Needs, Need{name, int64(1 + d.roll(7))})
		}
	}
	if d.roll(6) == 0 {
		from := epoch.Add(time.Duration(d.roll(50)) * time.Minute)
		q.Windows = []Window{{from, from.Add(time.Duration(1+d.roll(30)) * time.Minute)}}
	}
	return q
}

func (s TransferKind) orFirst() TransferKind {
	if s >= transferKinds {
		return First
	}
	return s
}

// runOperations runs the operations that the dice determine.
func (o *oracle) runOperations(d dice) {
	for _, name := range oracleResources {
		o.setCapacity(name, int64(1+d.roll(9)))
	}
	for len(d) > 0 {
		o.runOperation(&d)
		if d.roll(3) > 0 {
			o.decide()
		}
	}
	o.drainAll()
}

func (o *oracle) runOperation(d *dice) {
	switch d.roll(12) {
	case 0, 1, 2, 3, 4:
		o.submit(d.randomRequest())
	case 5, 6, 7:
		if held := sortedKeys(o.holding); len(held) > 0 {
			o.release(held[d.roll(len(held))])
		}
	case 8:
		o.release(fmt.Sprint("r", d.roll(24)))
	case 9:
		o.now = o.now.Add(time.Duration(d.roll(12)) * time.Minute)
	case 10:
		o.setCapacity(oracleResources[d.roll(len(oracleResources))], int64(d.roll(9)))
	case 11:
		subject := [][2]string{{"run ", fmt.Sprint("r", d.roll(24))}, {"plan ", fmt.Sprint("p", d.roll(4))}}[d.roll(2)]
		o.setPaused(subject[0], subject[1], d.roll(2) == 0)
	}
}

// noReservation is a patience that is longer than any test.
const noReservation = 1000 * time.Hour

func FuzzOperations(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(randomBytes(seed, 400), seed%2 == 0)
	}
	f.Fuzz(func(t *testing.T, data []byte, patient bool) { runAgainstOracle(t, data, patient) })
}

func runAgainstOracle(t *testing.T, data []byte, patient bool) {
	patience := 3 * time.Minute
	if patient {
		patience = noReservation
	}
	o := newOracle(t, patience)
	o.priorities = patient
	o.runOperations(data)
}

func TestOperationsAgainstAnOracle(t *testing.T) {
	for seed := range uint64(1500) {
		runAgainstOracle(t, randomBytes(seed, 600), seed%2 == 0)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func randomBytes(seed uint64, n int) []byte {
	rng := rand.New(rand.NewPCG(seed, 7))
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	return data
}
