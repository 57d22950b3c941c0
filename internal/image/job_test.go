package image

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/manifest"
)

const testSize = 5<<20 + disk.SectorSize

var errStop = errors.New("killed here")

// testJob is a job for a disk of six chunks, with a record of its events.
type testJob struct {
	t        *testing.T
	job      Job
	src      *disk.Pattern
	restarts []string // reasons of complete copies (Job.Anew)
	written  int      // number of written chunks
}

func newTestJob(t *testing.T, format Format) *testJob {
	path := filepath.Join(t.TempDir(), "image")
	r := &testJob{t: t, src: disk.NewPattern(testSize)}
	r.job = Job{
		Opener: File{Path: path, Format: format, Size: testSize}, Path: path, Manifest: path + ".manifest",
		Info:   manifest.Info{Disk: "d", Size: testSize, Source: "here"},
		Source: func(context.Context) (disk.Source, error) { return r.src, nil },
		Anew:   func(why string) { r.restarts = append(r.restarts, why) },
		GiveUp: "remove it", Seed: 1,
	}
	return r
}

// copyMissing returns a copy function that copies up to n missing chunks, and fails with errStop if more are missing.
func (r *testJob) copyMissing(n int) func(context.Context, *Copying) error {
	return func(ctx context.Context, c *Copying) error {
		for chunk := range c.Log.Chunks() {
			if c.Log.Has(chunk) {
				continue
			}
			if n--; n < 0 {
				return errStop
			}
			if err := r.copyChunk(ctx, c, chunk); err != nil {
				return err
			}
		}
		return nil
	}
}

func (r *testJob) copyChunk(ctx context.Context, c *Copying, chunk int64) error {
	at := c.Log.Info().Chunk(chunk)
	buf := make([]byte, at.Len)
	r.written++
	return errors.Join(r.src.ReadAt(ctx, buf, at.Off), c.Target.WriteAt(ctx, buf, at.Off), c.Target.Sync(ctx),
		c.Log.Append(ctx, []manifest.Run{{First: chunk, Hashes: []manifest.Hash{manifest.HashOf(buf)}}}))
}

func (r *testJob) fill(n int) (manifest.Hash, int64, error) {
	r.t.Helper()
	return r.job.Fill(r.t.Context(), r.copyMissing(n))
}

// stopAfter fills n chunks and then stops.
func (r *testJob) stopAfter(n int) {
	r.t.Helper()
	if _, missing, err := r.fill(n); !errors.Is(err, errStop) || missing != int64(6-n) {
		r.t.Fatalf("%d chunks missing, %v", missing, err)
	}
}

// fillRest fills the rest, checks the number of written chunks, and compares the image with the disk.
func (r *testJob) fillRest(written int) {
	r.t.Helper()
	r.written = 0
	if _, missing, err := r.fill(6); err != nil || missing != 0 || r.written != written {
		r.t.Fatalf("%d chunks missing, %d written, want %d: %v", missing, r.written, written, err)
	}
	src, err := r.job.Opener.Read(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	defer src.Close()
	buf := make([]byte, testSize)
	if err := errors.Join(src.ReadAt(r.t.Context(), buf, 0), disk.NewCheck(r.src).WriteAt(r.t.Context(), buf, 0)); err != nil {
		r.t.Error(err)
	}
}

// eachFormat runs a test for each image format.
func eachFormat(t *testing.T, run func(t *testing.T, r *testJob)) {
	for _, format := range []Format{Raw, QCOW2} {
		t.Run(string(format), func(t *testing.T) { run(t, newTestJob(t, format)) })
	}
}

func TestFillContinuesAfterAStop(t *testing.T) {
	eachFormat(t, func(t *testing.T, r *testJob) {
		r.stopAfter(2)
		r.fillRest(4)
		r.fillRest(0) // a finished image is not filled again
		if len(r.restarts) > 0 {
			t.Errorf("restarts %v, want none", r.restarts)
		}
	})
}

// A complete manifest does not mean that the copy has ended: a host that pushes the disk may be in the middle of its
// last chunk.
func TestCompleteManifestDoesNotEndCopy(t *testing.T) {
	eachFormat(t, func(t *testing.T, r *testJob) {
		half := func(ctx context.Context, c *Copying) error {
			if err := r.copyMissing(6)(ctx, c); err != nil {
				return err
			}
			return errStop
		}
		if _, missing, err := r.job.Fill(t.Context(), half); !errors.Is(err, errStop) || missing != 0 {
			t.Fatalf("%d chunks missing, %v", missing, err)
		}
		called := false
		_, _, err := r.job.Fill(t.Context(), func(context.Context, *Copying) error {
			called = true
			return nil
		})
		if err != nil || !called {
			t.Errorf("Fill treated the image as complete, %v", err)
		}
		_, _, err = r.job.Fill(t.Context(), func(context.Context, *Copying) error {
			t.Error("a completed image is filled again")
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func TestInconsistentImageIsCopiedAgain(t *testing.T) {
	damages := map[string]struct {
		do  func(*testJob) error
		why string
	}{
		"manifest gone":    {func(r *testJob) error { return os.Remove(r.job.Manifest) }, ""},
		"manifest damaged": {func(r *testJob) error { return os.WriteFile(r.job.Manifest, []byte("no manifest"), 0o600) }, "manifest"},
		"image gone":       {func(r *testJob) error { return os.Remove(r.job.Path) }, ""},
		"of another disk":  {func(r *testJob) error { r.job.Info.Source = "there"; return nil }, "its manifest is of"},
		"image lost bytes": {func(r *testJob) error { return zeroData(r.job.Path) }, "differs from its manifest"},
	}
	for name, s := range damages {
		t.Run(name, func(t *testing.T) {
			eachFormat(t, func(t *testing.T, r *testJob) {
				r.stopAfter(3)
				if err := s.do(r); err != nil {
					t.Fatal(err)
				}
				r.fillRest(6)
				if s.why != "" && (len(r.restarts) != 1 || !strings.Contains(r.restarts[0], s.why)) {
					t.Errorf("reasons %q, want %q", r.restarts, s.why)
				}
			})
		})
	}
}

// zeroData writes zeros over the second chunk of the disk in the image's file.
func zeroData(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	from := (info.Size() - testSize) &^ 0xffff // the disk begins here in both formats
	_, err = f.WriteAt(make([]byte, 1<<20), from+1<<20)
	return err
}

func TestChangedSourceIsAConflict(t *testing.T) {
	eachFormat(t, func(t *testing.T, r *testJob) {
		r.stopAfter(3)
		r.job.Source = func(context.Context) (disk.Source, error) { return disk.NewSparsePattern(testSize, 0, 1), nil }
		_, _, err := r.fill(6)
		if !fault.Is(err, fault.Conflict) || !strings.Contains(fault.HintOf(err), "remove it") {
			t.Errorf("got %v, remedy %q", err, fault.HintOf(err))
		}
	})
}

func TestImageOfAnotherSizeIsAConflict(t *testing.T) {
	eachFormat(t, func(t *testing.T, r *testJob) {
		r.stopAfter(1)
		r.job.Info.Size = 8 << 20
		if _, _, err := r.fill(6); !fault.Is(err, fault.Conflict) {
			t.Errorf("got %v", err)
		}
	})
}

func TestUnknownFormat(t *testing.T) {
	f := File{Path: filepath.Join(t.TempDir(), "image"), Format: "vhd", Size: 512}
	_, _, openErr := f.Open(t.Context())
	_, readErr := f.Read(t.Context())
	if !fault.Is(openErr, fault.Unsupported) || !fault.Is(readErr, fault.Unsupported) {
		t.Errorf("got %v and %v", openErr, readErr)
	}
}

func TestEmptyImageFileIsFilled(t *testing.T) {
	eachFormat(t, func(t *testing.T, r *testJob) {
		if err := os.WriteFile(r.job.Path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		r.fillRest(6)
	})
}
