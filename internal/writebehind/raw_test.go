package writebehind

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/disktest"
	"github.com/decamp/decamp/internal/disk/rawfile"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/manifest"
)

func TestMain(m *testing.M) { disktest.MainWithVictim(m, landUntilKilled) }

const victimSize = 24<<20 + 512

// A landing is a disk that lands on a raw image.
type landing struct {
	*File
	pool   *Pool
	log    *manifest.Log
	target *rawfile.File
	source *rawfile.Source
}

// openLanding starts or continues a landing on the image at path.
func openLanding(path string, o Options) (*landing, error) {
	target, err := rawfile.Create(path, victimSize, rawfile.Options{})
	o.Fresh = err == nil
	if fault.Is(err, fault.Conflict) {
		target, err = rawfile.Open(path, rawfile.Options{})
		o.Size = victimSize
	}
	if err != nil {
		return nil, err
	}
	log, err := manifest.Open(path + ".manifest")
	if fault.Is(err, fault.NotFound) {
		log, err = manifest.Create(path+".manifest", manifest.Info{Disk: "2000", Size: victimSize})
	}
	if err != nil {
		return nil, errors.Join(err, target.Close())
	}
	source, err := rawfile.OpenSource(path, rawfile.SourceOptions{})
	if err != nil {
		return nil, errors.Join(err, log.Close(), target.Close())
	}
	o.Source = source
	pool := NewPool(MinBudget)
	f, err := New(target, log, pool, o)
	return &landing{f, pool, log, target, source}, err
}

func (l *landing) Close() error {
	return errors.Join(l.File.Close(), l.source.Close(), l.log.Close(), l.target.Close())
}

// sendDisk writes want, 64 KiB at a time, some parts twice and slightly out of order. It calls step after each part.
func (l *landing) sendDisk(ctx context.Context, want *disk.Pattern, step func()) error {
	const size = 64 << 10
	for off := int64(0); off < want.Size(); off += size {
		for _, at := range []int64{off ^ size, max(off-size, 0)} { // neighbours are exchanged
			if at >= want.Size() {
				continue
			}
			r := disk.Range{Off: at, Len: min(size, want.Size()-at)}
			if err := sendRange(ctx, l.File, l.pool, want, r); err != nil {
				return err
			}
		}
		step()
	}
	return nil
}

// landUntilKilled lands a disk again and again.
func landUntilKilled(path string) error {
	ctx := context.Background()
	l, err := openLanding(path, Options{CheckpointBytes: 2 << 20})
	if err != nil {
		return err
	}
	for seed := uint64(0); ; seed++ {
		want := disk.NewSparsePattern(victimSize, 0.7, seed)
		if err := errors.Join(l.Truncate(ctx, 0), l.Truncate(ctx, victimSize)); err != nil {
			return err
		}
		if err := l.sendDisk(ctx, want, disktest.Step); err != nil {
			return err
		}
	}
}

// A landing that is killed at any time leaves an image with all chunks that the manifest lists. A disk that is sent
// again from its beginning is complete.
func TestKilledLandingResumes(t *testing.T) {
	for _, steps := range []int{1, 40, 300, 500} {
		path := filepath.Join(t.TempDir(), "disk.raw")
		disktest.KillVictim(t, path, steps)
		l, err := openLanding(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		image, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		wantListed(t, l.log, image)
		want := disk.NewSparsePattern(victimSize, 0.4, 77)
		ctx := t.Context()
		if err := errors.Join(l.Truncate(ctx, 0), l.Truncate(ctx, victimSize),
			l.sendDisk(ctx, want, func() {}), l.Finish(ctx), l.Close()); err != nil {
			t.Fatal(err)
		}
		wantRaw(t, path, want)
	}
}

// wantRaw fails the test if the image at path or its manifest differs from want.
func wantRaw(t *testing.T, path string, want disk.Source) {
	t.Helper()
	b := make([]byte, want.Size())
	if err := want.ReadAt(t.Context(), b, 0); err != nil {
		t.Fatal(err)
	}
	image, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	wantBytes(t, "image", image, b, 0)
	log, err := manifest.Open(path + ".manifest")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if !log.Complete() {
		t.Fatalf("%d chunks are missing in the manifest", log.Missing())
	}
	wantListed(t, log, image)
}
