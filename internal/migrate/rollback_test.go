package migrate_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/migrate"
)

// publishVM migrates the VM after it sets its power state.
func (b *testBed) publishVM(power inventory.Power) *process {
	b.t.Helper()
	b.vm.Power = power
	p := b.newProcess()
	if _, err := p.Migrate(b.t.Context(), b.plan(), b.newEnvironment(b.t, b.dir), migrate.Permit{PowerOff: true}); err != nil {
		b.t.Fatal(err)
	}
	return p
}

// checkRollback rolls the run back, and checks that no VM is published and the source has the given power state.
func (b *testBed) checkRollback(p *process, power inventory.Power) {
	b.t.Helper()
	if err := p.Rollback(b.t.Context(), b.plan().ID, b.newEnvironment(b.t, b.dir)); err != nil {
		b.t.Fatal(err)
	}
	if b.published != nil || b.vm.Power != power {
		b.t.Errorf("published: %v; the source is %s, want %s", b.published != nil, b.vm.Power, power)
	}
	if err := p.Rollback(b.t.Context(), b.plan().ID, b.newEnvironment(b.t, b.dir)); !fault.Is(err, fault.NotFound) {
		b.t.Errorf("rollback of a removed run: %v", err)
	}
}

func TestRollbackRefusesPublishedVM(t *testing.T) {
	t.Parallel()
	for _, power := range []inventory.Power{inventory.PoweredOff, inventory.PoweredOn} {
		b := newTestBed(t)
		b.checkRollback(b.publishVM(power), power)
	}
}

// If a step of a rollback fails, the source does not run while the VM is published. The next Rollback completes it.
func TestFailedRollbackCanBeRepeated(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"withdraw", "power on"} {
		b := newTestBed(t)
		p := b.publishVM(inventory.PoweredOn)
		lost := errors.New("lost")
		b.before = failOperation(op, lost)
		if err := p.Rollback(t.Context(), b.plan().ID, b.newEnvironment(t, b.dir)); !errors.Is(err, lost) {
			t.Fatalf("%s fails: %v", op, err)
		}
		if b.vm.Power == inventory.PoweredOn {
			t.Errorf("%s fails: the source runs", op)
		}
		b.before = failOperation("", nil)
		b.checkRollback(p, inventory.PoweredOn)
		if at := slices.Index(b.ops, "withdraw"); at < 0 || at > slices.Index(b.ops, "power on") {
			t.Errorf("operations: %v", b.ops)
		}
	}
}

// After a withdrawal that failed halfway, the same migration does not report the VM as published. It keeps the
// original power state of the source.
func TestMigrateAfterFailedWithdrawal(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"withdraw", "power on"} {
		b := newTestBed(t)
		p := b.publishVM(inventory.PoweredOn)
		lost := errors.New("lost")
		b.before = failOperation(op, lost)
		if err := p.Rollback(t.Context(), b.plan().ID, b.newEnvironment(t, b.dir)); !errors.Is(err, lost) {
			t.Fatalf("%s fails: %v", op, err)
		}
		b.before = failOperation("", nil)
		out, err := p.Migrate(t.Context(), b.plan(), b.newEnvironment(t, b.dir), migrate.Permit{PowerOff: true})
		if !fault.Is(err, fault.Conflict) || !strings.Contains(fault.HintOf(err), "decamp rollback "+string(b.plan().ID)+" --withdraw") {
			t.Errorf("%s failed, then Migrate: %+v, %v", op, out, err)
		}
		if r, err := p.store.Run(b.plan().ID); err != nil || r.State != journal.Failed || r.Failure == nil || !strings.Contains(r.Failure.Text, "partly removed") {
			t.Errorf("%s failed: the run is %+v, %v", op, r, err)
		}
		b.checkRollback(p, inventory.PoweredOn)
	}
}

// A withdrawal that is refused because the VM runs removes no data: the VM stays published.
func TestMigrateAfterRefusedWithdrawal(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	p := b.publishVM(inventory.PoweredOn)
	b.started = true
	if err := p.Rollback(t.Context(), b.plan().ID, b.newEnvironment(t, b.dir)); !fault.Is(err, fault.Conflict) {
		t.Fatalf("the VM runs: %v", err)
	}
	if r, err := p.store.Run(b.plan().ID); err != nil || r.State != journal.Done {
		t.Errorf("the run is %+v, %v", r, err)
	}
	if out, err := p.Migrate(t.Context(), b.plan(), b.newEnvironment(t, b.dir), migrate.Permit{PowerOff: true}); err != nil || !out.Repeated {
		t.Errorf("then Migrate: %+v, %v", out, err)
	}
	b.started = false
	b.checkRollback(p, inventory.PoweredOn)
}

// The rollback of an unfinished run powers the source on if it was on before.
func TestRollbackOfAnUnfinishedRun(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	b.vm.Power = inventory.PoweredOn
	b.before = failOperation("finish", errors.New("broken"))
	if _, err := b.migrate(migrate.Permit{PowerOff: true}); err == nil || b.vm.Power != inventory.PoweredOff {
		t.Fatalf("the migration did not fail, or the VM is %s", b.vm.Power)
	}
	b.before = failOperation("", nil)
	b.checkRollback(b.newProcess(), inventory.PoweredOn)
	if len(b.images) > 0 {
		t.Errorf("%d images remain", len(b.images))
	}
}

// A run whose journal is on another machine cannot be undone here. The error differs from that of an unknown run.
func TestUndoWithoutTheJournal(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	b.vm.Power = inventory.PoweredOn
	b.before = failOperation("finish", errors.New("broken"))
	p := b.newProcess()
	if _, err := p.Migrate(t.Context(), b.plan(), b.newEnvironment(t, b.dir), migrate.Permit{PowerOff: true}); err == nil {
		t.Fatal("the migration did not fail")
	}
	b.before = failOperation("", nil)
	id := b.plan().ID
	elsewhere := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Rename(p.store.Folder(id), filepath.Join(elsewhere, "run")))
	for name, undo := range map[string]func(context.Context, journal.ID, migrate.Environment) error{"discard": p.Discard, "rollback": p.Rollback} {
		err := undo(t.Context(), id, b.newEnvironment(t, b.dir))
		if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), filepath.Join(b.dir, "2000")) || !strings.Contains(err.Error(), "powered off") {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(os.Rename(filepath.Join(elsewhere, "run"), p.store.Folder(id)))
	b.checkRollback(p, inventory.PoweredOn) // afterwards the run is NotFound
}
