package migrate_test

import (
	"fmt"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/migrate"
)

// growth makes the chunk of disk 2000 that is short a whole one, and adds more.
const growth = 3*mib + 1024

// growAt lets disk 2000 grow at the nth event that finds it without a snapshot, from 0, and
// returns where that was.
func (b *bench) growAt(n int) *journal.Event {
	var at journal.Event
	b.meddle = func(e journal.Event) bool {
		if !b.mayGrow(e) {
			return false
		}
		if n--; n >= 0 || !b.grow(2000, growth) {
			return false
		}
		at = e
		b.work()
		return true
	}
	return &at
}

// mayGrow reports whether an event is one to let a disk grow at: it has no snapshot, nothing is
// published.
func (b *bench) mayGrow(e journal.Event) bool {
	b.world.mu.Lock()
	defer b.world.mu.Unlock()
	moment := e.Kind == journal.StepStarted || e.Kind == journal.RoundDone || e.Kind == journal.PowerChanged || e.Kind == journal.DiskDone
	return moment && b.published == nil && len(b.guest.snapshots) == 0
}

// A disk that grows at any moment of a run is copied as it is in the end, unless it grows when
// all of it was copied and the VM is off. Changes are told wrong across it, and nobody asks.
func TestWarmDiskThatGrows(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	t.Parallel()
	probe := warmBench(t, 20)
	events := 0
	probe.meddle = func(e journal.Event) bool {
		if probe.mayGrow(e) {
			events++
		}
		return false
	}
	if _, err := probe.warm(2); err != nil {
		t.Fatal(err)
	}
	for n := 0; n < events; n += sparse {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			b := warmBench(t, 20)
			at := b.growAt(n)
			out, err := b.warm(2)
			if err != nil && at.Step == stepLast { // it was being read
				b.meddle = nil
				out, err = b.warm(1)
			}
			switch {
			case at.Kind == "":
				return // there was one event less than the first time
			case err == nil:
				b.checkPublished(out)
				b.checkGrown(out, at)
				b.nothingLeft()
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

// checkGrown checks what a run says of a disk that grew.
func (b *bench) checkGrown(out migrate.Outcome, at *journal.Event) {
	b.t.Helper()
	size := int64(5*mib + 512 + growth)
	if d := out.Facts.VM.Disks[0]; d.Capacity != size || b.published.Images[0].Size != size || b.published.VM.Disks[0].Capacity != size {
		b.t.Errorf("%s in %s: the disk is published with %d bytes, its image %d", at.Kind, at.Step, d.Capacity, b.published.Images[0].Size)
	}
	wanted := 1
	if at.Step == "" || at.Step == stepPrepare { // it was not looked at before
		wanted = 0
	}
	if told := b.told(journal.Noted); len(told) > 1 || len(told) < wanted || len(told) > 0 && told[0].Disk != 2000 {
		b.t.Errorf("%s in %s: told %+v", at.Kind, at.Step, told)
	}
	if w := out.Facts.Warm; at.Step == stepWait && len(w.Rounds) > 0 && w.Rounds[len(w.Rounds)-1].Read > b.vm.Disks[0].Capacity/2 {
		b.t.Errorf("%s in %s: rounds %+v: it is compared in the outage", at.Kind, at.Step, w.Rounds)
	}
}

// While the VM runs a disk that grew is compared in another round, also if the order to cut
// over was given: the outage does not wait for that.
func TestWarmDiskThatGrewIsComparedBeforeTheOutage(t *testing.T) {
	t.Parallel()
	for _, step := range []string{stepWait, stepPowerOff} {
		b := warmBench(t, 21)
		b.meddle = func(e journal.Event) bool {
			return e.Kind == journal.StepStarted && e.Step == step && b.grow(2000, growth)
		}
		out, err := b.warm(1)
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

// A disk that grows when the VM is off already is compared in the outage, which is said.
func TestWarmDiskThatGrowsInTheOutage(t *testing.T) {
	t.Parallel()
	b := warmBench(t, 22)
	b.meddle = func(e journal.Event) bool {
		return e.Kind == journal.PowerChanged && b.vm.Power == inventory.PoweredOff && b.grow(2000, growth)
	}
	out, err := b.warm(1)
	if err != nil {
		t.Fatal(err)
	}
	b.checkPublished(out)
	b.nothingLeft()
	if w := out.Facts.Warm; w.Rounds[len(w.Rounds)-1].Read < 8*mib {
		t.Errorf("rounds %+v: not all of it was read", w.Rounds)
	}
}

// A disk that grew and does not fit ends the run before anything is changed; with room the
// same command goes on.
func TestWarmDiskThatGrewAndDoesNotFit(t *testing.T) {
	t.Parallel()
	b := warmBench(t, 23)
	b.meddle = func(e journal.Event) bool {
		if e.Kind != journal.RoundDone || !b.grow(2000, growth) {
			return false
		}
		b.world.mu.Lock()
		defer b.world.mu.Unlock()
		b.ops = nil
		b.before = failing("plan", fault.New(fault.Full, "no room").WithHint("make some"))
		return true
	}
	_, err := b.warm(2)
	if !fault.Is(err, fault.Full) || fault.HintOf(err) == "" {
		t.Fatalf("got %v, remedy %q", err, fault.HintOf(err))
	}
	for _, op := range b.ops {
		if op == "freeze" || op == "grow image" || op == "open image" {
			t.Errorf("operations %v", b.ops)
			break
		}
	}
	b.nothingLeft()
	b.before, b.meddle = failing("", nil), nil
	out, err := b.warm(1)
	if err != nil {
		t.Fatal(err)
	}
	b.checkPublished(out)
}

// A snapshot of ours that is there already and is of the smaller disk makes room for another.
func TestWarmSnapshotOfTheSmallerDiskIsReplaced(t *testing.T) {
	t.Parallel()
	b := warmBench(t, 25)
	b.meddle = func(e journal.Event) bool {
		if e.Kind != journal.RoundDone || !b.grow(2000, growth) {
			return false
		}
		b.world.mu.Lock()
		defer b.world.mu.Unlock()
		b.guest.moment++
		before := map[int32][]byte{2000: b.disks[2000][:5*mib+512], 2001: b.disks[2001]}
		b.share(2000)
		b.share(2001)
		b.guest.snapshots[fmt.Sprintf("decamp %s 2", e.Run)] = moment{b.guest.moment, before}
		return true
	}
	out, err := b.warm(2)
	if err != nil {
		t.Fatal(err)
	}
	b.checkPublished(out)
	b.nothingLeft()
	if n := len(b.told(journal.StepRetried)); n != 1 {
		t.Errorf("retried %d times", n)
	}
}

// TestWarmGrownAndKilledAnywhere kills decamp, and takes its power away, at any operation of a
// run whose disk grew before, or grows while nobody is there: the same command ends with the
// image of the larger disk.
func TestWarmGrownAndKilledAnywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("kills a run at every operation")
	}
	t.Parallel()
	begin := func(t *testing.T, late bool) *bench {
		b := warmBench(t, 24)
		b.t = t
		if !late {
			b.meddle = func(e journal.Event) bool { return e.Kind == journal.RoundDone && b.grow(2000, growth) }
		}
		return b
	}
	for _, late := range []bool{false, true} {
		probe := begin(t, late)
		if _, err := probe.warm(2); err != nil {
			t.Fatal(err)
		}
		for at := 0; at < len(probe.ops); at += sparse * (4 + at/8) {
			t.Run(fmt.Sprint(at, late), func(t *testing.T) {
				t.Parallel()
				b := begin(t, late)
				if out, failed := b.warmKilledAt(at); !failed {
					b.checkPublished(out)
					return
				}
				b.powerCut()
				b.work()
				if late { // somebody cleans up, and lets it grow
					clear(b.guest.snapshots)
					b.grow(2000, growth)
					b.work()
				}
				finished := b.finished()
				b.before, b.meddle = failing("", nil), nil
				out, err := b.warm(1)
				if late && finished && fault.Is(err, fault.Conflict) && b.published == nil {
					return // all was copied, and the VM off
				}
				if err != nil {
					t.Fatal(err)
				}
				b.checkPublished(out)
				b.nothingLeft()
			})
		}
	}
}

// finished reports whether all images are.
func (b *bench) finished() bool {
	for _, m := range b.images {
		if !m.finished {
			return false
		}
	}
	return len(b.images) == len(b.disks)
}
