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

// withWrongBit changes a bit of disk 2000 at off. In the returned environment the second read of the disk still
// returns the right data.
func withWrongBit(b *testBed, env migrate.Environment, off int64) migrate.Environment {
	wrong := bytes.Clone(b.disks[2000])
	wrong[off] ^= 1
	right := b.disks[2000]
	b.disks[2000] = wrong
	env.Reread = func(_ context.Context, d transport.Disk) (disk.Source, string, error) {
		data := b.disks[d.Disk.Key]
		if d.Disk.Key == 2000 {
			data = right
		}
		return &memSource{w: b.world, key: d.Disk.Key, data: data}, "fake", nil
	}
	return env
}

// Data that is wrong before it is hashed is found by default, because a small disk is read a second time
// completely. The error names the disk and the chunk. No VM is published, and all
// chunks of the disk count as not copied.
func TestRereadFindsWrongSourceDataByDefault(t *testing.T) {
	t.Parallel()
	for _, off := range []int64{100, 3*mib + 7, 5*mib + 511} {
		b := newTestBed(t)
		p := b.newProcess()
		_, err := p.Migrate(t.Context(), b.plan(), withWrongBit(b, b.newEnvironment(t, b.dir), off), migrate.Permit{})
		want := strings.Contains(err.Error(), "disk 2000 at "+map[int64]string{0: "0:", 3: "3145728:", 5: "5242880:"}[off/mib])
		if !fault.Is(err, fault.Corrupt) || !want || b.published != nil {
			t.Fatalf("bit at %d: got %v", off, err)
		}
		if hint := fault.HintOf(err); !strings.Contains(hint, "same command again") || !strings.Contains(hint, "--source-hash") {
			t.Errorf("remedy %q", hint)
		}
		if restarted := b.eventsOf(journal.DiskRestarted); len(restarted) != 1 || restarted[0].Disk != 2000 {
			t.Errorf("restarted disks %+v", restarted)
		}
		log, err := manifest.Open(p.manifestPaths(t, b)[0])
		if err != nil {
			t.Fatal(err)
		}
		if log.Missing() != log.Chunks() {
			t.Errorf("%d of %d chunks still count as copied", log.Chunks()-log.Missing(), log.Chunks())
		}
		log.Close()
	}
}

// manifestPaths returns the paths of the manifests of the run.
func (p *process) manifestPaths(t *testing.T, b *testBed) (manifests []string) {
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

// The same command copies the disk again before the VM is published, also without a second read.
func TestWrongDiskIsCopiedAgain(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	p := b.newProcess()
	env := withWrongBit(b, b.newEnvironment(t, b.dir), 100)
	if _, err := p.Migrate(t.Context(), b.plan(), env, migrate.Permit{}); !fault.Is(err, fault.Corrupt) {
		t.Fatalf("got %v", err)
	}
	right, _, err := env.Reread(t.Context(), transport.Disk{Disk: &b.vm.Disks[0]})
	if err != nil {
		t.Fatal(err)
	}
	b.disks[2000] = right.(*memSource).data
	out, err := p.Migrate(t.Context(), b.plan(), b.newEnvironment(t, b.dir), migrate.Permit{Spot: migrate.Spot{None: true}})
	if err != nil {
		t.Fatal(err)
	}
	b.checkPublished(out)
}

// A disk whose hash on the host differs is copied again, also if the next attempt runs without
// --source-hash.
func TestDiskWithAnotherSourceHashIsCopiedAgain(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	p := b.newProcess()
	env := b.newEnvironment(t, b.dir)
	env.Sum = func(context.Context, transport.Disk) (migrate.SourceSum, error) {
		return migrate.SourceSum{Algorithm: "sha256", Hex: strings.Repeat("0", 64)}, nil
	}
	if _, err := p.Migrate(t.Context(), b.plan(), env, migrate.Permit{SourceHash: true}); !fault.Is(err, fault.Corrupt) || !strings.Contains(fault.HintOf(err), "copies the whole disk again") {
		t.Fatalf("got %v, %q", err, fault.HintOf(err))
	}
	b.reads = map[int32][]disk.Range{}
	out, err := p.Migrate(t.Context(), b.plan(), b.newEnvironment(t, b.dir), migrate.Permit{})
	if err != nil {
		t.Fatal(err)
	}
	b.checkPublished(out)
	var n int64
	for _, r := range slices.Concat(b.reads[2000], b.reads[2001]) {
		n += r.Len
	}
	if n < 3*mib { // at least one of the two disks; the other one may not have been compared
		t.Errorf("%d bytes were read again", n)
	}
}

// The facts, the journal and the target have the number of compared chunks and the seed of the sample.
func TestRereadIsRecorded(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
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
			t.Errorf("published check %+v", c)
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
				t.Errorf("journal has %+v", e.Reread)
			}
		default:
			compared++
			if !strings.Contains(e.Message, "source re-read (fake): all") {
				t.Errorf("journal has %q", e.Message)
			}
		}
	}
	if chosen != 2 || compared != 2 {
		t.Errorf("journal has %d samples and %d results, want 2 of each", chosen, compared)
	}
	if a, b := out.Facts.Verified[0].Reread.Seed, out.Facts.Verified[1].Reread.Seed; a == b {
		t.Error("two disks have the same seed")
	}
}

// A run that reads no data a second time reports the reason.
func TestSkippedRereadReportsReason(t *testing.T) {
	t.Parallel()
	unsupported := fault.New(fault.Unsupported, "the disk is a stream")
	denied := fault.New(fault.Denied, "no right to read files")
	for name, tc := range map[string]struct {
		permit migrate.Permit
		err    error
		none   bool // no second way to read the source
		want   string
		warned int // number of warnings
	}{
		"turned off": {permit: migrate.Permit{Spot: migrate.Spot{None: true}}, want: "turned off by the user"},
		"no way":     {none: true, want: "this source can be read only once"},
		"stream":     {err: unsupported, want: "the disk is a stream", warned: 2},
		"no right":   {err: denied, want: "no right to read files", warned: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTestBed(t)
			env := b.newEnvironment(t, b.dir)
			if tc.err != nil {
				env.Reread = func(context.Context, transport.Disk) (disk.Source, string, error) { return nil, "", tc.err }
			}
			if tc.none {
				env.Reread = nil
			}
			out, err := b.newProcess().Migrate(t.Context(), b.plan(), env, tc.permit)
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

// A second read that fails is repeated. If it keeps failing, the run ends. A failed read does not count as a
// comparison.
func TestFailedRereadPreventsPublish(t *testing.T) {
	t.Parallel()
	for fails, want := range map[int]bool{2: true, 1000: false} {
		b := newTestBed(t)
		b.vm.Disks = b.vm.Disks[:1]
		env := b.newEnvironment(t, b.dir)
		again := env.Reread
		var mu sync.Mutex
		opened := 0
		env.Reread = func(ctx context.Context, d transport.Disk) (disk.Source, string, error) {
			src, by, err := again(ctx, d)
			mu.Lock()
			defer mu.Unlock()
			if opened++; opened <= fails {
				return brokenSource{src}, by, err
			}
			return src, by, err
		}
		out, err := b.newProcess().Migrate(t.Context(), b.plan(), env, migrate.Permit{})
		if published := b.published != nil; published != want || (err == nil) != want {
			t.Fatalf("%d failures: published %v, %v", fails, published, err)
		}
		if want && out.Facts.Verified[0].Reread.Chunks != 6 {
			t.Errorf("%+v", out.Facts.Verified[0].Reread)
		}
	}
}

// A disk that was resized after the copy is a conflict for the second read, and not corruption.
func TestRereadOfAResizedDiskIsAConflict(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	b.vm.Disks = b.vm.Disks[:1]
	env := b.newEnvironment(t, b.dir)
	env.Reread = func(context.Context, transport.Disk) (disk.Source, string, error) {
		b.vm.Disks[0].Capacity += mib
		return nil, "", fault.New(fault.Corrupt, "the descriptor is of another size")
	}
	if _, err := b.newProcess().Migrate(t.Context(), b.plan(), env, migrate.Permit{}); !fault.Is(err, fault.Conflict) || b.published != nil {
		t.Fatalf("got %v", err)
	}
}

// brokenSource is a source whose reads fail.
type brokenSource struct{ disk.Source }

func (brokenSource) ReadAt(context.Context, []byte, int64) error {
	return fault.New(fault.Transient, "reset")
}

// A run that is interrupted after the second read keeps the result of the comparison when it continues. A run
// that is interrupted during the second read repeats all of it.
func TestInterruptedRereadIsDoneAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	t.Parallel()
	b := newTestBed(t)
	env := b.newEnvironment(t, b.dir)
	again := env.Reread
	ctx, cancel := context.WithCancel(t.Context())
	env.Reread = func(rctx context.Context, d transport.Disk) (disk.Source, string, error) {
		src, by, err := again(rctx, d)
		return stoppingSource{src, cancel}, by, err
	}
	p := b.newProcess()
	if _, err := p.Migrate(ctx, b.plan(), env, migrate.Permit{}); !fault.Is(err, fault.Canceled) {
		t.Fatalf("got %v", err)
	}
	facts, err := p.Facts(t.Context(), b.plan().ID)
	if err != nil || facts.Verified != nil {
		t.Fatalf("recorded after the interruption: %+v, %v", facts.Verified, err)
	}
	b.before = failOperation("publish", errors.New("killed"))
	if _, err := p.Migrate(t.Context(), b.plan(), b.newEnvironment(t, b.dir), migrate.Permit{}); err == nil {
		t.Fatal("the VM was published")
	}
	b.before = failOperation("", nil)
	env = b.newEnvironment(t, b.dir)
	env.Reread = func(context.Context, transport.Disk) (disk.Source, string, error) {
		return nil, "", errors.New("verify is done")
	}
	out, err := p.Migrate(t.Context(), b.plan(), env, migrate.Permit{Spot: migrate.Spot{None: true}})
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

// The bandwidth budget also limits the second read.
func TestRereadIsPaced(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	env := b.newEnvironment(t, b.dir)
	var mu sync.Mutex
	var paced, copied int64
	env.Pace = func(_ context.Context, n int64) error { mu.Lock(); defer mu.Unlock(); paced += n; return nil }
	b.onEvent = func(e journal.Event) {
		if e.Kind == journal.StepStarted && e.Step == "verify" {
			mu.Lock()
			defer mu.Unlock()
			copied = paced
		}
	}
	if _, err := b.newProcess().Migrate(t.Context(), b.plan(), env, migrate.Permit{}); err != nil {
		t.Fatal(err)
	}
	if again := paced - copied; again != 8*mib+512 {
		t.Errorf("%d bytes of the second read were paced, want %d", again, 8*mib+512)
	}
}

// In a warm run the second read happens after the cutover. It finds wrong data that the rounds copied.
func TestWarmRereadFindsWrongData(t *testing.T) {
	t.Parallel()
	b := newWarmTestBed(t, 1)
	b.wrongReread = true
	if _, err := b.migrateWarm(2); !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), "differs from the copied data") || b.published != nil {
		t.Fatalf("got %v", err)
	}
	b.wrongReread = false
	out, err := b.migrateWarm(1)
	if err != nil {
		t.Fatal(err)
	}
	b.checkPublished(out)
}
