package migrate_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetkey"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/migrate/warm"
	"github.com/decamp/decamp/internal/transport"
	"github.com/decamp/decamp/internal/workflow"
)

// testBed is a world and a state directory. newProcess starts decamp with them.
type testBed struct {
	*world
	t        *testing.T
	dir      string
	attempts int                 // Options.Attempts
	onEvent  func(journal.Event) // called for each event; may be nil

	flipAtVerify func() int64             // returns the offset in disk 2000's image at which a bit flips when verify starts; may be nil
	interfere    func(journal.Event) bool // changes the VM of a warm run at an event; called until it returns true; may be nil
	paranoid     bool                     // Permit.Paranoid of a warm run
	start        bool                     // Permit.Start of a warm run

	keys *fleetkey.Keys // keys that sign the engine's records; nil signs nothing

	mu     sync.Mutex
	events []journal.Event
}

func newTestBed(t *testing.T) *testBed {
	b := &testBed{world: newWorld(), t: t, dir: t.TempDir()}
	t.Cleanup(b.release) // package testing keeps b, and there are hundreds of tests
	state, err := emptyState()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(b.dir, "state"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.dir, "state", "state.db"), state, 0o600); err != nil {
		t.Fatal(err)
	}
	return b
}

// emptyState returns the database of an engine without records. The engine creates its tables once here,
// and not for each test.
var emptyState = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "decamp-state-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	e, err := workflow.Open(context.Background(), workflow.Config{Dir: dir})
	if err != nil {
		return nil, err
	}
	if err := e.Close(); err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(dir, "state.db"))
})

// release drops the references to the world, so that it can be garbage-collected.
func (b *testBed) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.world, b.onEvent, b.flipAtVerify, b.interfere, b.events = nil, nil, nil, nil, nil
}

func (b *testBed) notify(e journal.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, e)
	if b.onEvent != nil {
		b.onEvent(e)
	}
}

func (b *testBed) eventsOf(k journal.EventKind) (found []journal.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.events {
		if e.Kind == k {
			found = append(found, e)
		}
	}
	return found
}

func (b *testBed) plan() journal.Plan {
	p := journal.New(&url.URL{Scheme: "esxi", Host: "esx1"}, b.vm, "mem:/", "raw", "fake", time.Unix(0, 0))
	p.Hardware, p.Engine = b.hardware, b.engine
	return p
}

// process is a decamp process on a test bed.
type process struct {
	*migrate.Migrator
	engine *workflow.Engine
	store  *journal.Store
}

func (b *testBed) newProcess() *process {
	b.t.Helper()
	e, err := workflow.Open(b.t.Context(), workflow.Config{Dir: filepath.Join(b.dir, "state"), Grace: 10 * time.Second, Keys: b.keys})
	if err != nil {
		b.t.Fatal(err)
	}
	store := journal.NewStore(filepath.Join(b.dir, "state"))
	m := migrate.New(e, store, migrate.Options{
		Notify: b.notify, Version: "test", Seed: 1, Attempts: b.attempts,
		Sleep: func(ctx context.Context, _ time.Duration) error { return ctx.Err() },
	})
	warm.Register(m)
	if err := e.Launch(); err != nil {
		b.t.Fatal(err)
	}
	open := e
	b.t.Cleanup(func() { open.Close(); open = nil }) // package testing keeps the function
	return &process{m, e, store}
}

// migrate runs one migration in a new decamp process.
func (b *testBed) migrate(permit migrate.Permit) (migrate.Outcome, error) {
	b.t.Helper()
	p := b.newProcess()
	out, err := p.Migrate(b.t.Context(), b.plan(), b.newEnvironment(b.t, b.dir), permit)
	if cerr := p.engine.Close(); cerr != nil {
		b.t.Fatal(cerr)
	}
	return out, err
}

// checkPublished compares the published images with the VM's disks.
func (b *testBed) checkPublished(out migrate.Outcome) {
	b.t.Helper()
	if b.published == nil {
		b.t.Fatal("no VM was published")
	}
	if len(b.published.Images) != len(b.vm.Disks) || len(out.Facts.Verified) != len(b.vm.Disks) {
		b.t.Fatalf("published %d images, verified %d", len(b.published.Images), len(out.Facts.Verified))
	}
	for _, img := range b.published.Images {
		m := b.images[img.Path]
		if !m.finished || !bytes.Equal(m.medium, b.disks[img.Key]) {
			b.t.Errorf("image of disk %d differs from the disk, or is not finished (%v)", img.Key, m.finished)
		}
		if !migrate.IsSealed(img) {
			b.t.Errorf("manifest of disk %d is not sealed with root %s", img.Key, img.Root)
		}
	}
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	out, err := b.migrate(migrate.Permit{})
	if err != nil {
		t.Fatal(err)
	}
	b.checkPublished(out)
	var steps []string
	for _, e := range b.eventsOf(journal.StepStarted) {
		steps = append(steps, e.Step)
	}
	if want := []string{"preflight", "copy", "detect", "convert", "verify", "commit"}; !slices.Equal(steps, want) {
		t.Errorf("steps %v, want %v", steps, want)
	}
	for _, op := range b.ops {
		if op == "power off" {
			t.Error("decamp changed the power state of a VM that was off")
		}
	}
	if len(b.eventsOf(journal.RunDone)) != 1 || len(b.eventsOf(journal.Summarized)) != 1 {
		t.Errorf("events %+v", b.events)
	}
}

func TestAuditFilesContainTheHashes(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	out, err := b.migrate(migrate.Permit{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(b.dir, "2000.sha256"))
	if want := out.Facts.Verified[0].SHA256 + "  2000.raw\n"; err != nil || string(text) != want {
		t.Fatalf("audit file %q, %v; want %q", text, err, want)
	}
}

func TestSummaryListsTheTimePerStage(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	out, err := b.migrate(migrate.Permit{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	var copied int64
	for _, s := range out.Facts.Stages {
		names = append(names, s.Name)
		if strings.HasPrefix(s.Name, "copy ") {
			copied += s.Bytes
		}
	}
	want := []string{"preflight", "copy 2000", "copy 2001", "copy", "detect", "convert", "verify 2000", "verify 2001", "verify", "commit"}
	if !slices.Equal(names, want) || copied != 8*mib+512 {
		t.Fatalf("stages %v, copied %d", names, copied)
	}
}

func TestDoneRunIsNotRepeated(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	first, err := b.migrate(migrate.Permit{})
	if err != nil {
		t.Fatal(err)
	}
	b.reads = nil
	again, err := b.migrate(migrate.Permit{})
	if err != nil || !again.Repeated || len(b.reads) > 0 || !reflect.DeepEqual(again.Facts.Verified, first.Facts.Verified) {
		t.Fatalf("second run: %+v, %v; read %v", again, err, b.reads)
	}
}

// If decamp is killed after it recorded the end of a run and before it updated the journal, the next run updates it.
func TestDoneRunCompletesItsJournal(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	if _, err := b.migrate(migrate.Permit{}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(b.dir, "state", "runs", string(b.plan().ID), "journal.jsonl")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	if err := os.WriteFile(path, []byte(strings.Join(lines[:len(lines)-2], "")), 0o600); err != nil {
		t.Fatal(err)
	}
	store := journal.NewStore(filepath.Join(b.dir, "state"))
	for _, want := range []journal.State{journal.Open, journal.Done, journal.Done} {
		if r, err := store.Run(b.plan().ID); err != nil || r.State != want {
			t.Fatalf("run %s, %v; want %s", r.State, err, want)
		}
		if again, err := b.migrate(migrate.Permit{}); err != nil || !again.Repeated {
			t.Fatalf("second run: %+v, %v", again, err)
		}
	}
	if now, err := os.ReadFile(path); err != nil || len(strings.SplitAfter(string(now), "\n")) != len(lines) {
		t.Errorf("journal %s, %v", now, err)
	}
}

func TestRunRestartsIfPublishedVMIsMissing(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	if _, err := b.migrate(migrate.Permit{}); err != nil {
		t.Fatal(err)
	}
	b.published, b.images = nil, map[string]*memImage{}
	out, err := b.migrate(migrate.Permit{})
	if err != nil || out.Repeated {
		t.Fatalf("%+v, %v", out, err)
	}
	b.checkPublished(out)
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(vm *inventory.VM)
		kind   fault.Kind
		hint   string
	}{
		"running":        {func(vm *inventory.VM) { vm.Power = inventory.PoweredOn }, fault.Conflict, "--power-off"},
		"suspended":      {func(vm *inventory.VM) { vm.Power = inventory.Suspended }, fault.Conflict, "resume"},
		"snapshots":      {func(vm *inventory.VM) { vm.Snapshots = 2 }, fault.Conflict, "snapshots"},
		"consolidation":  {func(vm *inventory.VM) { vm.ConsolidationNeeded = true }, fault.Conflict, "consolidate"},
		"encrypted":      {func(vm *inventory.VM) { vm.Encrypted = true }, fault.Unsupported, "decrypt"},
		"encrypted disk": {func(vm *inventory.VM) { vm.Disks[1].Encrypted = true }, fault.Unsupported, "decrypt"},
		"delta disk":     {func(vm *inventory.VM) { vm.Disks[1].Backing = inventory.Delta }, fault.Conflict, "snapshots"},
		"sparse disk":    {func(vm *inventory.VM) { vm.Disks[1].Backing = inventory.SESparse }, fault.Conflict, "snapshots"},
		"layered disk":   {func(vm *inventory.VM) { vm.Disks[1].Layers = 2 }, fault.Conflict, "snapshots"},
		"rdm":            {func(vm *inventory.VM) { vm.Disks[0].Backing = inventory.RDM }, fault.Unsupported, "thin or thick disk"},
		"vsan":           {func(vm *inventory.VM) { vm.Disks[0].Backing = inventory.VSAN }, fault.Unsupported, "thin or thick disk"},
		"vvol":           {func(vm *inventory.VM) { vm.Disks[0].Backing = inventory.VVol }, fault.Unsupported, "thin or thick disk"},
		"unknown":        {func(vm *inventory.VM) { vm.Disks[0].Backing = inventory.UnknownBacking }, fault.Unsupported, "thin or thick disk"},
		"multi-writer":   {func(vm *inventory.VM) { vm.Disks[0].Shared = true }, fault.Unsupported, "sharing"},
		"shared bus": {func(vm *inventory.VM) {
			vm.Controllers = []inventory.Controller{{Key: 1000, SharedBus: true}}
		}, fault.Unsupported, "sharing"},
		"any warning that blocks": {func(vm *inventory.VM) {
			vm.Warnings = []inventory.Warning{{Code: "new", Text: "odd", Remedy: "do this", Blocks: true}}
		}, fault.Unsupported, "do this"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTestBed(t)
			tc.change(b.vm)
			_, err := b.migrate(migrate.Permit{})
			if fault.KindOf(err) != tc.kind || !strings.Contains(fault.HintOf(err), tc.hint) {
				t.Fatalf("got %v (%v), remedy %q", err, fault.KindOf(err), fault.HintOf(err))
			}
			if len(b.images) > 0 || b.published != nil {
				t.Error("the run created an image or published a VM")
			}
		})
	}
}

// The inventory has a separate code for raw devices in physical mode. decamp reports one obstacle for such
// a disk.
func TestPhysicalRawDeviceIsReportedOnce(t *testing.T) {
	w := inventory.Warning{Code: "rdm-physical", Text: "a raw device in physical mode", Remedy: "move it", Blocks: true}
	vm := &inventory.VM{Disks: []inventory.Disk{{Key: 2000, Backing: inventory.RDM, Layers: 1}}, Warnings: []inventory.Warning{w}}
	if got := migrate.Obstacles(vm, nil, migrate.Permit{}); len(got) != 1 || got[0].Code != w.Code {
		t.Errorf("%+v", got)
	}
	vm.Warnings = nil
	if got := migrate.Obstacles(vm, nil, migrate.Permit{}); len(got) != 1 || got[0].Code != "rdm" {
		t.Errorf("without a warning: %+v", got)
	}
}

// A permission to power the VM off removes the obstacle "running". With force, it also removes "suspended"
// for a cold migration. A warm migration requires a VM that runs.
func TestPowerOffPermissionRemovesObstacles(t *testing.T) {
	for _, c := range []struct {
		power inventory.Power
		p     migrate.Permit
		want  string
	}{
		{inventory.PoweredOn, migrate.Permit{}, "running encrypted"},
		{inventory.PoweredOn, migrate.Permit{PowerOff: true}, "encrypted"},
		{inventory.PoweredOn, migrate.Permit{PowerOff: true, Warm: true}, "encrypted"},
		{inventory.Suspended, migrate.Permit{Force: true}, "suspended encrypted"},
		{inventory.Suspended, migrate.Permit{PowerOff: true}, "suspended encrypted"},
		{inventory.Suspended, migrate.Permit{PowerOff: true, Force: true}, "encrypted"},
		{inventory.Suspended, migrate.Permit{PowerOff: true, Force: true, Warm: true}, "suspended encrypted"},
	} {
		vm := &inventory.VM{Power: c.power, Encrypted: true}
		var codes []string
		for _, w := range migrate.Obstacles(vm, nil, c.p) {
			codes = append(codes, w.Code)
		}
		if got := strings.Join(codes, " "); got != c.want {
			t.Errorf("%s VM, power off %v, force %v, warm %v: obstacles %q, want %q", c.power, c.p.PowerOff, c.p.Force, c.p.Warm, got, c.want)
		}
	}
}

func TestPowerOffRequiresAPermissionAndNoObstacle(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	b.vm.Power, b.vm.Snapshots = inventory.PoweredOn, 1
	if _, err := b.migrate(migrate.Permit{PowerOff: true}); !fault.Is(err, fault.Conflict) || b.vm.Power != inventory.PoweredOn {
		t.Fatalf("VM with a snapshot is %s after %v", b.vm.Power, err)
	}
	b.vm.Snapshots = 0
	if _, err := b.migrate(migrate.Permit{}); !fault.Is(err, fault.Conflict) || b.vm.Power != inventory.PoweredOn {
		t.Fatalf("VM is %s after %v", b.vm.Power, err)
	}
	out, err := b.migrate(migrate.Permit{PowerOff: true})
	if err != nil {
		t.Fatal(err)
	}
	b.checkPublished(out)
	if out.Facts.VM.Power != inventory.PoweredOff || len(b.eventsOf(journal.PowerChanged)) != 2 {
		t.Fatalf("power %s, events %v", out.Facts.VM.Power, b.eventsOf(journal.PowerChanged))
	}
}

// A network card that was disconnected while the VM ran stays disconnected after the migration.
func TestDisconnectedCardsStayDisconnected(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	b.vm.Power = inventory.PoweredOn
	b.vm.NICs = []inventory.NIC{
		{Key: 4000, MAC: "00:50:56:00:00:01", Connected: true, StartConnected: true},
		{Key: 4001, MAC: "00:50:56:00:00:02", StartConnected: true},
		{Key: 4002, MAC: "00:50:56:00:00:03"},
	}
	out, err := b.migrate(migrate.Permit{PowerOff: true})
	if err != nil {
		t.Fatal(err)
	}
	b.checkPublished(out)
	for i, want := range []bool{false, true, true} {
		if n := b.published.VM.NICs[i]; n.LinkDown() != want {
			t.Errorf("card %d is down: %v", i, n.LinkDown())
		}
	}
	warned := func(w inventory.Warning) bool { return w.Code == "nic-pulled" && strings.Contains(w.Text, "00:02") }
	if !slices.ContainsFunc(b.published.Warnings, warned) || strings.Count(fmt.Sprint(b.published.Warnings), "nic-pulled") != 1 {
		t.Errorf("warnings %+v", b.published.Warnings)
	}
}

func TestAnotherVMUnderTheSameReferenceIsRefused(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	p := b.newProcess()
	pl := b.plan()
	b.vm.UUID = "another VM"
	_, err := p.Migrate(t.Context(), pl, b.newEnvironment(t, b.dir), migrate.Permit{})
	if !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
		t.Fatal(err)
	}
}

func TestOptionsCanChangeBeforeTheCopy(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	b.vm.Snapshots = 1
	p := b.newProcess()
	pl := b.plan()
	if _, err := p.Migrate(t.Context(), pl, b.newEnvironment(t, b.dir), migrate.Permit{}); !fault.Is(err, fault.Conflict) {
		t.Fatal(err)
	}
	b.vm.Snapshots = 0
	pl.Format = "qcow2"
	b.before = failOperation("write", fault.New(fault.Full, "no space"))
	if _, err := p.Migrate(t.Context(), pl, b.newEnvironment(t, b.dir), migrate.Permit{}); !fault.Is(err, fault.Full) {
		t.Fatal(err)
	}
	pl.Format = "raw"
	if _, err := p.Migrate(t.Context(), pl, b.newEnvironment(t, b.dir), migrate.Permit{}); !fault.Is(err, fault.Conflict) {
		t.Fatalf("another format after the copy began: %v", err)
	}
}

// failOperation returns a hook that fails every operation with the given name. The name "" fails none.
func failOperation(name string, err error) func(context.Context, string) error {
	return func(_ context.Context, op string) error {
		if op == name {
			return err
		}
		return nil
	}
}

func TestRunContinuesAfterFullTarget(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	b.before = failOperation("sync", fault.New(fault.Full, "no space left").WithHint("free 3 GiB"))
	_, err := b.migrate(migrate.Permit{})
	if !fault.Is(err, fault.Full) || fault.HintOf(err) != "free 3 GiB" || b.published != nil {
		t.Fatalf("%v, remedy %q", err, fault.HintOf(err))
	}
	b.before = failOperation("", nil)
	out, err := b.migrate(migrate.Permit{})
	if err != nil {
		t.Fatal(err)
	}
	b.checkPublished(out)
}

func TestTransientFaultsAreRetried(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	var mu sync.Mutex
	failures := 0
	b.before = func(_ context.Context, op string) error {
		mu.Lock()
		defer mu.Unlock()
		if failures < 4 && (op == "read" || op == "vm") {
			failures++
			return fault.New(fault.Transient, "connection reset")
		}
		return nil
	}
	out, err := b.migrate(migrate.Permit{})
	if err != nil {
		t.Fatal(err)
	}
	b.checkPublished(out)
	if n := len(b.eventsOf(journal.StepRetried)); n < 2 {
		t.Errorf("%d retries, want at least 2", n)
	}
}

func TestPermanentFaultsAreNotRetried(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	b.before = failOperation("vm", fault.New(fault.Denied, "wrong password"))
	if _, err := b.migrate(migrate.Permit{}); !fault.Is(err, fault.Denied) || len(b.eventsOf(journal.StepRetried)) > 0 {
		t.Fatalf("%v after %d retries", err, len(b.eventsOf(journal.StepRetried)))
	}
	b.before = failOperation("vm", fault.New(fault.Transient, "503"))
	if _, err := b.migrate(migrate.Permit{}); !fault.Is(err, fault.Transient) || len(b.eventsOf(journal.StepRetried)) != 5 {
		t.Fatalf("%v after %d retries, want 5", err, len(b.eventsOf(journal.StepRetried)))
	}
}

// newRunWithBadChunk returns a test bed with a run whose verify found one bad chunk, at 2 MiB of disk 2001.
func newRunWithBadChunk(t *testing.T) *testBed {
	t.Helper()
	b := newTestBed(t)
	b.onEvent = func(e journal.Event) {
		if e.Kind == journal.DiskDone && e.Disk == 2001 { // all chunks were hashed, none was verified
			b.images[filepath.Join(b.dir, "2001")].now[2*mib+77] ^= 0x10
			b.onEvent = nil
		}
	}
	_, err := b.migrate(migrate.Permit{})
	if !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), fmt.Sprintf("disk 2001 at %d", 2*mib)) {
		t.Fatalf("got %v", err)
	}
	if !strings.Contains(fault.HintOf(err), "run the same command again") || b.published != nil {
		t.Fatalf("remedy %q, published %v", fault.HintOf(err), b.published)
	}
	return b
}

func TestFlippedBitPreventsPublish(t *testing.T) {
	t.Parallel()
	b := newRunWithBadChunk(t)
	if bad := b.eventsOf(journal.ChunkBad); len(bad) != 1 || bad[0].Disk != 2001 {
		t.Fatalf("bad chunks %+v", bad)
	}
	b.reads = map[int32][]disk.Range{}
	out, err := b.migrate(migrate.Permit{})
	if err != nil {
		t.Fatal(err)
	}
	b.checkPublished(out)
	if len(b.reads[2000]) > 0 || len(b.reads[2001]) != 1 || b.reads[2001][0].Off != 2*mib {
		t.Errorf("second run read %v, want the bad chunk only", b.reads)
	}
}

// A run reports every disk that needs no transfer, so that no other run waits for it: after the copy, and also if the
// run continues at verify.
func TestEveryDiskWithoutTransferIsReported(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	p := b.newProcess()
	for _, begins := range []string{"copy", "verify"} {
		settled := map[int32]bool{}
		var mu sync.Mutex
		env := b.newEnvironment(t, b.dir)
		env.Settled = func(disk int32) { mu.Lock(); defer mu.Unlock(); settled[disk] = true }
		env.Reread = func(context.Context, transport.Disk) (disk.Source, string, error) {
			return nil, "", errors.New("not now")
		}
		if _, err := p.Migrate(t.Context(), b.plan(), env, migrate.Permit{}); err == nil {
			t.Fatal("verify did not fail")
		}
		if !settled[2000] || !settled[2001] {
			t.Errorf("a run that starts at %s settled %v", begins, settled)
		}
	}
}

func TestCancelStopsAndTheNextRunContinues(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	ctx, cancel := context.WithCancel(t.Context())
	var first sync.Once // the checkpoint at the end of a canceled copy also syncs
	b.before = func(ctx context.Context, op string) error {
		if op == "sync" {
			first.Do(func() { cancel(); b.waitForStop() })
		}
		return ctx.Err()
	}
	p := b.newProcess()
	_, err := p.Migrate(ctx, b.plan(), b.newEnvironment(t, b.dir), migrate.Permit{})
	if !fault.Is(err, fault.Canceled) || !strings.Contains(fault.HintOf(err), "same command again") {
		t.Fatalf("got %v, remedy %q", err, fault.HintOf(err))
	}
	if r, err := p.store.Run(b.plan().ID); err != nil || r.State != journal.Stopped {
		t.Fatalf("run is %s, %v", r.State, err)
	}
	b.before = failOperation("", nil)
	out, err := p.Migrate(t.Context(), b.plan(), b.newEnvironment(t, b.dir), migrate.Permit{})
	if err != nil {
		t.Fatal(err)
	}
	b.checkPublished(out)
}

func TestDiscardRemovesEverything(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	b.before = failOperation("finish", errors.New("broken"))
	if _, err := b.migrate(migrate.Permit{}); err == nil {
		t.Fatal("the migration did not fail")
	}
	p := b.newProcess()
	if err := p.Discard(t.Context(), b.plan().ID, b.newEnvironment(t, b.dir)); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(b.dir, "*.manifest*"))
	if err != nil || len(left) > 0 || len(b.images) > 0 {
		t.Fatalf("%v and %d images remain, %v", left, len(b.images), err)
	}
	if _, err := p.store.Plan(b.plan().ID); !fault.Is(err, fault.NotFound) {
		t.Fatalf("plan after discard: %v", err)
	}
	b.before = failOperation("", nil)
	out, err := p.Migrate(t.Context(), b.plan(), b.newEnvironment(t, b.dir), migrate.Permit{})
	if err != nil {
		t.Fatal(err)
	}
	b.checkPublished(out)
	if err := p.Discard(t.Context(), b.plan().ID, b.newEnvironment(t, b.dir)); !fault.Is(err, fault.Conflict) || b.published == nil {
		t.Fatalf("discard of a published VM: %v", err)
	}
}

func TestUndoIsSafeIfNothingRan(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	p := b.newProcess()
	if err := p.Undo(t.Context(), b.plan(), migrate.Facts{}, b.newEnvironment(t, b.dir)); err != nil {
		t.Fatal(err)
	}
	if err := p.Discard(t.Context(), b.plan().ID, b.newEnvironment(t, b.dir)); !fault.Is(err, fault.NotFound) {
		t.Fatalf("discard without a run: %v", err)
	}
}

// Garbage that a crash of the machine leaves at the end of a verified manifest is not
// published.
func TestManifestDamagedAfterVerifyIsRepaired(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	damaged := 0
	b.onEvent = func(e journal.Event) {
		if e.Kind != journal.StepDone || e.Step != migrate.StepVerify {
			return
		}
		manifests, _ := filepath.Glob(filepath.Join(b.dir, "*.manifest")) // the pattern is valid
		for _, path := range manifests {
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
			if err == nil {
				_, err = f.WriteString("garbage")
				err = errors.Join(err, f.Close())
			}
			if err != nil {
				t.Error(err)
			}
			damaged++
		}
	}
	out, err := b.migrate(migrate.Permit{})
	if err != nil {
		t.Fatal(err)
	}
	b.checkPublished(out)
	if damaged == 0 {
		t.Fatal("no manifest was damaged")
	}
	for _, img := range b.published.Images {
		if !migrate.IsSealed(img) {
			t.Errorf("the published manifest of disk %d is damaged", img.Key)
		}
	}
}
