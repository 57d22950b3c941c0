package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/migrate"
)

// While another process has locked the images, decamp changes neither them nor the record nor the VM.
func TestLockedImagesAreNotChanged(t *testing.T) {
	t.Parallel()
	b := newInterruptedRun(t)
	proven := fmt.Sprint(b.provenChunks())
	b.locked, b.ops = true, nil
	p := b.newProcess()
	if _, err := p.Migrate(t.Context(), b.plan(), b.newEnvironment(t, b.dir), migrate.Permit{}); !fault.Is(err, fault.Transient) {
		t.Errorf("migrate: %v", err)
	}
	if err := p.Discard(t.Context(), b.plan().ID, b.newEnvironment(t, b.dir)); !fault.Is(err, fault.Transient) {
		t.Errorf("discard: %v", err)
	}
	if err := p.engine.Close(); err != nil {
		t.Fatal(err)
	}
	if len(b.ops) > 0 || fmt.Sprint(b.provenChunks()) != proven {
		t.Errorf("operations %v, or proven chunks changed", b.ops)
	}
	b.locked = false
	b.continueRun()
	if b.locked {
		t.Error("the images are still locked after the run")
	}
}

// killBefore kills a warm run before its n-th operation with the given name.
func (b *testBed) killBefore(op string, n int) {
	b.t.Helper()
	dead := false
	b.before = func(_ context.Context, now string) error {
		b.world.mu.Lock()
		defer b.world.mu.Unlock()
		if now == op {
			n--
		}
		if dead = dead || n <= 0; dead {
			return errors.New("killed")
		}
		return nil
	}
	if _, err := b.migrateWarm(3); err == nil {
		b.t.Fatalf("the run did not fail at %s", op)
	}
	b.powerCut()
	b.before = failOperation("", nil)
}

// A process that takes a run over removes the snapshots of the process before it, and no others.
func TestTakeoverRemovesEarlierSnapshots(t *testing.T) {
	t.Parallel()
	for _, fresh := range []bool{false, true} { // true: the state directory is new
		b := newWarmTestBed(t, 41)
		b.epoch = 1
		b.killBefore("thaw", 3) // once per round
		if _, left := b.guest.snapshots[fmt.Sprintf("decamp %s 3 e1", b.plan().ID)]; !left {
			t.Fatalf("the snapshot of the third round is not there; %d others are", len(b.guest.snapshots))
		}
		others := []string{"nightly", "decamp web01-ffffff 1", fmt.Sprintf("decamp %sa 1 e1", b.plan().ID)}
		for _, name := range others {
			b.guest.snapshots[name] = snapshotState{}
		}
		if fresh {
			b.removeState()
		}
		b.epoch = 2
		var found []string // decamp's snapshots during reads
		b.before = func(_ context.Context, op string) error {
			b.world.mu.Lock()
			defer b.world.mu.Unlock()
			for name := range b.guest.snapshots {
				if op == "read" && strings.HasPrefix(name, snapshotPrefix(b.plan().ID)) {
					found = append(found, name)
				}
			}
			return nil
		}
		out, err := b.migrateWarm(1)
		if err != nil {
			t.Fatal(err)
		}
		b.checkPublished(out)
		for _, name := range others {
			if _, there := b.guest.snapshots[name]; !there {
				t.Errorf("%q was removed", name)
			}
		}
		if len(b.guest.snapshots) != len(others) {
			t.Errorf("%d snapshots remain, want %d", len(b.guest.snapshots), len(others))
		}
		for _, name := range found {
			if !strings.HasSuffix(name, " e2") {
				t.Errorf("snapshot %q still existed when the next process read", name)
			}
		}
	}
}

// removeState removes decamp's state directory. Images and manifests remain.
func (b *testBed) removeState() {
	b.t.Helper()
	if err := os.RemoveAll(filepath.Join(b.dir, "state")); err != nil {
		b.t.Fatal(err)
	}
}

// Images without a record may be outdated. A warm run compares all of their data once, and does not write equal
// chunks again.
func TestImagesWithoutARecordAreCompared(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	t.Parallel()
	for _, n := range []int{1, 2, 3, 5} { // two disks in each of three rounds, the last in the outage
		b := newWarmTestBed(t, uint64(40+n))
		b.killBefore("changed", n)
		for range 30 {
			b.writeInGuest()
		}
		b.removeState()
		b.reads, b.ops = map[int32][]disk.Range{}, nil
		out, err := b.migrateWarm(2)
		if err != nil {
			t.Fatal(err)
		}
		b.checkPublished(out)
		b.checkNoSnapshots()
		w := out.Facts.Warm
		if !w.Rounds[0].Compared && w.Rounds[0].Read < 8*mib {
			t.Errorf("%d: the first round read %d bytes", n, w.Rounds[0].Read)
		}
		if w.Rounds[1].Read >= w.Rounds[0].Read {
			t.Errorf("%d: rounds %+v: the second round compares all data again", n, w.Rounds)
		}
	}
}

// A cold run copies the images of a warm run again, because the VM ran since then.
func TestColdRunCopiesImagesOfWarmRunAgain(t *testing.T) {
	t.Parallel()
	b := newWarmTestBed(t, 49)
	b.killBefore("changed", 4)
	for range 30 {
		b.writeInGuest()
	}
	b.removeState()
	clear(b.guest.snapshots)
	b.vm.Power = "off"
	out, err := b.migrate(migrate.Permit{})
	if err != nil {
		t.Fatal(err)
	}
	b.checkPublished(out)
	if len(b.eventsOf(journal.DiskRestarted)) == 0 {
		t.Error("no event reports the new copy")
	}
}
