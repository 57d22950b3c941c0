package migrate_test

import (
	"fmt"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/migrate"
)

// growth completes the short last chunk of disk 2000 and adds more chunks.
const growth = 3*mib + 1024

// growAt lets disk 2000 grow at the n-th event, counted from 0, at which mayGrow is true. The returned event is
// set when the disk grows.
func (b *testBed) growAt(n int) *journal.Event {
	var at journal.Event
	b.interfere = func(e journal.Event) bool {
		if !b.mayGrow(e) {
			return false
		}
		if n--; n >= 0 || !b.growDisk(2000, growth) {
			return false
		}
		at = e
		b.writeInGuest()
		return true
	}
	return &at
}

// mayGrow reports whether a disk may grow at the event: there is no snapshot, and no VM is
// published.
func (b *testBed) mayGrow(e journal.Event) bool {
	b.world.mu.Lock()
	defer b.world.mu.Unlock()
	candidate := e.Kind == journal.StepStarted || e.Kind == journal.RoundDone || e.Kind == journal.PowerChanged || e.Kind == journal.DiskDone
	return candidate && b.published == nil && len(b.guest.snapshots) == 0
}

// A disk that grows at any time during a run is copied with its final content. After the last round of copies, growth
// may be a conflict instead. decamp does not use the host's list of changes across the growth: it is incomplete.
func TestWarmDiskGrowsAtAnyTime(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	t.Parallel()
	probe := newWarmTestBed(t, 20)
	events := 0
	probe.interfere = func(e journal.Event) bool {
		if probe.mayGrow(e) {
			events++
		}
		return false
	}
	if _, err := probe.migrateWarm(2); err != nil {
		t.Fatal(err)
	}
	for n := 0; n < events; n += killInterval {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			b := newWarmTestBed(t, 20)
			at := b.growAt(n)
			out, err := b.migrateWarm(2)
			if err != nil && at.Step == stepLast { // the disk was being read
				b.interfere = nil
				out, err = b.migrateWarm(1)
			}
			switch {
			case at.Kind == "":
				return // this run had fewer events than the first one
			case err == nil:
				b.checkPublished(out)
				b.checkGrown(out, at)
				b.checkNoSnapshots()
			case !isLate(at.Step) || !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" || b.published != nil:
				t.Errorf("%s in %s: %v, published %v", at.Kind, at.Step, err, b.published)
			}
		})
	}
}

// isLate reports whether a disk that grows in that step may be too late to be copied.
func isLate(step string) bool {
	switch step {
	case stepLast, migrate.StepDetect, migrate.StepConvert, migrate.StepVerify, migrate.StepCommit:
		return true
	}
	return false
}

// checkGrown checks the result of a run and its events after a disk grew.
func (b *testBed) checkGrown(out migrate.Outcome, at *journal.Event) {
	b.t.Helper()
	size := int64(5*mib + 512 + growth)
	if d := out.Facts.VM.Disks[0]; d.Capacity != size || b.published.Images[0].Size != size || b.published.VM.Disks[0].Capacity != size {
		b.t.Errorf("%s in %s: the disk is published with %d bytes, its image %d", at.Kind, at.Step, d.Capacity, b.published.Images[0].Size)
	}
	want := 1
	if at.Step == "" || at.Step == stepPrepare { // the size was not read before
		want = 0
	}
	if notes := b.eventsOf(journal.Noted); len(notes) > 1 || len(notes) < want || len(notes) > 0 && notes[0].Disk != 2000 {
		b.t.Errorf("%s in %s: notes %+v", at.Kind, at.Step, notes)
	}
	if w := out.Facts.Warm; at.Step == stepWait && len(w.Rounds) > 0 && w.Rounds[len(w.Rounds)-1].Read > b.vm.Disks[0].Capacity/2 {
		b.t.Errorf("%s in %s: rounds %+v: the disk is compared in the outage", at.Kind, at.Step, w.Rounds)
	}
}

// A disk that grew is compared in another round while the VM runs, also after the command to cut
// over. The comparison does not extend the outage.
func TestWarmGrownDiskIsComparedBeforeOutage(t *testing.T) {
	t.Parallel()
	for _, step := range []string{stepWait, stepPowerOff} {
		b := newWarmTestBed(t, 21)
		b.interfere = func(e journal.Event) bool {
			return e.Kind == journal.StepStarted && e.Step == step && b.growDisk(2000, growth)
		}
		out, err := b.migrateWarm(1)
		if err != nil {
			t.Fatal(err)
		}
		b.checkPublished(out)
		w := out.Facts.Warm
		last := w.Rounds[len(w.Rounds)-1]
		if len(w.Rounds) < 3 || w.Rounds[1].Read < 5*mib || last.Read > 3*mib || w.Rounds[1].Compared || !w.WasOn {
			t.Errorf("grown in %s: rounds %+v, on before: %v", step, w.Rounds, w.WasOn)
		}
		if len(w.Grown) > 0 {
			t.Errorf("still to be compared: %v", w.Grown)
		}
	}
}

// A disk that grows after the VM was powered off is compared in the outage.
func TestWarmDiskGrowingInOutageIsCompared(t *testing.T) {
	t.Parallel()
	b := newWarmTestBed(t, 22)
	b.interfere = func(e journal.Event) bool {
		return e.Kind == journal.PowerChanged && b.vm.Power == inventory.PoweredOff && b.growDisk(2000, growth)
	}
	out, err := b.migrateWarm(1)
	if err != nil {
		t.Fatal(err)
	}
	b.checkPublished(out)
	b.checkNoSnapshots()
	if w := out.Facts.Warm; w.Rounds[len(w.Rounds)-1].Read < 8*mib {
		t.Errorf("rounds %+v: the last one did not read the whole disk", w.Rounds)
	}
}

// If the target has no room for a disk that grew, the run ends before it changes anything. With enough room the
// same command continues.
func TestWarmGrownDiskDoesNotFitTarget(t *testing.T) {
	t.Parallel()
	b := newWarmTestBed(t, 23)
	b.interfere = func(e journal.Event) bool {
		if e.Kind != journal.RoundDone || !b.growDisk(2000, growth) {
			return false
		}
		b.world.mu.Lock()
		defer b.world.mu.Unlock()
		b.ops = nil
		b.before = failOperation("plan", fault.New(fault.Full, "no room").WithHint("make some"))
		return true
	}
	_, err := b.migrateWarm(2)
	if !fault.Is(err, fault.Full) || fault.HintOf(err) == "" {
		t.Fatalf("got %v, remedy %q", err, fault.HintOf(err))
	}
	for _, op := range b.ops {
		if op == "freeze" || op == "grow image" || op == "open image" {
			t.Errorf("operations %v", b.ops)
			break
		}
	}
	b.checkNoSnapshots()
	b.before, b.interfere = failOperation("", nil), nil
	out, err := b.migrateWarm(1)
	if err != nil {
		t.Fatal(err)
	}
	b.checkPublished(out)
}

// A decamp snapshot that has the smaller disk is replaced by a new one.
func TestWarmSnapshotOfTheSmallerDiskIsReplaced(t *testing.T) {
	t.Parallel()
	b := newWarmTestBed(t, 25)
	b.interfere = func(e journal.Event) bool {
		if e.Kind != journal.RoundDone || !b.growDisk(2000, growth) {
			return false
		}
		b.world.mu.Lock()
		defer b.world.mu.Unlock()
		b.guest.generation++
		before := map[int32][]byte{2000: b.disks[2000][:5*mib+512], 2001: b.disks[2001]}
		b.shareDisk(2000)
		b.shareDisk(2001)
		b.guest.snapshots[fmt.Sprintf("decamp %s 2", e.Run)] = snapshotState{b.guest.generation, before}
		return true
	}
	out, err := b.migrateWarm(2)
	if err != nil {
		t.Fatal(err)
	}
	b.checkPublished(out)
	b.checkNoSnapshots()
	if n := len(b.eventsOf(journal.StepRetried)); n != 1 {
		t.Errorf("retried %d times", n)
	}
}

// decamp is killed and the power fails at any operation. The disk grows before, or while no process runs. The same
// command publishes an image of the larger disk.
func TestWarmGrowthKilledAtEveryOperation(t *testing.T) {
	if testing.Short() {
		t.Skip("kills a run at every operation")
	}
	t.Parallel()
	begin := func(t *testing.T, late bool) *testBed {
		b := newWarmTestBed(t, 24)
		b.t = t
		if !late {
			b.interfere = func(e journal.Event) bool { return e.Kind == journal.RoundDone && b.growDisk(2000, growth) }
		}
		return b
	}
	for _, late := range []bool{false, true} {
		probe := begin(t, late)
		if _, err := probe.migrateWarm(2); err != nil {
			t.Fatal(err)
		}
		for at := 0; at < len(probe.ops); at += killInterval * (4 + at/8) {
			t.Run(fmt.Sprint(at, late), func(t *testing.T) {
				t.Parallel()
				b := begin(t, late)
				if out, failed := b.killWarmRunAt(at); !failed {
					b.checkPublished(out)
					return
				}
				b.powerCut()
				b.writeInGuest()
				if late { // another user removes the snapshots, and the disk grows
					clear(b.guest.snapshots)
					b.growDisk(2000, growth)
					b.writeInGuest()
				}
				finished := b.allFinished()
				b.before, b.interfere = failOperation("", nil), nil
				out, err := b.migrateWarm(1)
				if late && finished && fault.Is(err, fault.Conflict) && b.published == nil {
					return // the copy was complete, and the VM was off
				}
				if err != nil {
					t.Fatal(err)
				}
				b.checkPublished(out)
				b.checkNoSnapshots()
			})
		}
	}
}

// allFinished reports whether there is a finished image of every disk.
func (b *testBed) allFinished() bool {
	for _, m := range b.images {
		if !m.finished {
			return false
		}
	}
	return len(b.images) == len(b.disks)
}
