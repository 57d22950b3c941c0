package migrate_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/transport"
)

// flippedOnce returns a source that reads like the world's disks, with one bit of disk 2000 wrong in
// every copy and right in every second reading.
func flippedOnce(b *bench, rig migrate.Environment, off int64) migrate.Environment {
	wrong := bytes.Clone(b.disks[2000])
	wrong[off] ^= 1
	right := b.disks[2000]
	b.disks[2000] = wrong
	rig.Reread = func(_ context.Context, d transport.Disk) (disk.Source, string, error) {
		data := b.disks[d.Disk.Key]
		if d.Disk.Key == 2000 {
			data = right
		}
		return &memSource{w: b.world, key: d.Disk.Key, data: data}, "fake", nil
	}
	return rig
}

// What was wrong before it was hashed is found by default, wherever it is on a disk that is small enough
// to be read again as a whole. The disk and the chunk are named, nothing is published, and
// nothing of that disk is trusted any more.
func TestWrongBytesFromTheSourceAreFoundByDefault(t *testing.T) {
	t.Parallel()
	for _, off := range []int64{100, 3*mib + 7, 5*mib + 511} {
		b := newBench(t)
		p := b.process()
		_, err := p.Migrate(t.Context(), b.plan(), flippedOnce(b, b.rig(t, b.dir), off), migrate.Permit{})
		want := strings.Contains(err.Error(), "disk 2000 at "+map[int64]string{0: "0:", 3: "3145728:", 5: "5242880:"}[off/mib])
		if !fault.Is(err, fault.Corrupt) || !want || b.published != nil {
			t.Fatalf("bit at %d: got %v", off, err)
		}
		if hint := fault.HintOf(err); !strings.Contains(hint, "same command again") || !strings.Contains(hint, "--source-hash") {
			t.Errorf("remedy %q", hint)
		}
		if anew := b.told(journal.DiskRestarted); len(anew) != 1 || anew[0].Disk != 2000 {
			t.Errorf("told %+v", anew)
		}
		log, err := manifest.Open(p.images(t, b)[0])
		if err != nil {
			t.Fatal(err)
		}
		if log.Missing() != log.Chunks() {
			t.Errorf("%d of %d chunks are still trusted", log.Chunks()-log.Missing(), log.Chunks())
		}
		log.Close()
	}
}

// images returns the paths of the manifests of a run.
func (p *process) images(t *testing.T, b *bench) (manifests []string) {
	t.Helper()
	facts, err := p.Facts(t.Context(), b.plan().ID)
	if err != nil {
		t.Fatal(err)
	}
	for _, img := range facts.Images {
		manifests = append(manifests, img.Manifest)
	}
	return manifests
}

// The same command copies the disk again, and only then is the VM published: also if the next sample
// would have missed the wrong chunk, or nothing is read again.
func TestWrongBytesAreCopiedAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.process()
	rig := flippedOnce(b, b.rig(t, b.dir), 100)
	if _, err := p.Migrate(t.Context(), b.plan(), rig, migrate.Permit{}); !fault.Is(err, fault.Corrupt) {
		t.Fatalf("got %v", err)
	}
	right, _, err := rig.Reread(t.Context(), transport.Disk{Disk: &b.vm.Disks[0]})
	if err != nil {
		t.Fatal(err)
	}
	b.disks[2000] = right.(*memSource).data
	out, err := p.Migrate(t.Context(), b.plan(), b.rig(t, b.dir), migrate.Permit{Spot: migrate.Spot{None: true}})
	if err != nil {
		t.Fatal(err)
	}
	b.checkPublished(out)
}

// A hash by the host that differs condemns the disk, too: without --source-hash the next attempt would
// publish what is known to be wrong.
func TestDiskWithAnotherSourceHashIsCopiedAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.process()
	rig := b.rig(t, b.dir)
	rig.Sum = func(context.Context, transport.Disk) (migrate.SourceSum, error) {
		return migrate.SourceSum{Algorithm: "sha256", Hex: strings.Repeat("0", 64)}, nil
	}
	if _, err := p.Migrate(t.Context(), b.plan(), rig, migrate.Permit{SourceHash: true}); !fault.Is(err, fault.Corrupt) || !strings.Contains(fault.HintOf(err), "copies the whole disk again") {
		t.Fatalf("got %v, %q", err, fault.HintOf(err))
	}
	b.reads = map[int32][]disk.Range{}
	out, err := p.Migrate(t.Context(), b.plan(), b.rig(t, b.dir), migrate.Permit{})
	if err != nil {
		t.Fatal(err)
	}
	b.checkPublished(out)
	var n int64
	for _, r := range slices.Concat(b.reads[2000], b.reads[2001]) {
		n += r.Len
	}
	if n < 3*mib { // at least one of the two disks; the other may not have been compared yet
		t.Errorf("%d bytes were read again", n)
	}
}

// What was compared is on record with the seed, in the facts, in the journal and with the target.
func TestRereadIsOnRecord(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	out, err := b.migrate(migrate.Permit{})
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range out.Facts.Verified {
		of := []int64{6, 3}[i]
		if r := v.Reread; r == nil || r.Chunks != of || r.Of != of || r.By != "fake" || len(r.Seed) != 64 || r.NotRead != "" {
			t.Errorf("disk %d: %+v", v.Key, v.Reread)
		}
		if c := b.published.Checks[i]; c.Key != v.Key || c.Reread != *v.Reread {
			t.Errorf("published with %+v", c)
		}
	}
	events, err := journal.NewStore(b.dir + "/state").Events(out.Run)
	if err != nil {
		t.Fatal(err)
	}
	var chosen, compared int
	for _, e := range events {
		switch {
		case e.Reread == nil:
		case e.Reread.Chunks == 0:
			chosen++
			if e.Reread.Seed == "" || e.Reread.List == "" {
				t.Errorf("journaled %+v", e.Reread)
			}
		default:
			compared++
			if !strings.Contains(e.Message, "source re-read (fake): all") {
				t.Errorf("journaled %q", e.Message)
			}
		}
	}
	if chosen != 2 || compared != 2 {
		t.Errorf("%d choices and %d results are journaled", chosen, compared)
	}
	if a, b := out.Facts.Verified[0].Reread.Seed, out.Facts.Verified[1].Reread.Seed; a == b {
		t.Error("two disks have one seed")
	}
}

// A run that read nothing again says why.
func TestNothingReadAgainIsStated(t *testing.T) {
	t.Parallel()
	unsupported := fault.New(fault.Unsupported, "the disk is a stream")
	denied := fault.New(fault.Denied, "no right to read files")
	for name, tc := range map[string]struct {
		permit migrate.Permit
		err    error
		open   bool
		want   string
		warned int
	}{
		"turned off": {permit: migrate.Permit{Spot: migrate.Spot{None: true}}, want: "turned off by the user"},
		"no way":     {open: true, want: "this source can be read only once"},
		"stream":     {err: unsupported, want: "the disk is a stream", warned: 2},
		"no right":   {err: denied, want: "no right to read files", warned: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			rig := b.rig(t, b.dir)
			if tc.err != nil {
				rig.Reread = func(context.Context, transport.Disk) (disk.Source, string, error) { return nil, "", tc.err }
			}
			if tc.open {
				rig.Reread = nil
			}
			out, err := b.process().Migrate(t.Context(), b.plan(), rig, tc.permit)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range out.Facts.Verified {
				if v.Reread == nil || v.Reread.NotRead != tc.want || v.Reread.Chunks != 0 || v.Reread.Of == 0 {
					t.Errorf("%+v", v.Reread)
				}
			}
			if got := b.published.Checks[0].String(); got != "image = data read from the source (all); source re-read: none: "+tc.want {
				t.Error(got)
			}
			warned := 0
			for _, w := range out.Facts.Warnings {
				if w.Code == "not-read-again" {
					warned++
				}
			}
			if warned != tc.warned {
				t.Errorf("%d warnings, want %d: %+v", warned, tc.warned, out.Facts.Warnings)
			}
		})
	}
}

// A second reading that breaks is repeated; one that keeps breaking ends the run. Neither is taken for a
// comparison.
func TestRereadThatFailsPublishesNothing(t *testing.T) {
	t.Parallel()
	for fails, want := range map[int]bool{2: true, 1000: false} {
		b := newBench(t)
		b.vm.Disks = b.vm.Disks[:1]
		rig := b.rig(t, b.dir)
		again := rig.Reread
		var mu sync.Mutex
		opened := 0
		rig.Reread = func(ctx context.Context, d transport.Disk) (disk.Source, string, error) {
			src, by, err := again(ctx, d)
			mu.Lock()
			defer mu.Unlock()
			if opened++; opened <= fails {
				return brokenSource{src}, by, err
			}
			return src, by, err
		}
		out, err := b.process().Migrate(t.Context(), b.plan(), rig, migrate.Permit{})
		if published := b.published != nil; published != want || (err == nil) != want {
			t.Fatalf("%d failures: published %v, %v", fails, published, err)
		}
		if want && out.Facts.Verified[0].Reread.Chunks != 6 {
			t.Errorf("%+v", out.Facts.Verified[0].Reread)
		}
	}
}

// A disk that was resized since it was copied does not open as it was. That is a conflict, as it is for
// commit, and not corruption.
func TestRereadOfAResizedDiskIsAConflict(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.vm.Disks = b.vm.Disks[:1]
	rig := b.rig(t, b.dir)
	rig.Reread = func(context.Context, transport.Disk) (disk.Source, string, error) {
		b.vm.Disks[0].Capacity += mib
		return nil, "", fault.New(fault.Corrupt, "the descriptor is of another size")
	}
	if _, err := b.process().Migrate(t.Context(), b.plan(), rig, migrate.Permit{}); !fault.Is(err, fault.Conflict) || b.published != nil {
		t.Fatalf("got %v", err)
	}
}

type brokenSource struct{ disk.Source }

func (brokenSource) ReadAt(context.Context, []byte, int64) error {
	return fault.New(fault.Transient, "reset")
}

// A run that is interrupted after the second reading, and goes on in another process, claims what was
// compared for these images. One that is interrupted in the second reading does all of it again.
func TestInterruptedRereadIsDoneAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	rig := b.rig(t, b.dir)
	again := rig.Reread
	ctx, cancel := context.WithCancel(t.Context())
	rig.Reread = func(rctx context.Context, d transport.Disk) (disk.Source, string, error) {
		src, by, err := again(rctx, d)
		return stoppingSource{src, cancel}, by, err
	}
	p := b.process()
	if _, err := p.Migrate(ctx, b.plan(), rig, migrate.Permit{}); !fault.Is(err, fault.Canceled) {
		t.Fatalf("got %v", err)
	}
	facts, err := p.Facts(t.Context(), b.plan().ID)
	if err != nil || facts.Verified != nil {
		t.Fatalf("on record after the interruption: %+v, %v", facts.Verified, err)
	}
	b.before = failing("publish", errors.New("killed"))
	if _, err := p.Migrate(t.Context(), b.plan(), b.rig(t, b.dir), migrate.Permit{}); err == nil {
		t.Fatal("published")
	}
	b.before = failing("", nil)
	rig = b.rig(t, b.dir)
	rig.Reread = func(context.Context, transport.Disk) (disk.Source, string, error) {
		return nil, "", errors.New("verify is done")
	}
	out, err := p.Migrate(t.Context(), b.plan(), rig, migrate.Permit{Spot: migrate.Spot{None: true}})
	if err != nil {
		t.Fatal(err)
	}
	b.checkPublished(out)
	if r := out.Facts.Verified[0].Reread; r == nil || r.Chunks != 6 || b.published.Checks[0].Reread != *r {
		t.Errorf("%+v, published %+v", r, b.published.Checks)
	}
}

// stoppingSource cancels the run at the first read.
type stoppingSource struct {
	disk.Source
	cancel func()
}

func (s stoppingSource) ReadAt(ctx context.Context, p []byte, off int64) error {
	s.cancel()
	<-ctx.Done()
	return ctx.Err()
}

// The budget of bandwidth counts the second reading, too.
func TestRereadIsPaced(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	rig := b.rig(t, b.dir)
	var mu sync.Mutex
	var paced, copied int64
	rig.Pace = func(_ context.Context, n int64) error { mu.Lock(); defer mu.Unlock(); paced += n; return nil }
	b.onEvent = func(e journal.Event) {
		if e.Kind == journal.StepStarted && e.Step == "verify" {
			mu.Lock()
			defer mu.Unlock()
			copied = paced
		}
	}
	if _, err := b.process().Migrate(t.Context(), b.plan(), rig, migrate.Permit{}); err != nil {
		t.Fatal(err)
	}
	if again := paced - copied; again != 8*mib+512 {
		t.Errorf("%d bytes of the second reading were paced", again)
	}
}

// The final state is what counts of a warm run: wrong bytes of the first round are found while the VM is
// off.
func TestWrongBytesOfAWarmRunAreFound(t *testing.T) {
	t.Parallel()
	b := warmBench(t, 1)
	b.wrongReread = true
	if _, err := b.warm(2); !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), "differs from the copied data") || b.published != nil {
		t.Fatalf("got %v", err)
	}
	b.wrongReread = false
	out, err := b.warm(1)
	if err != nil {
		t.Fatal(err)
	}
	b.checkPublished(out)
}
