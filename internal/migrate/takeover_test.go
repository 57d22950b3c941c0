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

// While another process has the images nothing is done to them, to the record or to the VM.
func TestImagesThatAnotherHasAreLeftAlone(t *testing.T) {
	t.Parallel()
	b := interrupted(t)
	safe := fmt.Sprint(b.safe())
	b.held, b.ops = true, nil
	p := b.process()
	if _, err := p.Migrate(t.Context(), b.plan(), b.rig(t, b.dir), migrate.Permit{}); !fault.Is(err, fault.Transient) {
		t.Errorf("migrate: %v", err)
	}
	if err := p.Discard(t.Context(), b.plan().ID, b.rig(t, b.dir)); !fault.Is(err, fault.Transient) {
		t.Errorf("discard: %v", err)
	}
	if err := p.engine.Close(); err != nil {
		t.Fatal(err)
	}
	if len(b.ops) > 0 || fmt.Sprint(b.safe()) != safe {
		t.Errorf("done: %v", b.ops)
	}
	b.held = false
	b.continued()
	if b.held {
		t.Error("the images are still held when the run is left")
	}
}

// killedAt kills a warm run before its n-th operation of a kind.
func (b *bench) killedAt(op string, n int) {
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
	if _, err := b.warm(3); err == nil {
		b.t.Fatalf("nothing failed at %s", op)
	}
	b.powerCut()
	b.before = failing("", nil)
}

// Who takes a run over removes the snapshots of whoever drove it before, and nobody else's.
func TestTakerRemovesEarlierSnapshots(t *testing.T) {
	t.Parallel()
	for _, fresh := range []bool{false, true} { // with records of its own
		b := warmBench(t, 41)
		b.epoch = 1
		b.killedAt("thaw", 3) // each round has one
		if _, left := b.guest.snapshots[fmt.Sprintf("decamp %s 3 e1", b.plan().ID)]; !left {
			t.Fatalf("the test left %d other snapshots", len(b.guest.snapshots))
		}
		others := []string{"nightly", "decamp web01-ffffff 1", fmt.Sprintf("decamp %sa 1 e1", b.plan().ID)}
		for _, name := range others {
			b.guest.snapshots[name] = moment{}
		}
		if fresh {
			b.forget()
		}
		b.epoch = 2
		var taken []string
		b.before = func(_ context.Context, op string) error {
			b.world.mu.Lock()
			defer b.world.mu.Unlock()
			for name := range b.guest.snapshots {
				if op == "read" && strings.HasPrefix(name, snapshotsOf(b.plan().ID)) {
					taken = append(taken, name)
				}
			}
			return nil
		}
		out, err := b.warm(1)
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
			t.Errorf("%d snapshots are left, want %d", len(b.guest.snapshots), len(others))
		}
		for _, name := range taken {
			if !strings.HasSuffix(name, " e2") {
				t.Errorf("snapshot %q was there when the next one read", name)
			}
		}
	}
}

// forget loses decamp's records; images and manifests stay.
func (b *bench) forget() {
	b.t.Helper()
	if err := os.RemoveAll(filepath.Join(b.dir, "state")); err != nil {
		b.t.Fatal(err)
	}
}

// Images of which no record says how old they are hold nothing that is taken for new: all of
// them is compared, once, and what is right is not written again.
func TestImagesWithoutARecordAreCompared(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	t.Parallel()
	for _, n := range []int{1, 2, 3, 5} { // two disks in each of three rounds, the last in the outage
		b := warmBench(t, uint64(40+n))
		b.killedAt("changed", n)
		for range 30 {
			b.work()
		}
		b.forget()
		b.reads, b.ops = map[int32][]disk.Range{}, nil
		out, err := b.warm(2)
		if err != nil {
			t.Fatal(err)
		}
		b.checkPublished(out)
		b.nothingLeft()
		w := out.Facts.Warm
		if !w.Rounds[0].Compared && w.Rounds[0].Read < 8*mib {
			t.Errorf("%d: the first round read %d bytes", n, w.Rounds[0].Read)
		}
		if w.Rounds[1].Read >= w.Rounds[0].Read {
			t.Errorf("%d: rounds %+v: it is compared again and again", n, w.Rounds)
		}
	}
}

// A cold run on top of what a warm one left begins anew: the VM ran since.
func TestColdRunDoesNotTrustWhatAWarmOneLeft(t *testing.T) {
	t.Parallel()
	b := warmBench(t, 49)
	b.killedAt("changed", 4)
	for range 30 {
		b.work()
	}
	b.forget()
	clear(b.guest.snapshots)
	b.vm.Power = "off"
	out, err := b.migrate(migrate.Permit{})
	if err != nil {
		t.Fatal(err)
	}
	b.checkPublished(out)
	if len(b.told(journal.DiskRestarted)) == 0 {
		t.Error("nobody was told")
	}
}
