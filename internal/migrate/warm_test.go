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

// newWarmTestBed returns a test bed whose VM runs. The seed selects the writes of its guest.
func newWarmTestBed(t *testing.T, seed uint64) *testBed {
	b := newTestBed(t)
	b.startGuest(seed)
	return b
}

func (b *testBed) warmPlan() journal.Plan {
	p := b.plan()
	p.Warm = true
	return p
}

// newWaitingProcess returns a process whose clock advances ten minutes at each wait, in which the guest writes.
func (b *testBed) newWaitingProcess() *process {
	p := b.newProcess()
	clock := time.Unix(1_800_000_000, 0)
	p.Options().Now = func() time.Time { b.mu.Lock(); defer b.mu.Unlock(); return clock }
	p.Options().Sleep = func(ctx context.Context, d time.Duration) error {
		b.writeInGuest()
		b.mu.Lock()
		defer b.mu.Unlock()
		clock = clock.Add(10 * time.Minute)
		return ctx.Err()
	}
	return p
}

// migrateWarm runs a warm migration in a new process, and commands the cutover after the given number of rounds.
func (b *testBed) migrateWarm(rounds int) (migrate.Outcome, error) {
	b.t.Helper()
	p := b.newWaitingProcess()
	had := len(b.eventsOf(journal.RoundDone))
	flip, interfere := b.flipAtVerify, b.interfere
	b.onEvent = func(e journal.Event) {
		if e.Kind == journal.StepStarted && e.Step == "verify" && flip != nil {
			off := flip()
			b.firstImage().now[off] ^= 1
			flip = nil
		}
		if interfere != nil && interfere(e) {
			interfere = nil
		}
		if e.Kind == journal.RoundDone {
			if had++; had >= rounds {
				if err := p.store.SendCommand(e.Run, journal.CutOver); err != nil {
					b.t.Error(err)
				}
			}
		}
	}
	out, err := p.Migrate(b.t.Context(), b.warmPlan(), b.newEnvironment(b.t, b.dir), migrate.Permit{Paranoid: b.paranoid, Start: b.start})
	if cerr := p.engine.Close(); cerr != nil {
		b.t.Fatal(cerr)
	}
	return out, err
}

// checkNoSnapshots checks that the VM has no snapshots.
func (b *testBed) checkNoSnapshots() {
	b.t.Helper()
	for name := range b.guest.snapshots {
		b.t.Errorf("snapshot %q remains", name)
	}
}

func TestWarm(t *testing.T) {
	t.Parallel()
	for rounds := range 4 {
		b := newWarmTestBed(t, uint64(rounds))
		out, err := b.migrateWarm(rounds + 1)
		if err != nil {
			t.Fatal(err)
		}
		b.checkPublished(out)
		b.checkNoSnapshots()
		if w := out.Facts.Warm; len(w.Rounds) != rounds+2 || w.Rounds[rounds+1].Read >= w.Rounds[0].Read/2 {
			t.Errorf("rounds %+v: want %d, and less in the last", w.Rounds, rounds+2)
		}
		if b.vm.Power != inventory.PoweredOff {
			t.Error("the source runs after the cutover")
		}
		for _, e := range b.eventsOf(journal.OutageEstimated) {
			if e.OutageEstimate == nil || e.OutageEstimate.Outage < shutdownGuess {
				t.Errorf("estimate %+v", e.OutageEstimate)
			}
		}
		if n := len(b.eventsOf(journal.OutageEstimated)); rounds > 0 && n == 0 {
			t.Error("no event estimates the outage")
		}
	}
}

// If the last round is old at the cutover, the run does another round first, while the VM runs. For a cutover at
// a set time the round starts early enough.
func TestWarmRunsAnotherRoundBeforeCutover(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"command", "at a time"} {
		b := newWarmTestBed(t, 16)
		p := b.newProcess()
		began := time.Unix(1_800_000_000, 0)
		clock, waits := began, 0
		p.Options().Now = func() time.Time { b.mu.Lock(); defer b.mu.Unlock(); return clock }
		p.Options().Sleep = func(ctx context.Context, _ time.Duration) error {
			b.writeInGuest()
			b.mu.Lock()
			clock = clock.Add(20 * time.Second)
			waits++
			send := waits == 10 && how == "command"
			b.mu.Unlock()
			if send {
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
		out, err := p.Migrate(t.Context(), b.warmPlan(), b.newEnvironment(t, b.dir), permit)
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

// Without change tracking every round compares all data.
func TestWarmWithoutTracking(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"refused", "forgotten"} {
		b := newWarmTestBed(t, 5)
		if how == "refused" {
			b.vm.ChangeTracking, b.guest.tracking = false, false
			b.before = failOperation("track", fault.New(fault.Unsupported, "the licence forbids it"))
		}
		b.guest.listLost = true
		out, err := b.migrateWarm(2)
		if err != nil {
			t.Fatal(err)
		}
		b.checkPublished(out)
		b.checkNoSnapshots()
		if w := out.Facts.Warm; w.Rounds[1].Read < w.Rounds[0].Read {
			t.Errorf("%s: rounds %+v: want all data read", how, w.Rounds)
		}
		warned := slices.ContainsFunc(b.eventsOf(journal.Warned), func(e journal.Event) bool { return e.Warning.Code == "no-change-tracking" })
		if warned != (how == "refused") {
			t.Errorf("%s: warning no-change-tracking: %v", how, warned)
		}
	}
}

// A refused login when change tracking is turned on ends the attempt. The run does not continue without tracking,
// and the next attempt uses it.
func TestWarmTrackingRefusedLogin(t *testing.T) {
	t.Parallel()
	b := newWarmTestBed(t, 6)
	b.vm.ChangeTracking, b.guest.tracking = false, false
	b.before = failOperation("track", fault.New(fault.Denied, "incorrect user name or password"))
	if _, err := b.migrateWarm(2); !fault.Is(err, fault.Denied) {
		t.Fatalf("got %v, want a denied login", err)
	}
	b.before = failOperation("", nil)
	out, err := b.migrateWarm(2)
	if err != nil {
		t.Fatal(err)
	}
	b.checkPublished(out)
	b.checkNoSnapshots()
	if out.Facts.Warm.Untracked {
		t.Error("the run does not use change tracking")
	}
}

// decamp is killed and the power fails at any operation. The same command publishes an image of the VM at its
// power-off.
func TestWarmKilledAtEveryOperation(t *testing.T) {
	if testing.Short() {
		t.Skip("kills a run at every operation")
	}
	t.Parallel()
	probe := newWarmTestBed(t, 7)
	if _, err := probe.migrateWarm(2); err != nil {
		t.Fatal(err)
	}
	steps := len(probe.ops)
	for at := 0; at < steps; at += min(2, killInterval) * (2 + at/20) {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			t.Parallel()
			b := newWarmTestBed(t, 7)
			if out, failed := b.killWarmRunAt(at); !failed {
				b.checkPublished(out)
				return
			}
			b.powerCut()
			b.writeInGuest()
			if at%3 == 0 { // another user removes the snapshots
				clear(b.guest.snapshots)
			}
			b.before = func(context.Context, string) error { return nil }
			out, err := b.migrateWarm(1)
			if err != nil {
				t.Fatal(err)
			}
			b.checkPublished(out)
			b.checkNoSnapshots()
		})
	}
}

// After a failed warm run is discarded, the VM is as before the run.
func TestWarmDiscardRestoresVM(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"freeze", "changed", "finish", "publish"} {
		b := newWarmTestBed(t, 8)
		b.vm.ChangeTracking, b.guest.tracking = false, false
		b.before = failOperation(op, fault.New(fault.Conflict, "not now"))
		if _, err := b.migrateWarm(1); err == nil {
			t.Fatalf("the run did not fail at %s", op)
		}
		b.before = func(context.Context, string) error { return nil }
		p := b.newProcess()
		if err := p.Discard(t.Context(), b.plan().ID, b.newEnvironment(t, b.dir)); err != nil {
			t.Fatal(err)
		}
		b.checkNoSnapshots()
		if b.guest.tracking || b.vm.Power != inventory.PoweredOn || len(b.images) > 0 {
			t.Errorf("discarded after a failure at %s: tracking %v, power %s, %d images", op, b.guest.tracking, b.vm.Power, len(b.images))
		}
		if err := p.engine.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// If a step takes a snapshot and then fails, the snapshot is removed when the run stops or is discarded. (An earlier
// round has already completed the step once.)
func TestWarmSnapshotOfAFailedStepIsRemoved(t *testing.T) {
	t.Parallel()
	for _, stays := range []bool{false, true} { // true: the snapshot cannot be removed when the run stops
		b := newWarmTestBed(t, 17)
		b.vm.ChangeTracking, b.guest.tracking = false, false
		frozen, failed := 0, false
		b.before = func(_ context.Context, op string) error {
			b.world.mu.Lock()
			defer b.world.mu.Unlock()
			if op == "frozen" {
				frozen++
			}
			failed = failed || frozen == 3 // the second step of the first round calls it once more
			if failed && (op == "frozen" || op == "thaw" && stays) {
				return fault.New(fault.Conflict, "not now")
			}
			return nil
		}
		if _, err := b.migrateWarm(3); err == nil {
			t.Fatal("the run did not fail")
		}
		if left := len(b.guest.snapshots); left != 0 != stays {
			t.Errorf("%d snapshots remain", left)
		}
		b.before = failOperation("", nil)
		b.discardRun()
	}
}

// chunksByWrites returns the chunks of disk 2000 that the guest wrote to since the last round, and the others.
func (b *testBed) chunksByWrites() (touched, untouched []int64) {
	b.world.mu.Lock()
	defer b.world.mu.Unlock()
	disk := b.vm.Disks[0]
	for c := int64(0); c*mib < disk.Capacity; c++ {
		hit := false
		for _, w := range b.guest.writes {
			hit = hit || w.disk == disk.Key && w.generation == b.guest.generation && w.Off < (c+1)*mib && w.End() > c*mib
		}
		if hit {
			touched = append(touched, c)
		} else {
			untouched = append(untouched, c)
		}
	}
	return touched, untouched
}

// In the outage decamp reads back only the chunks that the last round wrote. decamp verify, which reads all chunks,
// finds corruption in the others.
func TestWarmVerifyReadsOnlyChunksOfLastRound(t *testing.T) {
	t.Parallel()
	b := newWarmTestBed(t, 11)
	var off int64
	b.flipAtVerify = func() int64 {
		_, elsewhere := b.chunksByWrites()
		off = elsewhere[0]*mib + 99
		return off
	}
	out, err := b.migrateWarm(2)
	if err != nil {
		t.Fatal(err)
	}
	touched, elsewhere := b.chunksByWrites()
	v := out.Facts.Verified[0]
	if v.VerifiedBefore != int64(len(elsewhere))*mib-b.missingInLastChunk(elsewhere) || len(touched) == 0 {
		t.Errorf("%d bytes were not read again, with chunks %v written and %v not", v.VerifiedBefore, touched, elsewhere)
	}
	s, err := manifest.Load(out.Facts.Images[0].Manifest)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	report, err := manifest.Verify(t.Context(), &memSource{w: b.world, key: 2000, data: b.firstImage().now}, s, manifest.VerifyOptions{})
	if !fault.Is(err, fault.Corrupt) || len(report.Bad) != 1 || report.Bad[0].Off != off/mib*mib {
		t.Errorf("corruption at %d: %v, bad ranges %+v", off, err, report.Bad)
	}
}

// missingInLastChunk returns the difference of the disk's last chunk from 1 MiB if chunks include it, and else 0.
func (b *testBed) missingInLastChunk(chunks []int64) int64 {
	size := b.vm.Disks[0].Capacity
	if last := (size - 1) / mib; len(chunks) > 0 && chunks[len(chunks)-1] == last {
		return (last+1)*mib - size
	}
	return 0
}

// The chunks that the last round wrote are verified before the VM is published.
func TestWarmVerifyChecksChunksOfLastRound(t *testing.T) {
	t.Parallel()
	b := newWarmTestBed(t, 12)
	b.flipAtVerify = func() int64 {
		touched, _ := b.chunksByWrites()
		return touched[0]*mib + 99
	}
	if _, err := b.migrateWarm(2); !fault.Is(err, fault.Corrupt) || b.published != nil {
		t.Fatalf("got %v, published %v", err, b.published)
	}
	b.flipAtVerify = nil
	out, err := b.migrateWarm(1)
	if err != nil {
		t.Fatal(err)
	}
	b.checkPublished(out)
	b.checkNoSnapshots()
}

// A chunk that is corrupted between two rounds is found by the next round and copied again.
func TestWarmCorruptionBetweenRoundsIsRepaired(t *testing.T) {
	t.Parallel()
	b := newWarmTestBed(t, 13)
	flips := 0
	b.before = func(_ context.Context, op string) error {
		b.world.mu.Lock()
		defer b.world.mu.Unlock()
		if m := b.images[filepath.Join(b.dir, "2000")]; op == "thaw" && m != nil { // the round is written, but not read back
			flips++
			m.mu.Lock()
			m.now[2*mib+5] ^= 1
			m.mu.Unlock()
		}
		return nil
	}
	out, err := b.migrateWarm(1)
	if err != nil {
		t.Fatal(err)
	}
	if flips == 0 || len(b.eventsOf(journal.ChunkBad)) == 0 {
		t.Errorf("%d flips, bad chunks %v", flips, b.eventsOf(journal.ChunkBad))
	}
	b.checkPublished(out)
}

// A disk that is added, removed or shrunk between two rounds is a conflict before the VM is powered off. No
// snapshot remains, and after a discard the VM is as before the run.
func TestWarmDiskChangesAreAConflict(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	t.Parallel()
	for name, change := range map[string]func(b *testBed){
		"added":   func(b *testBed) { b.addDisk(2002, mib) },
		"removed": func(b *testBed) { b.vm.Disks = b.vm.Disks[:1] },
		"shrunk": func(b *testBed) {
			b.vm.Disks[0].Capacity -= mib
			b.disks[2000] = b.disks[2000][:b.vm.Disks[0].Capacity]
		},
	} {
		for _, when := range []journal.EventKind{journal.RoundDone, journal.StepStarted} { // end of the first round; start of the cutover
			t.Run(fmt.Sprint(name, when), func(t *testing.T) {
				t.Parallel()
				b := newWarmTestBed(t, 14)
				b.vm.ChangeTracking, b.guest.tracking = false, false
				b.interfere = func(e journal.Event) bool {
					if e.Kind != when || e.Kind == journal.StepStarted && e.Step != stepPowerOff {
						return false
					}
					b.world.mu.Lock()
					defer b.world.mu.Unlock()
					change(b)
					return true
				}
				if _, err := b.migrateWarm(2); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
					t.Fatalf("got %v, remedy %q", err, fault.HintOf(err))
				}
				b.checkNoSnapshots()
				if b.vm.Power != inventory.PoweredOn {
					t.Errorf("the VM is %s", b.vm.Power)
				}
				b.discardRun()
			})
		}
	}
}

// discardRun discards the run, and checks that the VM is as before the run.
func (b *testBed) discardRun() {
	b.t.Helper()
	p := b.newProcess()
	if err := p.Discard(b.t.Context(), b.plan().ID, b.newEnvironment(b.t, b.dir)); err != nil {
		b.t.Fatal(err)
	}
	b.checkNoSnapshots()
	if b.guest.tracking || b.vm.ChangeTracking || b.vm.Power != inventory.PoweredOn || len(b.images) > 0 {
		b.t.Errorf("after the discard: tracking %v, power %s, %d images", b.guest.tracking, b.vm.Power, len(b.images))
	}
	if err := p.engine.Close(); err != nil {
		b.t.Fatal(err)
	}
}

// decamp is killed at any operation, and the run is then discarded. The VM is as before the run, also if decamp
// did not record its last change.
func TestWarmDiscardAfterKillAtEveryOperation(t *testing.T) {
	if testing.Short() {
		t.Skip("kills a run at every operation")
	}
	t.Parallel()
	begin := func() *testBed {
		b := newWarmTestBed(t, 15)
		b.vm.ChangeTracking, b.guest.tracking = false, false
		return b
	}
	probe := begin()
	if _, err := probe.migrateWarm(2); err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(probe.ops); at += killInterval * (2 + at/12) {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			t.Parallel()
			b := begin()
			b.t = t
			_, failed := b.killWarmRunAt(at)
			b.before = failOperation("", nil)
			b.powerCut()
			if !failed || b.published != nil {
				return
			}
			b.discardRun()
		})
	}
}

// The same guest writes give the same image in every mode: with tracked changes, with a comparison of all data, and
// with the paranoid mode. The guest's writes depend on the seed and on the number of calls to the host. Each image is
// compared with the disk at its power-off, and images of the same history with each other.
func TestWarmMetamorphic(t *testing.T) {
	if testing.Short() {
		t.Skip("moves a VM in many ways")
	}
	t.Parallel()
	for seed := range map[bool]uint64{false: 1, true: 3}[lane.Slow] {
		roots := map[string]string{}
		for rounds := 1; rounds <= 3; rounds += min(2, killInterval) {
			for _, mode := range []string{"tracked", "compared", "paranoid"} {
				for _, grows := range []bool{false, true} {
					if grows && (seed > 0 || rounds < 3 && !lane.Slow) {
						continue
					}
					b := newWarmTestBed(t, seed)
					b.guest.listLost, b.paranoid = mode == "compared", mode == "paranoid"
					if grows {
						b.interfere = func(e journal.Event) bool { return e.Kind == journal.RoundDone && b.growDisk(2000, growth) }
					}
					root := b.rootsAfter(rounds)
					history := fmt.Sprintf("seed %d, %d rounds, grows %v", seed, rounds, grows)
					if had := roots[history]; had != "" && had != root {
						t.Errorf("%s, %s: the same history gives another image", history, mode)
					}
					roots[history] = root
				}
			}
		}
	}
}

// rootsAfter migrates the VM in the given number of rounds, and returns the roots of its images.
func (b *testBed) rootsAfter(rounds int) string {
	b.t.Helper()
	out, err := b.migrateWarm(rounds)
	if err != nil {
		b.t.Fatal(err)
	}
	b.checkPublished(out)
	b.checkNoSnapshots()
	return out.Facts.Images[0].Root + out.Facts.Images[1].Root
}

// A busy VM, for example during vMotion, refuses to take or remove a snapshot or to shut down. decamp retries up
// to BusyAttempts times. Then the run ends, and the VM stays on.
func TestBusyVMIsRetried(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	t.Parallel()
	for _, op := range []string{"freeze", "thaw", "power off"} {
		for _, times := range []int{migrate.BusyAttempts - 1, migrate.BusyAttempts} {
			b := newWarmTestBed(t, 19)
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
			out, err := b.migrateWarm(1)
			b.checkNoSnapshots()
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
