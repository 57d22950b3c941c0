package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/test/lane"
)

// warmBench is a bench whose VM runs and whose clock moves with every look at it.
func warmBench(t *testing.T, seed uint64) *bench {
	b := newBench(t)
	b.runs(seed)
	return b
}

func (b *bench) warmPlan() journal.Plan {
	p := b.plan()
	p.Warm = true
	return p
}

// waiting is a process for which ten minutes go by whenever it waits; the guest works on meanwhile.
func (b *bench) waiting() *process {
	p := b.process()
	clock := time.Unix(1_800_000_000, 0)
	p.Options().Now = func() time.Time { b.mu.Lock(); defer b.mu.Unlock(); return clock }
	p.Options().Sleep = func(ctx context.Context, d time.Duration) error {
		b.work()
		b.mu.Lock()
		defer b.mu.Unlock()
		clock = clock.Add(10 * time.Minute)
		return ctx.Err()
	}
	return p
}

// warm runs decamp once, as a process of its own, until it has done rounds and is told to
// cut over.
func (b *bench) warm(rounds int) (migrate.Outcome, error) {
	b.t.Helper()
	p := b.waiting()
	had := len(b.told(journal.RoundDone))
	flip, meddle := b.flipAtVerify, b.meddle
	b.onEvent = func(e journal.Event) {
		if e.Kind == journal.StepStarted && e.Step == "verify" && flip != nil {
			off := flip()
			b.image().now[off] ^= 1
			flip = nil
		}
		if meddle != nil && meddle(e) {
			meddle = nil
		}
		if e.Kind == journal.RoundDone {
			if had++; had >= rounds {
				if err := p.store.SendCommand(e.Run, journal.CutOver); err != nil {
					b.t.Error(err)
				}
			}
		}
	}
	out, err := p.Migrate(b.t.Context(), b.warmPlan(), b.rig(b.t, b.dir), migrate.Permit{Paranoid: b.paranoid, Start: b.start})
	if cerr := p.engine.Close(); cerr != nil {
		b.t.Fatal(cerr)
	}
	return out, err
}

// nothingLeft checks that the host has nothing of ours.
func (b *bench) nothingLeft() {
	b.t.Helper()
	for name := range b.guest.snapshots {
		b.t.Errorf("snapshot %q is left", name)
	}
}

func TestWarm(t *testing.T) {
	t.Parallel()
	for rounds := range 4 {
		b := warmBench(t, uint64(rounds))
		out, err := b.warm(rounds + 1)
		if err != nil {
			t.Fatal(err)
		}
		b.checkPublished(out)
		b.nothingLeft()
		if w := out.Facts.Warm; len(w.Rounds) != rounds+2 || w.Rounds[rounds+1].Read >= w.Rounds[0].Read/2 {
			t.Errorf("rounds %+v: want %d, and less in the last", w.Rounds, rounds+2)
		}
		if b.vm.Power != inventory.PoweredOff {
			t.Error("the source runs after the cutover")
		}
		for _, e := range b.told(journal.OutageEstimated) {
			if e.OutageEstimate == nil || e.OutageEstimate.Outage < shutdownGuess {
				t.Errorf("told %+v", e.OutageEstimate)
			}
		}
		if n := len(b.told(journal.OutageEstimated)); rounds > 0 && n == 0 {
			t.Error("nobody was told what a cutover would mean")
		}
	}
}

// A run that is told to cut over long after its last round does another first: what gathered
// is copied while the VM runs. At a time that was set it begins early enough.
func TestWarmApproachesTheCutover(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"told", "at a time"} {
		b := warmBench(t, 16)
		p := b.process()
		began := time.Unix(1_800_000_000, 0)
		clock, looks := began, 0
		p.Options().Now = func() time.Time { b.mu.Lock(); defer b.mu.Unlock(); return clock }
		p.Options().Sleep = func(ctx context.Context, _ time.Duration) error {
			b.work()
			b.mu.Lock()
			clock = clock.Add(20 * time.Second)
			looks++
			tell := looks == 10 && how == "told"
			b.mu.Unlock()
			if tell {
				if err := p.store.SendCommand(b.plan().ID, journal.CutOver); err != nil {
					b.t.Error(err)
				}
			}
			return ctx.Err()
		}
		permit := migrate.Permit{}
		if how == "at a time" {
			permit.Cutover.At = began.Add(200 * time.Second)
		}
		out, err := p.Migrate(t.Context(), b.warmPlan(), b.rig(t, b.dir), permit)
		if err := errors.Join(err, p.engine.Close()); err != nil {
			t.Fatal(err)
		}
		b.checkPublished(out)
		w := out.Facts.Warm
		if len(w.Rounds) != 3 || w.Rounds[2].Read >= w.Rounds[1].Read {
			t.Errorf("%s: rounds %+v: want three, and less in the last", how, w.Rounds)
		}
	}
}

// TestWarmWithoutTracking: nobody knows what changed, so everything is compared.
func TestWarmWithoutTracking(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"refused", "forgotten"} {
		b := warmBench(t, 5)
		if how == "refused" {
			b.vm.ChangeTracking, b.guest.tracking = false, false
			b.before = failing("track", fault.New(fault.Unsupported, "the licence forbids it"))
		}
		b.guest.forgets = true
		out, err := b.warm(2)
		if err != nil {
			t.Fatal(err)
		}
		b.checkPublished(out)
		b.nothingLeft()
		if w := out.Facts.Warm; w.Rounds[1].Read < w.Rounds[0].Read {
			t.Errorf("%s: rounds %+v: want all of it read", how, w.Rounds)
		}
		warned := slices.ContainsFunc(b.told(journal.Warned), func(e journal.Event) bool { return e.Warning.Code == "no-change-tracking" })
		if warned != (how == "refused") {
			t.Errorf("%s: warned of missing change tracking: %v", how, warned)
		}
	}
}

// TestWarmTrackingRefusedLogin: a password that expired when tracking was to be turned on ends
// the attempt, as anywhere; it makes no run blind. The next one goes on with tracking.
func TestWarmTrackingRefusedLogin(t *testing.T) {
	t.Parallel()
	b := warmBench(t, 6)
	b.vm.ChangeTracking, b.guest.tracking = false, false
	b.before = failing("track", fault.New(fault.Denied, "incorrect user name or password"))
	if _, err := b.warm(2); !fault.Is(err, fault.Denied) {
		t.Fatalf("it went on, or: %v", err)
	}
	b.before = failing("", nil)
	out, err := b.warm(2)
	if err != nil {
		t.Fatal(err)
	}
	b.checkPublished(out)
	b.nothingLeft()
	if out.Facts.Warm.Untracked {
		t.Error("the run is blind")
	}
}

// TestWarmKilledAnywhere kills decamp, and takes its power away, at any operation: the same
// command ends with the image of the VM as it was when it was powered off.
func TestWarmKilledAnywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("kills a run at every operation")
	}
	t.Parallel()
	probe := warmBench(t, 7)
	if _, err := probe.warm(2); err != nil {
		t.Fatal(err)
	}
	steps := len(probe.ops)
	for at := 0; at < steps; at += min(2, sparse) * (2 + at/20) {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			t.Parallel()
			b := warmBench(t, 7)
			if out, failed := b.warmKilledAt(at); !failed {
				b.checkPublished(out)
				return
			}
			b.powerCut()
			b.work()
			if at%3 == 0 { // somebody cleans up
				clear(b.guest.snapshots)
			}
			b.before = func(context.Context, string) error { return nil }
			out, err := b.warm(1)
			if err != nil {
				t.Fatal(err)
			}
			b.checkPublished(out)
			b.nothingLeft()
		})
	}
}

// TestWarmGivenUp: the VM is as it was found.
func TestWarmGivenUp(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"freeze", "changed", "finish", "publish"} {
		b := warmBench(t, 8)
		b.vm.ChangeTracking, b.guest.tracking = false, false
		b.before = failing(op, fault.New(fault.Conflict, "not now"))
		if _, err := b.warm(1); err == nil {
			t.Fatalf("nothing failed at %s", op)
		}
		b.before = func(context.Context, string) error { return nil }
		p := b.process()
		if err := p.Discard(t.Context(), b.plan().ID, b.rig(t, b.dir)); err != nil {
			t.Fatal(err)
		}
		b.nothingLeft()
		if b.guest.tracking || b.vm.Power != inventory.PoweredOn || len(b.images) > 0 {
			t.Errorf("given up at %s: tracking %v, power %s, %d images", op, b.guest.tracking, b.vm.Power, len(b.images))
		}
		if err := p.engine.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A round whose snapshot was taken and not told of any more leaves none: neither when the run
// stops nor when it is given up. (Its step was done before, in another round.)
func TestWarmSnapshotOfAFailedStepIsRemoved(t *testing.T) {
	t.Parallel()
	for _, stays := range []bool{false, true} { // it cannot be removed when the run stops
		b := warmBench(t, 17)
		b.vm.ChangeTracking, b.guest.tracking = false, false
		frozen, broken := 0, false
		b.before = func(_ context.Context, op string) error {
			b.world.mu.Lock()
			defer b.world.mu.Unlock()
			if op == "frozen" {
				frozen++
			}
			broken = broken || frozen == 3 // the first round's is found once more by its second step
			if broken && (op == "frozen" || op == "thaw" && stays) {
				return fault.New(fault.Conflict, "not now")
			}
			return nil
		}
		if _, err := b.warm(3); err == nil {
			t.Fatal("nothing failed")
		}
		if left := len(b.guest.snapshots); left != 0 != stays {
			t.Errorf("%d snapshots are left", left)
		}
		b.before = failing("", nil)
		b.giveUp()
	}
}

// chunks tells which chunks of disk 2000 the guest wrote to since the last round, and which
// it did not.
func (b *bench) chunks() (touched, untouched []int64) {
	b.world.mu.Lock()
	defer b.world.mu.Unlock()
	disk := b.vm.Disks[0]
	for c := int64(0); c*mib < disk.Capacity; c++ {
		hit := false
		for _, w := range b.guest.writes {
			hit = hit || w.disk == disk.Key && w.moment == b.guest.moment && w.Off < (c+1)*mib && w.End() > c*mib
		}
		if hit {
			touched = append(touched, c)
		} else {
			untouched = append(untouched, c)
		}
	}
	return touched, untouched
}

// In the outage only what the last round wrote is read back. What rots elsewhere after it was
// proven is found by decamp verify, which reads everything.
func TestWarmVerifyReadsWhatTheLastRoundWrote(t *testing.T) {
	t.Parallel()
	b := warmBench(t, 11)
	var off int64
	b.flipAtVerify = func() int64 {
		_, elsewhere := b.chunks()
		off = elsewhere[0]*mib + 99
		return off
	}
	out, err := b.warm(2)
	if err != nil {
		t.Fatal(err)
	}
	touched, elsewhere := b.chunks()
	v := out.Facts.Verified[0]
	if v.VerifiedBefore != int64(len(elsewhere))*mib-b.short(elsewhere) || len(touched) == 0 {
		t.Errorf("%d bytes were not read again, with chunks %v written and %v not", v.VerifiedBefore, touched, elsewhere)
	}
	s, err := manifest.Load(out.Facts.Images[0].Manifest)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	report, err := manifest.Verify(t.Context(), &memSource{w: b.world, key: 2000, data: b.image().now}, s, manifest.VerifyOptions{})
	if !fault.Is(err, fault.Corrupt) || len(report.Bad) != 1 || report.Bad[0].Off != off/mib*mib {
		t.Errorf("what rotted at %d: %v, %+v", off, err, report.Bad)
	}
}

// short is what the disk's last chunk lacks of a MiB, if it is among these.
func (b *bench) short(chunks []int64) int64 {
	size := b.vm.Disks[0].Capacity
	if last := (size - 1) / mib; len(chunks) > 0 && chunks[len(chunks)-1] == last {
		return (last+1)*mib - size
	}
	return 0
}

// What the last round wrote is proven before it is published.
func TestWarmVerifyProvesWhatTheLastRoundWrote(t *testing.T) {
	t.Parallel()
	b := warmBench(t, 12)
	b.flipAtVerify = func() int64 {
		touched, _ := b.chunks()
		return touched[0]*mib + 99
	}
	if _, err := b.warm(2); !fault.Is(err, fault.Corrupt) || b.published != nil {
		t.Fatalf("got %v, published %v", err, b.published)
	}
	b.flipAtVerify = nil
	out, err := b.warm(1)
	if err != nil {
		t.Fatal(err)
	}
	b.checkPublished(out)
	b.nothingLeft()
}

// What rots between two rounds is found by the next, and copied again.
func TestWarmRotBetweenRoundsIsMended(t *testing.T) {
	t.Parallel()
	b := warmBench(t, 13)
	flips := 0
	b.before = func(_ context.Context, op string) error {
		b.world.mu.Lock()
		defer b.world.mu.Unlock()
		if m := b.images[filepath.Join(b.dir, "2000")]; op == "thaw" && m != nil { // written, and not read back
			flips++
			m.mu.Lock()
			m.now[2*mib+5] ^= 1
			m.mu.Unlock()
		}
		return nil
	}
	out, err := b.warm(1)
	if err != nil {
		t.Fatal(err)
	}
	if flips == 0 || len(b.told(journal.ChunkBad)) == 0 {
		t.Errorf("%d flips, told %v", flips, b.told(journal.ChunkBad))
	}
	b.checkPublished(out)
}

// Disks that come, go or shrink between two rounds: a conflict, before the VM is switched off,
// with nothing of ours left; given up, the VM is as it was found.
func TestWarmDisksThatChange(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	t.Parallel()
	for name, change := range map[string]func(b *bench){
		"added":   func(b *bench) { b.addDisk(2002, mib) },
		"removed": func(b *bench) { b.vm.Disks = b.vm.Disks[:1] },
		"shrunk": func(b *bench) {
			b.vm.Disks[0].Capacity -= mib
			b.disks[2000] = b.disks[2000][:b.vm.Disks[0].Capacity]
		},
	} {
		for _, when := range []journal.EventKind{journal.RoundDone, journal.StepStarted} { // of the first round; of the cutover
			t.Run(fmt.Sprint(name, when), func(t *testing.T) {
				t.Parallel()
				b := warmBench(t, 14)
				b.vm.ChangeTracking, b.guest.tracking = false, false
				b.meddle = func(e journal.Event) bool {
					if e.Kind != when || e.Kind == journal.StepStarted && e.Step != stepPowerOff {
						return false
					}
					b.world.mu.Lock()
					defer b.world.mu.Unlock()
					change(b)
					return true
				}
				if _, err := b.warm(2); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
					t.Fatalf("got %v, remedy %q", err, fault.HintOf(err))
				}
				b.nothingLeft()
				if b.vm.Power != inventory.PoweredOn {
					t.Errorf("the VM is %s", b.vm.Power)
				}
				b.giveUp()
			})
		}
	}
}

// giveUp discards the run, and checks that the VM is as it was found.
func (b *bench) giveUp() {
	b.t.Helper()
	p := b.process()
	if err := p.Discard(b.t.Context(), b.plan().ID, b.rig(b.t, b.dir)); err != nil {
		b.t.Fatal(err)
	}
	b.nothingLeft()
	if b.guest.tracking || b.vm.ChangeTracking || b.vm.Power != inventory.PoweredOn || len(b.images) > 0 {
		b.t.Errorf("given up: tracking %v, power %s, %d images", b.guest.tracking, b.vm.Power, len(b.images))
	}
	if err := p.engine.Close(); err != nil {
		b.t.Fatal(err)
	}
}

// TestWarmGivenUpAnywhere kills decamp at any operation, and then gives the run up: the VM is
// as it was found, whatever was done to it and not recorded any more.
func TestWarmGivenUpAnywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("kills a run at every operation")
	}
	t.Parallel()
	begin := func() *bench {
		b := warmBench(t, 15)
		b.vm.ChangeTracking, b.guest.tracking = false, false
		return b
	}
	probe := begin()
	if _, err := probe.warm(2); err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(probe.ops); at += sparse * (2 + at/12) {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			t.Parallel()
			b := begin()
			b.t = t
			_, failed := b.warmKilledAt(at)
			b.before = failing("", nil)
			b.powerCut()
			if !failed || b.published != nil {
				return
			}
			b.giveUp()
		})
	}
}

// One history of guest writes gives one image, whatever way it came: by rounds or at once, by
// changes told or compared, doubted or not, grown in the middle or not, and wherever decamp was
// killed in between. The guest's writes follow from the seed, and from how often the host was
// asked; so each way is held against the disk at its power-off, and those that ask alike against
// each other.
func TestWarmMetamorphic(t *testing.T) {
	if testing.Short() {
		t.Skip("moves a VM in many ways")
	}
	t.Parallel()
	for seed := range map[bool]uint64{false: 1, true: 3}[lane.Slow] {
		roots := map[string]string{}
		for rounds := 1; rounds <= 3; rounds += min(2, sparse) {
			for _, way := range []string{"told", "compared", "doubted"} {
				for _, grows := range []bool{false, true} {
					if grows && (seed > 0 || rounds < 3 && !lane.Slow) {
						continue
					}
					b := warmBench(t, seed)
					b.guest.forgets, b.paranoid = way == "compared", way == "doubted"
					if grows {
						b.meddle = func(e journal.Event) bool { return e.Kind == journal.RoundDone && b.grow(2000, growth) }
					}
					root := b.rootsAfter(rounds)
					history := fmt.Sprintf("seed %d, %d rounds, grows %v", seed, rounds, grows)
					if had := roots[history]; had != "" && had != root {
						t.Errorf("%s, %s: the same history is another image", history, way)
					}
					roots[history] = root
				}
			}
		}
	}
}

// rootsAfter moves the VM in so many rounds, and returns the roots of its images.
func (b *bench) rootsAfter(rounds int) string {
	b.t.Helper()
	out, err := b.warm(rounds)
	if err != nil {
		b.t.Fatal(err)
	}
	b.checkPublished(out)
	b.nothingLeft()
	return out.Facts.Images[0].Root + out.Facts.Images[1].Root
}

// A VM that is being moved takes no snapshots, gives none back and does not shut down. That is
// waited for, for minutes; if it lasts the run ends, and the VM runs.
func TestBusyVMIsWaitedFor(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	t.Parallel()
	for _, op := range []string{"freeze", "thaw", "power off"} {
		for _, times := range []int{migrate.BusyAttempts - 1, migrate.BusyAttempts} {
			b := warmBench(t, 19)
			busy := 0
			b.before = func(_ context.Context, now string) error {
				b.world.mu.Lock()
				defer b.world.mu.Unlock()
				if now != op || busy == times {
					return nil
				}
				busy++
				return fault.New(fault.Transient, "another task is in progress")
			}
			out, err := b.warm(1)
			b.nothingLeft()
			switch {
			case times < migrate.BusyAttempts && err != nil:
				t.Errorf("%s, %d times: %v", op, times, err)
			case times < migrate.BusyAttempts:
				b.checkPublished(out)
			case !fault.Is(err, fault.Transient) || b.vm.Power != inventory.PoweredOn:
				t.Errorf("%s, %d times: %v, and the VM is %s", op, times, err, b.vm.Power)
			}
		}
	}
}
