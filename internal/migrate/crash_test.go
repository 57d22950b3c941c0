package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetkey"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/workflow"
	"github.com/decamp/decamp/test/lane"
)

// killInterval is the number of operations from one kill to the next in make test. In make test-slow it is 1.
var killInterval = map[bool]int{false: 3, true: 1}[lane.Slow]

var errPower = errors.New("the power is gone")

// crashAt runs a migration in which the n-th operation and all later ones fail. It closes decamp's engine before
// the step is recorded, and drops the data that was not synced. It reports whether there was an n-th operation.
func (b *testBed) crashAt(n int64, permit migrate.Permit) (crashed bool) {
	b.t.Helper()
	p := b.newProcess()
	off := make(chan struct{})
	var count atomic.Int64
	b.before = func(context.Context, string) error {
		switch c := count.Add(1); {
		case c == n:
			close(off)
			fallthrough
		case c > n:
			b.waitForStop()
			return errPower
		}
		return nil
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.Migrate(b.t.Context(), b.plan(), b.newEnvironment(b.t, b.dir), permit)
	}()
	select {
	case <-off:
		crashed = true
	case <-ended:
	}
	if err := p.engine.Close(); err != nil {
		b.t.Fatal(err)
	}
	<-ended
	b.powerCut()
	b.before = failOperation("", nil)
	return crashed
}

// killWarmRunAt runs a warm migration with two rounds and the cutover. Every operation after the first n fails. It
// fails the test if no operation failed. It reports whether the run failed: the last operations of a run may fail
// without an effect on it, and then out is its outcome.
func (b *testBed) killWarmRunAt(n int) (out migrate.Outcome, failed bool) {
	b.t.Helper()
	done, before := 0, b.before
	b.before = func(ctx context.Context, op string) error {
		b.mu.Lock()
		done++
		killed := done > n
		b.mu.Unlock()
		if err := before(ctx, op); err != nil || !killed {
			return err
		}
		return errors.New("killed")
	}
	out, err := b.migrateWarm(2)
	b.mu.Lock()
	defer b.mu.Unlock()
	if done <= n {
		b.t.Fatalf("the run ended after %d operations, before it was killed: %v", done, err)
	}
	return out, err != nil
}

// provenChunks returns the chunks that the manifests list, as ranges by disk.
func (b *testBed) provenChunks() map[int32][]disk.Range {
	b.t.Helper()
	proven := map[int32][]disk.Range{}
	for _, d := range b.vm.Disks {
		log, err := manifest.Open(filepath.Join(b.dir, fmt.Sprint(d.Key)+".manifest"))
		if fault.Is(err, fault.NotFound) {
			continue
		}
		if err != nil {
			b.t.Fatal(err)
		}
		for c := range log.Chunks() {
			if log.Has(c) {
				proven[d.Key] = append(proven[d.Key], log.Info().Chunk(c))
			}
		}
		log.Close()
	}
	return proven
}

// After a crash before any operation, the same command publishes an identical VM and copies no proven chunk again.
// make test crashes only before the first and the last operation of each kind.
func TestCrashAtEveryOperation(t *testing.T) {
	if testing.Short() {
		t.Skip("kills a run at every operation")
	}
	t.Parallel()
	whole := newTestBed(t)
	whole.vm.Power = inventory.PoweredOn
	if whole.crashAt(1<<30, migrate.Permit{PowerOff: true}) {
		t.Fatal("crashed")
	}
	if len(whole.ops) < 35 {
		t.Fatalf("%d operations, want at least 35", len(whole.ops))
	}
	for n, op := range whole.ops {
		if first, last := slices.Index(whole.ops, op), lastIndex(whole.ops, op); n != first && n != last && !lane.Slow {
			continue
		}
		t.Run(fmt.Sprint(n+1), func(t *testing.T) {
			t.Parallel()
			b := newTestBed(t)
			b.vm.Power = inventory.PoweredOn
			b.crashAt(int64(n+1), migrate.Permit{PowerOff: true})
			proven := b.provenChunks()
			b.reads = map[int32][]disk.Range{}
			out, err := b.migrate(migrate.Permit{PowerOff: true})
			if err != nil {
				t.Fatalf("after %v: %v", b.ops, err)
			}
			b.checkPublished(out)
			b.checkNotReadAgain(proven)
			b.checkPoweredOffOnce()
		})
	}
}

// lastIndex returns the index of the last op in ops.
func lastIndex(ops []string, op string) int {
	n := len(ops) - 1
	for ops[n] != op {
		n--
	}
	return n
}

// After a crash while a bad chunk is copied again, the same command publishes the VM.
func TestCrashWhileRepairingBadChunk(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	t.Parallel()
	for n := 0; n < 15; n += min(2, killInterval) {
		t.Run(fmt.Sprint(n+1), func(t *testing.T) {
			t.Parallel()
			b := newRunWithBadChunk(t)
			crashed := b.crashAt(int64(n+1), migrate.Permit{})
			if n < 8 && !crashed {
				t.Fatalf("only %d operations", n)
			}
			out, err := b.migrate(migrate.Permit{})
			if err != nil {
				t.Fatalf("after %v: %v", b.ops, err)
			}
			b.checkPublished(out)
		})
	}
}

// checkNotReadAgain checks that no proven chunk was read from the source.
func (b *testBed) checkNotReadAgain(proven map[int32][]disk.Range) {
	b.t.Helper()
	for key, chunks := range proven {
		for _, c := range chunks {
			for _, r := range b.reads[key] {
				if !r.Intersect(c).Empty() {
					b.t.Errorf("disk %d: proven chunk %v was copied again by a read of %v", key, c, r)
				}
			}
		}
	}
}

// checkPoweredOffOnce checks that the run powered its VM off exactly once.
func (b *testBed) checkPoweredOffOnce() {
	b.t.Helper()
	n := 0
	for _, op := range b.ops {
		if op == "power off" {
			n++
		}
	}
	if n != 1 {
		b.t.Errorf("powered off %d times, want once", n)
	}
}

// A run completes after several crashes, each at a later operation than the one before. (Crashes at the same
// operation would never end, because no chunk is proven before the first sync.)
func TestRunCompletesAfterRepeatedCrashes(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	crashes := 0
	for n := int64(5); b.crashAt(n, migrate.Permit{}); n += 3 {
		crashes++
	}
	out, err := b.migrate(migrate.Permit{})
	if err != nil {
		t.Fatal(err)
	}
	b.checkPublished(out)
	if crashes < 4 {
		t.Errorf("%d crashes, want at least 4", crashes)
	}
}

// newInterruptedRun returns a test bed with a run that copied a part of disk 2000.
func newInterruptedRun(t *testing.T) *testBed {
	t.Helper()
	b := newTestBed(t)
	b.vm.Disks = b.vm.Disks[:1]
	var reads atomic.Int64
	b.before = func(ctx context.Context, op string) error {
		if op != "read" || reads.Add(1) <= 2 {
			return nil
		}
		for b.written.Load() < 2 && ctx.Err() == nil { // two operations of the first chunks are one whole chunk
			runtime.Gosched()
		}
		return fault.New(fault.Denied, "enough")
	}
	if _, err := b.migrate(migrate.Permit{}); !fault.Is(err, fault.Denied) {
		t.Fatal(err)
	}
	b.before = failOperation("", nil)
	if len(b.provenChunks()[2000]) == 0 {
		t.Fatal("no chunk was proven before the interruption")
	}
	b.reads = map[int32][]disk.Range{}
	return b
}

func (b *testBed) firstImage() *memImage { return b.images[filepath.Join(b.dir, "2000")] }

// continueRun runs the command again and returns how many bytes it read from disk 2000 of the source.
func (b *testBed) continueRun() (bytesRead int64) {
	b.t.Helper()
	out, err := b.migrate(migrate.Permit{})
	if err != nil {
		b.t.Fatal(err)
	}
	b.checkPublished(out)
	for _, r := range b.reads[2000] {
		bytesRead += r.Len
	}
	return bytesRead
}

func TestResumeCopiesOnlyMissingChunks(t *testing.T) {
	t.Parallel()
	b := newInterruptedRun(t)
	var proven int64
	for _, c := range b.provenChunks()[2000] {
		proven += c.Len
	}
	if bytesRead := b.continueRun(); bytesRead != 5*mib+512-proven {
		t.Fatalf("%d bytes read, with %d proven of %d", bytesRead, proven, 5*mib+512)
	}
	if len(b.eventsOf(journal.DiskRestarted)) > 0 {
		t.Error("the whole disk was copied again")
	}
}

// decamp does not use a record that is not signed with the fleet's key. The run starts over and copies the chunks
// that its images do not have.
func TestRunWithUnsignedRecordRestarts(t *testing.T) {
	t.Parallel()
	b := newInterruptedRun(t)
	var proven int64
	for _, c := range b.provenChunks()[2000] {
		proven += c.Len
	}
	if proven == 0 {
		t.Fatal("no chunk was copied before")
	}
	var err error
	if b.keys, err = fleetkey.Create(filepath.Join(t.TempDir(), fleetkey.FileName)); err != nil {
		t.Fatal(err)
	}
	if bytesRead := b.continueRun(); bytesRead != 5*mib+512-proven {
		t.Errorf("%d bytes read, with %d proven of %d", bytesRead, proven, 5*mib+512)
	}
	published := b.published
	if b.keys, err = fleetkey.Create(filepath.Join(t.TempDir(), fleetkey.FileName)); err != nil {
		t.Fatal(err)
	}
	_, err = b.migrate(migrate.Permit{})
	if !errors.Is(err, workflow.ErrRefused) || !fault.Is(err, fault.Denied) || b.published != published {
		t.Errorf("a completed run with a refused record: %v", err)
	}
}

func TestDamagedImageIsCopiedAgain(t *testing.T) {
	t.Parallel()
	b := newInterruptedRun(t)
	lost := b.provenChunks()[2000][0]
	b.firstImage().now[lost.Off+9] ^= 1
	if bytesRead := b.continueRun(); bytesRead != 5*mib+512 || len(b.eventsOf(journal.DiskRestarted)) != 1 {
		t.Fatalf("%d bytes read, events %+v", bytesRead, b.eventsOf(journal.DiskRestarted))
	}
}

func TestMissingImageIsCopiedAgain(t *testing.T) {
	t.Parallel()
	b := newInterruptedRun(t)
	b.images = map[string]*memImage{} // the manifest remains
	if bytesRead := b.continueRun(); bytesRead != 5*mib+512 {
		t.Fatalf("%d bytes read, want %d", bytesRead, 5*mib+512)
	}
}

func TestForeignOrDamagedManifestIsNotUsed(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	t.Parallel()
	for name, damage := range map[string]func(path string) error{
		"gone": manifest.Remove,
		"of another disk": func(path string) error {
			log, err := manifest.Create(path+".x", manifest.Info{Disk: "2000", Size: 5*mib + 512, Source: "another run"})
			if err != nil {
				return err
			}
			return errors.Join(log.Close(), os.Rename(path+".x", path))
		},
		"damaged": func(path string) error {
			return os.WriteFile(path, []byte("no manifest at all, but long enough for a header"), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newInterruptedRun(t)
			if err := damage(filepath.Join(b.dir, "2000.manifest")); err != nil {
				t.Fatal(err)
			}
			if bytesRead := b.continueRun(); bytesRead != 5*mib+512 {
				t.Fatalf("%d bytes read, want %d", bytesRead, 5*mib+512)
			}
		})
	}
}

// A VM that the user changes between two attempts is a Conflict with a remedy.
func TestVMChangedBetweenAttemptsIsAConflict(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	t.Parallel()
	for name, change := range map[string]func(b *testBed){
		"powered on": func(b *testBed) { b.vm.Power = "on" },
		"disk grown": func(b *testBed) { b.vm.Disks[0].Capacity += mib },
		"other file": func(b *testBed) { b.vm.Disks[0].Path.File = "web01/web01-000001.vmdk" },
		"disk added": func(b *testBed) { b.addDisk(2002, mib) },
		"disk wiped": func(b *testBed) { b.vm.Disks = nil },
		"snapshot":   func(b *testBed) { b.vm.Snapshots = 1 },
		"other VM":   func(b *testBed) { b.vm.InstanceUUID = "another" },
		"written to": func(b *testBed) {
			first := b.provenChunks()[2000][0]
			b.disks[2000][first.Off+5] ^= 1
		},
		"changes tracked": func(b *testBed) { b.vm.Disks[0].ChangeID = "52 ab/9" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newInterruptedRun(t)
			pl := b.plan()
			change(b)
			p := b.newProcess()
			_, err := p.Migrate(t.Context(), pl, b.newEnvironment(t, b.dir), migrate.Permit{PowerOff: true})
			if !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" || b.published != nil {
				t.Fatalf("got %v (%v), remedy %q", err, fault.KindOf(err), fault.HintOf(err))
			}
		})
	}
}

func TestVMPoweredOnBeforeCommitIsNotPublished(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	finished := 0
	b.before = func(_ context.Context, op string) error {
		if op == "finish" {
			b.mu.Lock()
			defer b.mu.Unlock()
			if finished++; finished == len(b.vm.Disks) {
				b.vm.Power = inventory.PoweredOn
			}
		}
		return nil
	}
	if _, err := b.migrate(migrate.Permit{PowerOff: true}); !fault.Is(err, fault.Conflict) || b.published != nil {
		t.Fatalf("got %v, published %v", err, b.published)
	}
}
