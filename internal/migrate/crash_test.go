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

// sparse is the distance between the kills of one run after the other in make test; in make test-slow it is 1.
var sparse = map[bool]int{false: 3, true: 1}[lane.Slow]

var errPower = errors.New("the power is gone")

// crash makes the world stop at its n-th operation: nothing gets through any more,
// decamp's engine is closed without having recorded the step, and what was not synced
// is lost. It reports whether there was an n-th operation.
func (b *bench) crash(n int64, permit migrate.Permit) (crashed bool) {
	b.t.Helper()
	p := b.process()
	off := make(chan struct{})
	var count atomic.Int64
	b.before = func(context.Context, string) error {
		switch c := count.Add(1); {
		case c == n:
			close(off)
			fallthrough
		case c > n:
			b.stopped()
			return errPower
		}
		return nil
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.Migrate(b.t.Context(), b.plan(), b.rig(b.t, b.dir), permit)
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
	b.before = failing("", nil)
	return crashed
}

// warmKilledAt does two rounds of a warm run and the cutover, and makes every operation after the first n
// fail. It fails the test if no operation failed. It reports whether the run did: the last operations
// of a run may fail without it, and then out is its outcome.
func (b *bench) warmKilledAt(n int) (out migrate.Outcome, failed bool) {
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
	out, err := b.warm(2)
	b.mu.Lock()
	defer b.mu.Unlock()
	if done <= n {
		b.t.Fatalf("the run ended after %d operations, before it was killed: %v", done, err)
	}
	return out, err != nil
}

// safe returns the chunks that the manifests list, as ranges by disk.
func (b *bench) safe() map[int32][]disk.Range {
	b.t.Helper()
	held := map[int32][]disk.Range{}
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
				held[d.Key] = append(held[d.Key], log.Info().Chunk(c))
			}
		}
		log.Close()
	}
	return held
}

// A crash before every single operation of the outside world (in make test before the first and the last one
// of each kind), and then the same command again: the VM arrives byte by byte, and no chunk that was proven is copied twice.
func TestCrashAtEveryOperation(t *testing.T) {
	if testing.Short() {
		t.Skip("kills a run at every operation")
	}
	t.Parallel()
	whole := newBench(t)
	whole.vm.Power = inventory.PoweredOn
	if whole.crash(1<<30, migrate.Permit{PowerOff: true}) {
		t.Fatal("crashed")
	}
	if len(whole.ops) < 35 {
		t.Fatalf("only %d operations: the world is not looked at closely enough", len(whole.ops))
	}
	for n, op := range whole.ops {
		if first, last := slices.Index(whole.ops, op), lastIndex(whole.ops, op); n != first && n != last && !lane.Slow {
			continue
		}
		t.Run(fmt.Sprint(n+1), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.vm.Power = inventory.PoweredOn
			b.crash(int64(n+1), migrate.Permit{PowerOff: true})
			safe := b.safe()
			b.reads = map[int32][]disk.Range{}
			out, err := b.migrate(migrate.Permit{PowerOff: true})
			if err != nil {
				t.Fatalf("after %v: %v", b.ops, err)
			}
			b.checkPublished(out)
			b.checkNotReadAgain(safe)
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

// The same while a chunk that verify found bad is mended.
func TestCrashWhileMending(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	t.Parallel()
	for n := 0; n < 15; n += min(2, sparse) {
		t.Run(fmt.Sprint(n+1), func(t *testing.T) {
			t.Parallel()
			b := flipped(t)
			crashed := b.crash(int64(n+1), migrate.Permit{})
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

func (b *bench) checkNotReadAgain(safe map[int32][]disk.Range) {
	b.t.Helper()
	for key, chunks := range safe {
		for _, c := range chunks {
			for _, r := range b.reads[key] {
				if !r.Intersect(c).Empty() {
					b.t.Errorf("disk %d: %v was proven and was copied again by a read of %v", key, c, r)
				}
			}
		}
	}
}

// The power state is changed once, and only once: a VM that is off is left alone.
func (b *bench) checkPoweredOffOnce() {
	b.t.Helper()
	n := 0
	for _, op := range b.ops {
		if op == "power off" {
			n++
		}
	}
	if n != 1 {
		b.t.Errorf("powered off %d times", n)
	}
}

// Crashes one after the other, each a little further on, until one comes too late. (Each
// at the same operation would never end: nothing is safe before the first sync.)
func TestCrashAgainAndAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	crashes := 0
	for n := int64(5); b.crash(n, migrate.Permit{}); n += 3 {
		crashes++
	}
	out, err := b.migrate(migrate.Permit{})
	if err != nil {
		t.Fatal(err)
	}
	b.checkPublished(out)
	if crashes < 4 {
		t.Errorf("only %d crashes on the way", crashes)
	}
}

// interrupted leaves a run that copied a part of disk 2000.
func interrupted(t *testing.T) *bench {
	t.Helper()
	b := newBench(t)
	b.vm.Disks = b.vm.Disks[:1]
	var reads atomic.Int64
	b.before = func(ctx context.Context, op string) error {
		if op != "read" || reads.Add(1) <= 2 {
			return nil
		}
		for b.written.Load() == 0 && ctx.Err() == nil {
			runtime.Gosched()
		}
		return fault.New(fault.Denied, "enough")
	}
	if _, err := b.migrate(migrate.Permit{}); !fault.Is(err, fault.Denied) {
		t.Fatal(err)
	}
	b.before = failing("", nil)
	if len(b.safe()[2000]) == 0 {
		t.Fatal("nothing was proven before the interruption")
	}
	b.reads = map[int32][]disk.Range{}
	return b
}

func (b *bench) image() *memImage { return b.images[filepath.Join(b.dir, "2000")] }

// continued runs the command again and returns how many bytes came over the wire.
func (b *bench) continued() (wire int64) {
	b.t.Helper()
	out, err := b.migrate(migrate.Permit{})
	if err != nil {
		b.t.Fatal(err)
	}
	b.checkPublished(out)
	for _, r := range b.reads[2000] {
		wire += r.Len
	}
	return wire
}

func TestResumeCopiesOnlyWhatIsMissing(t *testing.T) {
	t.Parallel()
	b := interrupted(t)
	var proven int64
	for _, c := range b.safe()[2000] {
		proven += c.Len
	}
	if wire := b.continued(); wire != 5*mib+512-proven {
		t.Fatalf("%d bytes over the wire, with %d proven of %d", wire, proven, 5*mib+512)
	}
	if len(b.told(journal.DiskRestarted)) > 0 {
		t.Error("the disk was copied anew")
	}
}

// A record that was written without the fleet's key, by another decamp or by a stranger, is not worked
// on: the run begins again, and copies what its images lack.
func TestRunWithARefusedRecordBeginsAgain(t *testing.T) {
	t.Parallel()
	b := interrupted(t)
	var proven int64
	for _, c := range b.safe()[2000] {
		proven += c.Len
	}
	if proven == 0 {
		t.Fatal("nothing was copied before")
	}
	var err error
	if b.keys, err = fleetkey.Create(filepath.Join(t.TempDir(), fleetkey.FileName)); err != nil {
		t.Fatal(err)
	}
	if wire := b.continued(); wire != 5*mib+512-proven {
		t.Errorf("%d bytes over the wire, with %d proven of %d", wire, proven, 5*mib+512)
	}
	published := b.published
	if b.keys, err = fleetkey.Create(filepath.Join(t.TempDir(), fleetkey.FileName)); err != nil {
		t.Fatal(err)
	}
	_, err = b.migrate(migrate.Permit{})
	if !errors.Is(err, workflow.ErrRefused) || !fault.Is(err, fault.Denied) || b.published != published {
		t.Errorf("a run that is done, with a record that is refused: %v", err)
	}
}

func TestImageThatLostBytesIsCopiedAgain(t *testing.T) {
	t.Parallel()
	b := interrupted(t)
	lost := b.safe()[2000][0]
	b.image().now[lost.Off+9] ^= 1
	if wire := b.continued(); wire != 5*mib+512 || len(b.told(journal.DiskRestarted)) != 1 {
		t.Fatalf("%d bytes over the wire, told %+v", wire, b.told(journal.DiskRestarted))
	}
}

func TestImageThatIsGoneIsCopiedAgain(t *testing.T) {
	t.Parallel()
	b := interrupted(t)
	b.images = map[string]*memImage{} // the manifest is still there
	if wire := b.continued(); wire != 5*mib+512 {
		t.Fatalf("%d bytes over the wire", wire)
	}
}

func TestManifestOfAnotherDiskOrDamagedIsNotTrusted(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	t.Parallel()
	for name, spoil := range map[string]func(path string) error{
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
			b := interrupted(t)
			if err := spoil(filepath.Join(b.dir, "2000.manifest")); err != nil {
				t.Fatal(err)
			}
			if wire := b.continued(); wire != 5*mib+512 {
				t.Fatalf("%d bytes over the wire", wire)
			}
		})
	}
}

// What an operator may do to a VM between two attempts, each a Conflict with a remedy.
func TestVMThatChangedInBetweenIsAConflict(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	t.Parallel()
	for name, change := range map[string]func(b *bench){
		"powered on": func(b *bench) { b.vm.Power = "on" },
		"disk grown": func(b *bench) { b.vm.Disks[0].Capacity += mib },
		"other file": func(b *bench) { b.vm.Disks[0].Path.File = "web01/web01-000001.vmdk" },
		"disk added": func(b *bench) { b.addDisk(2002, mib) },
		"disk wiped": func(b *bench) { b.vm.Disks = nil },
		"snapshot":   func(b *bench) { b.vm.Snapshots = 1 },
		"other VM":   func(b *bench) { b.vm.InstanceUUID = "another" },
		"written to": func(b *bench) {
			first := b.safe()[2000][0]
			b.disks[2000][first.Off+5] ^= 1
		},
		"changes tracked": func(b *bench) { b.vm.Disks[0].ChangeID = "52 ab/9" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := interrupted(t)
			pl := b.plan()
			change(b)
			p := b.process()
			_, err := p.Migrate(t.Context(), pl, b.rig(t, b.dir), migrate.Permit{PowerOff: true})
			if !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" || b.published != nil {
				t.Fatalf("got %v (%v), remedy %q", err, fault.KindOf(err), fault.HintOf(err))
			}
		})
	}
}

func TestVMPoweredOnBeforeCommitIsNotPublished(t *testing.T) {
	t.Parallel()
	b := newBench(t)
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
