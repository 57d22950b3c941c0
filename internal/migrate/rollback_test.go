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

// publishedFrom migrates the bench's VM, which is on or off before.
func (b *bench) publishedFrom(power inventory.Power) *process {
	b.t.Helper()
	b.vm.Power = power
	p := b.process()
	if _, err := p.Migrate(b.t.Context(), b.plan(), b.rig(b.t, b.dir), migrate.Permit{PowerOff: true}); err != nil {
		b.t.Fatal(err)
	}
	return p
}

// rollBack rolls the bench's run back, and expects that nothing is left but the VM as it was.
func (b *bench) rollBack(p *process, power inventory.Power) {
	b.t.Helper()
	if err := p.Rollback(b.t.Context(), b.plan().ID, b.rig(b.t, b.dir)); err != nil {
		b.t.Fatal(err)
	}
	if b.published != nil || b.vm.Power != power {
		b.t.Errorf("published: %v; the source is %s, want %s", b.published != nil, b.vm.Power, power)
	}
	if err := p.Rollback(b.t.Context(), b.plan().ID, b.rig(b.t, b.dir)); !fault.Is(err, fault.NotFound) {
		b.t.Errorf("of a run that is forgotten: %v", err)
	}
}

func TestRollbackOfWhatIsPublished(t *testing.T) {
	t.Parallel()
	for _, power := range []inventory.Power{inventory.PoweredOff, inventory.PoweredOn} {
		b := newBench(t)
		b.rollBack(b.publishedFrom(power), power)
	}
}

// Wherever it fails, the source does not run while the VM is published, and the next Rollback ends it.
func TestRollbackThatFails(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"withdraw", "power on"} {
		b := newBench(t)
		p := b.publishedFrom(inventory.PoweredOn)
		lost := errors.New("lost")
		b.before = failing(op, lost)
		if err := p.Rollback(t.Context(), b.plan().ID, b.rig(t, b.dir)); !errors.Is(err, lost) {
			t.Fatalf("%s fails: %v", op, err)
		}
		if b.vm.Power == inventory.PoweredOn {
			t.Errorf("%s fails: the source runs", op)
		}
		b.before = failing("", nil)
		b.rollBack(p, inventory.PoweredOn)
		if at := slices.Index(b.ops, "withdraw"); at < 0 || at > slices.Index(b.ops, "power on") {
			t.Errorf("operations: %v", b.ops)
		}
	}
}

// After a withdrawal that failed halfway, the same migration does not report the VM as published, and does
// not forget that the source ran.
func TestMigrateAfterAWithdrawalThatFailed(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"withdraw", "power on"} {
		b := newBench(t)
		p := b.publishedFrom(inventory.PoweredOn)
		lost := errors.New("lost")
		b.before = failing(op, lost)
		if err := p.Rollback(t.Context(), b.plan().ID, b.rig(t, b.dir)); !errors.Is(err, lost) {
			t.Fatalf("%s fails: %v", op, err)
		}
		b.before = failing("", nil)
		out, err := p.Migrate(t.Context(), b.plan(), b.rig(t, b.dir), migrate.Permit{PowerOff: true})
		if !fault.Is(err, fault.Conflict) || !strings.Contains(fault.HintOf(err), "decamp rollback "+string(b.plan().ID)+" --withdraw") {
			t.Errorf("%s failed, then Migrate: %+v, %v", op, out, err)
		}
		if r, err := p.store.Run(b.plan().ID); err != nil || r.State != journal.Failed || r.Failure == nil || !strings.Contains(r.Failure.Text, "partly removed") {
			t.Errorf("%s failed: the run is %+v, %v", op, r, err)
		}
		b.rollBack(p, inventory.PoweredOn)
	}
}

// A withdrawal that is refused because the VM runs removes nothing: the VM stays published.
func TestMigrateAfterAWithdrawalThatWasRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.publishedFrom(inventory.PoweredOn)
	b.started = true
	if err := p.Rollback(t.Context(), b.plan().ID, b.rig(t, b.dir)); !fault.Is(err, fault.Conflict) {
		t.Fatalf("the VM runs: %v", err)
	}
	if r, err := p.store.Run(b.plan().ID); err != nil || r.State != journal.Done {
		t.Errorf("the run is %+v, %v", r, err)
	}
	if out, err := p.Migrate(t.Context(), b.plan(), b.rig(t, b.dir), migrate.Permit{PowerOff: true}); err != nil || !out.Repeated {
		t.Errorf("then Migrate: %+v, %v", out, err)
	}
	b.started = false
	b.rollBack(p, inventory.PoweredOn)
}

// A run that is given up before it is done leaves the VM running, if it was.
func TestRollbackOfWhatIsUnfinished(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.vm.Power = inventory.PoweredOn
	b.before = failing("finish", errors.New("broken"))
	if _, err := b.migrate(migrate.Permit{PowerOff: true}); err == nil || b.vm.Power != inventory.PoweredOff {
		t.Fatalf("it did not fail, or the VM is %s", b.vm.Power)
	}
	b.before = failing("", nil)
	b.rollBack(b.process(), inventory.PoweredOn)
	if len(b.images) > 0 {
		t.Errorf("%d images are left", len(b.images))
	}
}

// A run whose journal is on another machine is not undone here, and not taken for one that never began.
func TestUndoWithoutTheJournal(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.vm.Power = inventory.PoweredOn
	b.before = failing("finish", errors.New("broken"))
	p := b.process()
	if _, err := p.Migrate(t.Context(), b.plan(), b.rig(t, b.dir), migrate.Permit{PowerOff: true}); err == nil {
		t.Fatal("it did not fail")
	}
	b.before = failing("", nil)
	id := b.plan().ID
	elsewhere := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Rename(p.store.Folder(id), filepath.Join(elsewhere, "run")))
	for what, undo := range map[string]func(context.Context, journal.ID, migrate.Environment) error{"discard": p.Discard, "rollback": p.Rollback} {
		err := undo(t.Context(), id, b.rig(t, b.dir))
		if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), filepath.Join(b.dir, "2000")) || !strings.Contains(err.Error(), "powered off") {
			t.Errorf("%s: %v", what, err)
		}
	}
	must(os.Rename(filepath.Join(elsewhere, "run"), p.store.Folder(id)))
	b.rollBack(p, inventory.PoweredOn) // then it is NotFound
}
