package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleet/admission"
	"github.com/decamp/decamp/internal/fleet/login"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/sched"
)

// waitTimeout is the longest wait of a test. It is long because the machine may be busy.
const waitTimeout = 2 * time.Minute

// longTTL is the length of a lease that does not expire during a test.
const longTTL = 1000 * time.Hour

// A fakeMover is a Mover that moves no data and records its calls.
type fakeMover struct {
	t testing.TB

	// Functions that replace the default behavior if they are set.
	admit func() error

	list     func(ctx context.Context, p fleetdb.Plan, found func([]fleetdb.VM) error) error
	move     func(ctx context.Context, vm fleetdb.VM, d Driver) error
	undo     func(ctx context.Context, vm fleetdb.VM) error
	hook     func(ctx context.Context, p fleetdb.Plan, when string) error
	rehearse func(ask fleetdb.Rehearsal) error
	caps     map[string]int64

	mu         sync.Mutex
	vms        []fleetdb.VM
	driving    map[fleetdb.Key]int // running calls of Move
	perHost    map[string]int      // running transfers
	maxPerHost map[string]int      // maximum of perHost
	moves      map[fleetdb.Key]int // calls of Move
	commands   []fleetdb.Command
	rehearsals []string // IDs of the requested rehearsals
	takenBack  []string // IDs of the rehearsals that were taken back
	hooks      []string
	undone     map[fleetdb.Key]int
}

func newFakeMover(t testing.TB, vms ...fleetdb.VM) *fakeMover {
	return &fakeMover{
		t: t, vms: vms, caps: map[string]int64{"host:*/vms": 20},
		driving: map[fleetdb.Key]int{}, perHost: map[string]int{}, maxPerHost: map[string]int{}, moves: map[fleetdb.Key]int{}, undone: map[fleetdb.Key]int{},
	}
}

func (m *fakeMover) Admit(context.Context, fleetdb.Plan) error {
	if m.admit != nil {
		return m.admit()
	}
	return nil
}

func (m *fakeMover) List(ctx context.Context, p fleetdb.Plan, found func([]fleetdb.VM) error) error {
	if m.list != nil {
		return m.list(ctx, p, found)
	}
	return found(append([]fleetdb.VM(nil), m.vms...))
}

func (m *fakeMover) Capacities(context.Context, fleetdb.Plan) (map[string]int64, error) {
	return m.caps, nil
}

func (m *fakeMover) Needs(vm fleetdb.VM, _ fleetdb.TransferKind) ([]sched.Need, time.Duration) {
	return []sched.Need{{Resource: "host:" + vm.Host + "/vms", Weight: 1}}, time.Minute
}

func (m *fakeMover) Move(ctx context.Context, vm fleetdb.VM, d Driver) error {
	m.beginMove(vm)
	defer m.endMove(vm)
	if m.move != nil {
		return m.move(ctx, vm, d)
	}
	return m.transferCold(ctx, vm, d)
}

func (m *fakeMover) beginMove(vm fleetdb.VM) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.moves[vm.Key]++
	if m.driving[vm.Key]++; m.driving[vm.Key] > 1 {
		m.t.Errorf("%s is driven by two calls of Move", vm.Key)
	}
}

func (m *fakeMover) endMove(vm fleetdb.VM) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.driving[vm.Key]--
}

// transferCold moves a cold VM without an error.
func (m *fakeMover) transferCold(ctx context.Context, vm fleetdb.VM, d Driver) error {
	if err := d.Storage([]string{"disk-" + vm.To[0]}); err != nil {
		return err
	}
	d.Step("copy", "")
	giveBack, err := d.RequestSlot(ctx, fleetdb.First, time.Minute)
	if err != nil {
		return err
	}
	defer giveBack()
	m.addTransfers(vm.Host, 1)
	defer m.addTransfers(vm.Host, -1)
	d.Progress(fleetdb.Progress{Total: vm.Bytes, Done: vm.Bytes})
	return ctx.Err()
}

func (m *fakeMover) addTransfers(host string, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.perHost[host] += n
	m.maxPerHost[host] = max(m.maxPerHost[host], m.perHost[host])
}

func (m *fakeMover) SendCommand(_ fleetdb.VM, o fleetdb.Command) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.commands = append(m.commands, o)
	return nil
}

func (m *fakeMover) Rehearse(_ fleetdb.VM, ask fleetdb.Rehearsal) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rehearsals = append(m.rehearsals, ask.ID)
	if m.rehearse != nil {
		return m.rehearse(ask)
	}
	return nil
}

func (m *fakeMover) TakeBack(_ fleetdb.VM, rehearsal string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.takenBack = append(m.takenBack, rehearsal)
	return nil
}

func (m *fakeMover) Undo(ctx context.Context, vm fleetdb.VM) error {
	m.mu.Lock()
	m.undone[vm.Key]++
	if m.driving[vm.Key] > 0 {
		m.t.Errorf("%s is undone while it is moved", vm.Key)
	}
	m.mu.Unlock()
	if m.undo != nil {
		return m.undo(ctx, vm)
	}
	return nil
}

func (m *fakeMover) Hook(ctx context.Context, p fleetdb.Plan, when string) error {
	m.mu.Lock()
	m.hooks = append(m.hooks, when)
	m.mu.Unlock()
	if m.hook != nil {
		return m.hook(ctx, p, when)
	}
	return nil
}

func (m *fakeMover) moveCount(key fleetdb.Key) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.moves[key]
}

// tryLogin calls f once the limiter permits a login.
func tryLogin(ctx context.Context, l *login.Limiter, f func() error) error {
	done, _, err := l.Admit(ctx)
	if err != nil {
		return err
	}
	err = f()
	done(err)
	return err
}

// vmsOn returns n VMs, spread over the given number of hosts.
func vmsOn(n, hosts int) []fleetdb.VM {
	vms := make([]fleetdb.VM, n)
	for i := range vms {
		vms[i] = fleetdb.VM{
			Key: fleetdb.Key{VM: fmt.Sprintf("vm-%d", i+1)}, Name: fmt.Sprintf("web%d", i+1), Source: "vc1:443", Host: fmt.Sprintf("esx%d", i%hosts+1),
			To: []string{"dir:/srv/vm"}, Disks: 1, Bytes: 1 << 30, Spec: json.RawMessage(`{}`),
		}
	}
	return vms
}

// planText returns the text of a valid plan for the source of vmsOn.
func planText(name string) []byte {
	return fmt.Appendf(nil, "version: 1\nname: %s\nsource:\n  url: vcenter://ops@vc1\ndefaults:\n  to: [dir:/srv/vm]\nselect: name ~ \"web*\"\n", name)
}

// A fakeClock is a clock that a test sets.
type fakeClock struct {
	mu    sync.Mutex
	now   time.Time
	moved chan struct{}
}

func newFakeClock() *fakeClock {
	return &fakeClock{now: time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC), moved: make(chan struct{})}
}

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) Sleep(ctx context.Context, d time.Duration) error {
	for until := c.Now().Add(d); ; {
		c.mu.Lock()
		now, moved := c.now, c.moved
		c.mu.Unlock()
		if !now.Before(until) {
			return ctx.Err()
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *fakeClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	close(c.moved)
	c.moved = make(chan struct{})
}

// A testFleet is a fleet database and the nodes that use it.
type testFleet struct {
	testing.TB
	url   string
	clock *fakeClock // clock of the nodes and the database; nil for the real time
	db    *fleetdb.Database
	ctl   Control
}

func newTestFleet(t testing.TB, c *fakeClock) *testFleet {
	t.Helper()
	r := &testFleet{TB: t, clock: c, url: "sqlite:" + filepath.Join(t.TempDir(), "fleet.db")}
	r.db = r.openDatabase()
	r.ctl = Control{r.db}
	return r
}

func (r *testFleet) openDatabase() *fleetdb.Database {
	r.Helper()
	cfg := fleetdb.Config{URL: r.url}
	if r.clock != nil {
		cfg.Now = r.clock.Now
	}
	db, err := fleetdb.Open(r.Context(), cfg)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { db.Close() })
	return db
}

// A node is a running Node that a test can end.
type node struct {
	*Node
	fleet *testFleet
	stop  context.CancelFunc
	done  chan struct{}
	err   error
}

func (r *testFleet) nodeConfig(m Mover, name string) Config {
	c := Config{
		Database: r.db, Mover: m, Schedule: true, Drive: true, TTL: longTTL,
		Worker: fleetdb.Worker{Name: name, Offers: map[string]string{"/srv": "disk-dir:/srv/vm"}, VMs: 1000},
	}
	if testing.Verbose() {
		c.Log = slog.New(slog.NewTextHandler(r.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	if r.clock != nil {
		c.Now, c.Sleep = r.clock.Now, r.clock.Sleep
	}
	return c
}

// startNode runs a node until the test ends, or until the test ends the node.
func (r *testFleet) startNode(c Config) *node {
	ctx, stop := context.WithCancel(context.WithoutCancel(r.Context()))
	n := &node{Node: New(c), fleet: r, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(n.done)
		n.err = n.Run(ctx)
	}()
	r.Cleanup(n.end)
	return n
}

func (n *node) end() {
	n.stop()
	select {
	case <-n.done:
	case <-time.After(waitTimeout):
		n.fleet.Error("the node did not end")
	}
}

func (r *testFleet) submitPlan(name string) {
	r.Helper()
	r.submitText(name, string(planText(name)))
}

func (r *testFleet) submitText(name, text string) {
	r.Helper()
	if _, err := r.db.Plans.Add(r.Context(), fleetdb.Plan{Name: name, Text: text, Folder: "/plans", By: "op"}); err != nil {
		r.Fatal(err)
	}
}

func (r *testFleet) getVM(plan, ref string) fleetdb.VM {
	r.Helper()
	v, err := r.db.VMs.Get(r.Context(), fleetdb.Key{Plan: plan, VM: ref})
	if err != nil && !fault.Is(err, fault.NotFound) && !isTransient(err) { // not listed yet, or the database is unreachable
		r.Fatal(err)
	}
	return v
}

func (r *testFleet) getPlan(name string) fleetdb.Plan {
	r.Helper()
	p, err := r.db.Plans.Get(r.Context(), name)
	if err != nil && !isTransient(err) {
		r.Fatal(err)
	}
	return p
}

// sendCommand sends a command to a plan or a VM. The target is PLAN or PLAN/REF.
func (r *testFleet) sendCommand(target string, o fleetdb.Command) {
	r.Helper()
	plan, vm, one := strings.Cut(target, "/")
	err := error(nil)
	if one {
		err = r.ctl.CommandVM(r.Context(), fleetdb.Key{Plan: plan, VM: vm}, o)
	} else {
		err = r.ctl.CommandPlan(r.Context(), plan, o)
	}
	if err != nil {
		r.Fatal(err)
	}
}

// schedulerSnapshot returns the last state that the scheduler wrote. The scheduler writes it only after a request.
func (r *testFleet) schedulerSnapshot() (s admission.Snapshot) {
	r.Helper()
	err := r.db.SchedulerState.Request(r.Context())
	text, _, berr := r.db.SchedulerState.Read(r.Context())
	if err == nil && berr == nil && len(text) > 0 {
		berr = json.Unmarshal(text, &s)
	}
	if err := errors.Join(err, berr); err != nil {
		r.Fatal(err)
	}
	return s
}

func (r *testFleet) planStatus(plan string) Status {
	r.Helper()
	vms, err := r.db.VMs.List(r.Context(), fleetdb.Query{Plan: plan})
	progress, perr := r.db.Progress.List(r.Context(), plan)
	if err := errors.Join(err, perr); err != nil {
		r.Fatal(err)
	}
	return StatusOf(r.getPlan(plan), vms, progress, r.schedulerSnapshot())
}

// waitUntil waits until cond returns true.
func (r *testFleet) waitUntil(what string, cond func() bool) {
	r.Helper()
	end := time.After(waitTimeout)
	for !cond() {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-end:
			r.Fatalf("timeout while waiting for %s", what)
		}
	}
}

// waitForVMs waits until a plan has n VMs in a state.
func (r *testFleet) waitForVMs(plan string, s fleetdb.State, n int) {
	r.Helper()
	r.waitUntil(fmt.Sprintf("%d %s VMs of %s", n, s, plan), func() bool { return r.getPlan(plan).Counts[s] == n })
}

func (r *testFleet) waitEnded(plan string) fleetdb.Plan {
	r.Helper()
	r.waitUntil("the end of "+plan, func() bool { return r.getPlan(plan).State.IsFinal() })
	return r.getPlan(plan)
}

var (
	errUnreachable = fault.New(fault.Unreachable, "no route to host")
	errCorrupt     = fault.New(fault.Corrupt, "the descriptor is damaged")
	errDenied      = fault.New(fault.Denied, "cannot complete login due to an incorrect user name or password").OfLogin()
	errOther       = errors.New("something")
)
