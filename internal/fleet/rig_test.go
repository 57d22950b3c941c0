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

// patience bounds what a test waits for: on a busy machine everything takes its time.
const patience = 2 * time.Minute

// steady is a lease that nothing of a test outlasts.
const steady = 1000 * time.Hour

// A mover moves nothing, as its test says.
type mover struct {
	t testing.TB

	// What a test puts in the place of the usual.
	admit func() error

	list func(ctx context.Context, p fleetdb.Plan, tell func([]fleetdb.VM) error) error
	move func(ctx context.Context, vm fleetdb.VM, d Driver) error
	undo func(ctx context.Context, vm fleetdb.VM) error
	hook func(ctx context.Context, p fleetdb.Plan, when string) error
	boot func(ask fleetdb.Rehearsal) error
	caps map[string]int64

	mu      sync.Mutex
	vms     []fleetdb.VM
	driving map[fleetdb.Key]int
	perHost map[string]int
	most    map[string]int // of perHost
	moves   map[fleetdb.Key]int
	orders  []fleetdb.Command
	asked   []string // rehearsals that were asked of it, and that were taken back
	taken   []string
	hooks   []string
	undone  map[fleetdb.Key]int
}

func newMover(t testing.TB, vms ...fleetdb.VM) *mover {
	return &mover{
		t: t, vms: vms, caps: map[string]int64{"host:*/vms": 20},
		driving: map[fleetdb.Key]int{}, perHost: map[string]int{}, most: map[string]int{}, moves: map[fleetdb.Key]int{}, undone: map[fleetdb.Key]int{},
	}
}

func (m *mover) Admit(context.Context, fleetdb.Plan) error {
	if m.admit != nil {
		return m.admit()
	}
	return nil
}

func (m *mover) List(ctx context.Context, p fleetdb.Plan, tell func([]fleetdb.VM) error) error {
	if m.list != nil {
		return m.list(ctx, p, tell)
	}
	return tell(append([]fleetdb.VM(nil), m.vms...))
}

func (m *mover) Capacities(context.Context, fleetdb.Plan) (map[string]int64, error) {
	return m.caps, nil
}

func (m *mover) Needs(vm fleetdb.VM, _ fleetdb.TransferKind) ([]sched.Need, time.Duration) {
	return []sched.Need{{Resource: "host:" + vm.Host + "/vms", Weight: 1}}, time.Minute
}

func (m *mover) Move(ctx context.Context, vm fleetdb.VM, d Driver) error {
	m.begin(vm)
	defer m.end(vm)
	if m.move != nil {
		return m.move(ctx, vm, d)
	}
	return m.transfer(ctx, vm, d)
}

func (m *mover) begin(vm fleetdb.VM) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.moves[vm.Key]++
	if m.driving[vm.Key]++; m.driving[vm.Key] > 1 {
		m.t.Errorf("%s is driven twice at a time", vm.Key)
	}
}

func (m *mover) end(vm fleetdb.VM) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.driving[vm.Key]--
}

// transfer is a cold VM that goes well.
func (m *mover) transfer(ctx context.Context, vm fleetdb.VM, d Driver) error {
	if err := d.Storage([]string{"disk-" + vm.To[0]}); err != nil {
		return err
	}
	d.Step("copy", "")
	back, err := d.RequestSlot(ctx, fleetdb.First, time.Minute)
	if err != nil {
		return err
	}
	defer back()
	m.busy(vm.Host, 1)
	defer m.busy(vm.Host, -1)
	d.Progress(fleetdb.Progress{Total: vm.Bytes, Done: vm.Bytes})
	return ctx.Err()
}

func (m *mover) busy(host string, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.perHost[host] += n
	m.most[host] = max(m.most[host], m.perHost[host])
}

func (m *mover) SendCommand(_ fleetdb.VM, o fleetdb.Command) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.orders = append(m.orders, o)
	return nil
}

func (m *mover) Rehearse(_ fleetdb.VM, ask fleetdb.Rehearsal) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = append(m.asked, ask.ID)
	if m.boot != nil {
		return m.boot(ask)
	}
	return nil
}

func (m *mover) TakeBack(_ fleetdb.VM, rehearsal string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.taken = append(m.taken, rehearsal)
	return nil
}

func (m *mover) Undo(ctx context.Context, vm fleetdb.VM) error {
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

func (m *mover) Hook(ctx context.Context, p fleetdb.Plan, when string) error {
	m.mu.Lock()
	m.hooks = append(m.hooks, when)
	m.mu.Unlock()
	if m.hook != nil {
		return m.hook(ctx, p, when)
	}
	return nil
}

func (m *mover) times(key fleetdb.Key) int {
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

// vmsOn returns n VMs, spread over so many hosts.
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

// text is a plan that Parse takes, for the source of vmsOn.
func text(name string) []byte {
	return fmt.Appendf(nil, "version: 1\nname: %s\nsource:\n  url: vcenter://ops@vc1\ndefaults:\n  to: [dir:/srv/vm]\nselect: name ~ \"web*\"\n", name)
}

// A clock is the time of a test that does not wait for it.
type clock struct {
	mu    sync.Mutex
	now   time.Time
	moved chan struct{}
}

func newClock() *clock {
	return &clock{now: time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC), moved: make(chan struct{})}
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Sleep(ctx context.Context, d time.Duration) error {
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

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	close(c.moved)
	c.moved = make(chan struct{})
}

// A rig is a database and nodes over it.
type rig struct {
	testing.TB
	url   string
	clock *clock // nil: the real time
	db    *fleetdb.Database
	ctl   Control
}

func newRig(t testing.TB, c *clock) *rig {
	t.Helper()
	r := &rig{TB: t, clock: c, url: "sqlite:" + filepath.Join(t.TempDir(), "fleet.db")}
	r.db = r.open()
	r.ctl = Control{r.db}
	return r
}

func (r *rig) open() *fleetdb.Database {
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

// node is what runs, and how to end it.
type node struct {
	*Node
	rig  *rig
	stop context.CancelFunc
	done chan struct{}
	err  error
}

func (r *rig) config(m Mover, name string) Config {
	c := Config{
		Database: r.db, Mover: m, Schedule: true, Drive: true, TTL: steady,
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

// start runs a node until the test ends, or until it is stopped.
func (r *rig) start(c Config) *node {
	ctx, stop := context.WithCancel(context.WithoutCancel(r.Context()))
	n := &node{Node: New(c), rig: r, stop: stop, done: make(chan struct{})}
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
	case <-time.After(patience):
		n.rig.Error("the node did not end")
	}
}

func (r *rig) submit(name string) {
	r.Helper()
	r.submitText(name, string(text(name)))
}

func (r *rig) submitText(name, text string) {
	r.Helper()
	if _, err := r.db.Plans.Add(r.Context(), fleetdb.Plan{Name: name, Text: text, Folder: "/plans", By: "op"}); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) vm(plan, ref string) fleetdb.VM {
	r.Helper()
	v, err := r.db.VMs.Get(r.Context(), fleetdb.Key{Plan: plan, VM: ref})
	if err != nil && !fault.Is(err, fault.NotFound) && !isTransient(err) { // not listed yet, or the database is away
		r.Fatal(err)
	}
	return v
}

func (r *rig) plan(name string) fleetdb.Plan {
	r.Helper()
	p, err := r.db.Plans.Get(r.Context(), name)
	if err != nil && !isTransient(err) {
		r.Fatal(err)
	}
	return p
}

// order gives an order to PLAN or to PLAN/REF.
func (r *rig) order(what string, o fleetdb.Command) {
	r.Helper()
	plan, vm, one := strings.Cut(what, "/")
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

// snapshot returns the state of the scheduler, which it writes once a client reads it.
func (r *rig) snapshot() (s admission.Snapshot) {
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

func (r *rig) status(plan string) Status {
	r.Helper()
	vms, err := r.db.VMs.List(r.Context(), fleetdb.Query{Plan: plan})
	progress, perr := r.db.Progress.List(r.Context(), plan)
	if err := errors.Join(err, perr); err != nil {
		r.Fatal(err)
	}
	return StatusOf(r.plan(plan), vms, progress, r.snapshot())
}

// wait returns when so holds.
func (r *rig) wait(what string, so func() bool) {
	r.Helper()
	end := time.After(patience)
	for !so() {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-end:
			r.Fatalf("waited in vain for %s", what)
		}
	}
}

// waitFor returns when a plan has so many VMs in a state.
func (r *rig) waitFor(plan string, s fleetdb.State, n int) {
	r.Helper()
	r.wait(fmt.Sprintf("%d %s VMs of %s", n, s, plan), func() bool { return r.plan(plan).Counts[s] == n })
}

func (r *rig) waitEnded(plan string) fleetdb.Plan {
	r.Helper()
	r.wait("the end of "+plan, func() bool { return r.plan(plan).State.IsFinal() })
	return r.plan(plan)
}

var (
	errAway   = fault.New(fault.Unreachable, "no route to host")
	errBroken = fault.New(fault.Corrupt, "the descriptor is damaged")
	errDenied = fault.New(fault.Denied, "cannot complete login due to an incorrect user name or password").OfLogin()
	errPlain  = errors.New("something")
)
