package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/targets"
)

// checkRuns checks that the VM runs at the target, and not at its source.
func (b *testBed) checkRuns(out migrate.Outcome) {
	b.t.Helper()
	b.checkPublished(out)
	if !b.started || b.vm.Power != inventory.PoweredOff {
		b.t.Errorf("runs at the target: %v; the source is %s", b.started, b.vm.Power)
	}
	if out.Facts.Started == nil || out.Facts.Started.Console != "look at web01" {
		b.t.Errorf("recorded: %+v", out.Facts.Started)
	}
}

func TestStart(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	out, err := b.migrate(migrate.Permit{Start: true})
	if err != nil {
		t.Fatal(err)
	}
	b.checkRuns(out)
	if slices.Index(b.ops, "start") < slices.Index(b.ops, "published") {
		t.Errorf("operations: %v", b.ops)
	}
	if !slices.ContainsFunc(out.Facts.Stages, func(s journal.StageTime) bool { return s.Name == "start" }) {
		t.Errorf("stages: %+v", out.Facts.Stages)
	}
	p := b.newProcess()
	if err := p.Rollback(t.Context(), b.plan().ID, b.newEnvironment(t, b.dir)); !fault.Is(err, fault.Conflict) || b.published == nil {
		t.Errorf("rollback of a running VM: %v", err)
	}
	b.started = false
	b.checkRollback(p, inventory.PoweredOff) // the original power state, although the VM ran at the target
}

func TestVMIsNotStartedWithoutRequest(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	out, err := b.migrate(migrate.Permit{})
	if err != nil || b.started || out.Facts.Started != nil || slices.Contains(b.ops, "start") {
		t.Errorf("%v; runs: %v; recorded: %+v", err, b.started, out.Facts.Started)
	}
}

// A target that cannot start VMs is refused before a disk is copied or the source is powered off.
func TestStartIsRefusedOnTargetWithoutStarter(t *testing.T) {
	t.Parallel()
	for name, to := range map[string]func(targets.Target) targets.Target{
		"no Starter":   func(t targets.Target) targets.Target { return struct{ targets.Target }{t} },
		"cannot start": func(t targets.Target) targets.Target { return cannotStart{t} },
	} {
		b := newTestBed(t)
		b.vm.Power = inventory.PoweredOn
		b.wrap = to
		_, err := b.migrate(migrate.Permit{PowerOff: true, Start: true})
		if !fault.Is(err, fault.Unsupported) || fault.HintOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
		if b.vm.Power != inventory.PoweredOn || len(b.images) > 0 {
			t.Errorf("%s: operations: %v", name, b.ops)
		}
	}
}

// cannotStart is a target that cannot start VMs now.
type cannotStart struct{ targets.Target }

func (cannotStart) CanStart() error {
	return fault.New(fault.Unsupported, "no").WithHint("do it by hand")
}

func (c cannotStart) Start(ctx context.Context, d targets.Definition) (targets.Started, error) {
	return c.Target.(targets.Starter).Start(ctx, d)
}

// A VM that does not start stays published. The same command starts it. A command without --start completes
// the run.
func TestFailedStartKeepsVMPublished(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{true, false} {
		b := newTestBed(t)
		noMemory := fault.New(fault.Full, "no memory").WithHint("make room")
		b.before = failOperation("start", noMemory)
		_, err := b.migrate(migrate.Permit{Start: true})
		if !errors.Is(err, noMemory) || !fault.Is(err, fault.Full) || !strings.HasPrefix(fault.HintOf(err), "make room; ") {
			t.Fatalf("%v; remedy: %s", err, fault.HintOf(err))
		}
		if b.published == nil || b.started {
			t.Fatalf("published: %v, runs: %v", b.published != nil, b.started)
		}
		if r, err := journal.NewStore(filepath.Join(b.dir, "state")).Run(b.plan().ID); err != nil || r.State == journal.Done {
			t.Errorf("the run is %s, %v", r.State, err)
		}
		b.before = failOperation("", nil)
		copied := len(b.reads[2000])
		out, err := b.migrate(migrate.Permit{Start: again})
		if err != nil {
			t.Fatal(err)
		}
		if again {
			b.checkRuns(out)
		}
		if b.started != again || (out.Facts.Started != nil) != again || len(b.reads[2000]) > copied {
			t.Errorf("again: %v; runs: %v; recorded: %+v", again, b.started, out.Facts.Started)
		}
	}
}

// If the user powers the source on while the VM is delivered, decamp does not start the VM at the target.
func TestVMIsNotStartedWhileSourceRuns(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	b.before = func(_ context.Context, op string) error {
		if op == "published" {
			b.vm.Power = inventory.PoweredOn
		}
		return nil
	}
	_, err := b.migrate(migrate.Permit{Start: true})
	if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "two copies would run") || b.started {
		t.Errorf("%v; runs: %v", err, b.started)
	}
}

// A command with --start after a completed run starts the VM.
func TestStartAfterACompletedRun(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	if _, err := b.migrate(migrate.Permit{}); err != nil {
		t.Fatal(err)
	}
	out, err := b.migrate(migrate.Permit{Start: true})
	if err != nil || !out.Repeated {
		t.Fatalf("repeated: %v, %v", out.Repeated, err)
	}
	b.checkRuns(out)
	b.vm.Power = inventory.PoweredOn
	if _, err := b.migrate(migrate.Permit{Start: true}); !fault.Is(err, fault.Conflict) {
		t.Errorf("with a running source: %v", err)
	}
}

// After a crash before any operation that follows the publication, the same command starts the VM.
func TestCrashWhileStarting(t *testing.T) {
	t.Parallel()
	whole := newTestBed(t)
	if whole.crashAt(1<<30, migrate.Permit{Start: true}) {
		t.Fatal("crashed")
	}
	first, last := slices.Index(whole.ops, "publish"), len(whole.ops)
	if first < 0 || last-first < 5 {
		t.Fatalf("operations: %v", whole.ops)
	}
	for n := first + 1; n <= last; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			b := newTestBed(t)
			if !b.crashAt(int64(n), migrate.Permit{Start: true}) {
				t.Fatal("the run did not crash")
			}
			out, err := b.migrate(migrate.Permit{Start: true})
			if err != nil {
				t.Fatal(err)
			}
			b.checkRuns(out)
		})
	}
}

// If decamp starts the VM, the outage ends when it runs.
func TestOutageEndsWhenTheVMRuns(t *testing.T) {
	t.Parallel()
	b := newWarmTestBed(t, 1)
	b.start = true
	tried := false
	b.before = func(_ context.Context, op string) error {
		if op != "start" || tried {
			return nil
		}
		tried = true
		return fault.New(fault.Transient, "busy") // the retry is ten minutes later
	}
	out, err := b.migrateWarm(2)
	if err != nil {
		t.Fatal(err)
	}
	if o := out.Facts.Outage; !b.started || o == nil || !o.Started || o.Took != 10*time.Minute {
		t.Errorf("runs: %v; outage: %+v", b.started, o)
	}
}
