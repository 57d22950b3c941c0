package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/manifest"
)

// largerSize is the size of the grown disk. The last chunk of testSize becomes a complete one, and three chunks follow.
const largerSize = 8<<20 + 3*disk.SectorSize

// resizeDisk changes the size of the disk. The common part keeps its content.
func (r *testJob) resizeDisk(size int64) {
	file := r.job.Opener.(File)
	file.Size = size
	r.job.Opener, r.job.Info.Size, r.src = file, size, disk.NewPattern(size)
	r.job.Grow = file.Grow
}

// fillGrownImage fills the rest, and compares the image and its manifest with the larger disk.
func (r *testJob) fillGrownImage(written int) {
	r.t.Helper()
	r.written = 0
	root, missing, err := r.fill(9)
	if err != nil || missing != 0 || r.written != written {
		r.t.Fatalf("%d chunks missing, %d written, want %d: %v", missing, r.written, written, err)
	}
	s, err := manifest.Load(r.job.Manifest)
	if err != nil {
		r.t.Fatal(err)
	}
	defer s.Close()
	if s.Info() != r.job.Info || s.Root() != root {
		r.t.Errorf("sealed as %+v with root %v, want %v", s.Info(), s.Root(), root)
	}
	if report, err := r.job.Verify(r.t.Context(), manifest.VerifyOptions{}); err != nil || report.Bytes != r.job.Info.Size {
		r.t.Errorf("verified %d bytes: %v", report.Bytes, err)
	}
	src, err := r.job.Opener.Read(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	defer src.Close()
	buf := make([]byte, r.job.Info.Size)
	if err := errors.Join(src.ReadAt(r.t.Context(), buf, 0), disk.NewCheck(r.src).WriteAt(r.t.Context(), buf, 0)); err != nil {
		r.t.Error(err)
	}
}

// A disk grows while its image is new, half full, full or finished. The process that grows the image is not killed, or
// killed before or after the image grows. Of the durable chunks, only the short last one is copied again.
func TestImageGrowsWithItsDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for _, had := range []int{0, 3, 6, finished} {
		for killed := range 3 {
			t.Run(fmt.Sprintf("%d chunks, killed %d", had, killed), func(t *testing.T) {
				eachFormat(t, func(t *testing.T, r *testJob) {
					r.prepareImage(had)
					r.resizeDisk(largerSize)
					r.killWhileGrowing(killed)
					kept := min(had, 5) // the sixth chunk was short
					r.fillGrownImage(9 - kept)
					if len(r.restarts) > 0 {
						t.Errorf("restarts %v, want none", r.restarts)
					}
				})
			})
		}
	}
}

const finished = 7 // all six chunks, and a sealed manifest

// prepareImage copies the given number of chunks. With finished it completes the image.
func (r *testJob) prepareImage(chunks int) {
	r.t.Helper()
	if chunks == finished {
		r.fillRest(6)
		return
	}
	if _, err := r.job.Advance(r.t.Context(), r.copyMissing(chunks)); err != nil && !errors.Is(err, errStop) {
		r.t.Fatal(err)
	}
}

// killWhileGrowing interrupts an attempt before the image grows (1), just after that (2), or not at all (0).
func (r *testJob) killWhileGrowing(when int) {
	r.t.Helper()
	grow := r.job.Grow
	switch when {
	case 0:
		return
	case 1:
		r.job.Grow = func(context.Context, int64) error { return errStop }
	case 2:
		r.job.Grow = func(ctx context.Context, least int64) error { return errors.Join(grow(ctx, least), errStop) }
	}
	if _, _, err := r.fill(9); !errors.Is(err, errStop) {
		r.t.Fatalf("got %v, want %v", err, errStop)
	}
	r.job.Grow = grow
}

// A disk grows again before the attempt after the first growth completes.
func TestImageGrowsWithItsDiskTwice(t *testing.T) {
	eachFormat(t, func(t *testing.T, r *testJob) {
		r.prepareImage(6)
		r.resizeDisk(7 << 20)
		r.killWhileGrowing(2)
		r.resizeDisk(largerSize)
		r.killWhileGrowing(2)
		r.fillGrownImage(4)
	})
}

// A qcow2 image whose tables moved because of its growth passes Verify with its tables, and can be written
// again.
func TestGrownImageWithMovedTablesIsVerified(t *testing.T) {
	eachFormat(t, func(t *testing.T, r *testJob) {
		r.resizeDisk(1 << 30)
		r.fillEnds()
		r.resizeDisk(8 << 30)
		r.fillEnds()
		if report, err := r.job.Verify(t.Context(), manifest.VerifyOptions{NoSums: true}); err != nil || report.Bytes != 8<<30 {
			t.Errorf("verified %d bytes: %v", report.Bytes, err)
		}
		log, err := manifest.Open(r.job.Manifest)
		if err == nil {
			err = errors.Join(log.Drop(1, 1), log.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		r.fillEnds()
		if _, err := r.job.Verify(t.Context(), manifest.VerifyOptions{NoSums: true}); err != nil {
			t.Error(err)
		}
	})
}

// fillEnds fills the image of a disk with data only in its first and its last chunk.
func (r *testJob) fillEnds() {
	r.t.Helper()
	r.job.Source = nil // the source has data everywhere
	_, _, err := r.job.Fill(r.t.Context(), func(ctx context.Context, c *Copying) error {
		last := c.Log.Chunks() - 1
		for chunk := range c.Log.Chunks() {
			if c.Log.Has(chunk) || chunk == last {
				continue
			}
			if chunk == 0 {
				if err := r.copyChunk(ctx, c, 0); err != nil {
					return err
				}
				continue
			}
			n := int64(1)
			for chunk+n < last && !c.Log.Has(chunk+n) {
				n++
			}
			if err := c.Log.Append(ctx, []manifest.Run{{First: chunk, Zeros: n}}); err != nil {
				return err
			}
		}
		if c.Log.Has(last) {
			return nil
		}
		return r.copyChunk(ctx, c, last)
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// If the image or the manifest of a grown disk is missing or damaged, the whole larger disk is copied again.
func TestGrownImageWithoutAManifestIsCopiedAgain(t *testing.T) {
	for name, damage := range map[string]func(*testJob) error{
		"gone":            func(r *testJob) error { return os.Remove(r.job.Manifest) },
		"damaged":         func(r *testJob) error { return os.WriteFile(r.job.Manifest, []byte("no manifest"), 0o600) },
		"of another disk": func(r *testJob) error { r.job.Info.Source = "there"; return nil },
		"image gone":      func(r *testJob) error { return os.Remove(r.job.Path) },
		"image empty":     func(r *testJob) error { return os.Truncate(r.job.Path, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			eachFormat(t, func(t *testing.T, r *testJob) {
				r.prepareImage(3)
				r.resizeDisk(largerSize)
				if err := damage(r); err != nil {
					t.Fatal(err)
				}
				r.fillGrownImage(9)
			})
		})
	}
}

// An image that is smaller than the size in its manifest is a conflict, and so is a disk that
// shrank.
func TestGrowRefusesAWrongSize(t *testing.T) {
	for name, change := range map[string]func(*testJob) error{
		"cut":    func(r *testJob) error { r.resizeDisk(largerSize); return os.Truncate(r.job.Path, 2<<20) },
		"shrank": func(r *testJob) error { r.resizeDisk(4 << 20); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			eachFormat(t, func(t *testing.T, r *testJob) {
				r.prepareImage(3)
				if err := change(r); err != nil {
					t.Fatal(err)
				}
				if _, _, err := r.fill(9); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
					t.Errorf("got %v, remedy %q", err, fault.HintOf(err))
				}
			})
		})
	}
}

// Chunks that were verified before the disk grew stay verified, except for the short last one. After a crash during the
// growth, no chunk counts as verified before the next attempt.
func TestVerifiedRecordFollowsADiskThatGrew(t *testing.T) {
	for _, killed := range []int{0, 2} {
		eachFormat(t, func(t *testing.T, r *testJob) {
			r.prepareImage(6)
			if report, err := r.job.VerifyWritten(t.Context(), func(manifest.Progress) {}); err != nil || report.Read != testSize {
				t.Fatalf("read %d bytes back: %v", report.Read, err)
			}
			r.resizeDisk(largerSize)
			r.killWhileGrowing(killed)
			proven := openProven(t, r.job.Manifest, r.job.Info)
			if n := proven.Count(); n > 0 {
				t.Errorf("%d chunks of the larger disk are verified before the copy", n)
			}
			if _, err := r.job.Advance(t.Context(), func(context.Context, *Copying) error { return nil }); err != nil {
				t.Fatal(err)
			}
			if proven = openProven(t, r.job.Manifest, r.job.Info); proven.Count() != 5 || proven.Has(5) {
				t.Errorf("%d chunks are verified, the short one: %v", proven.Count(), proven.Has(5))
			}
			src, err := r.job.Opener.ReadUnfinished(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			if proven.setMapping(mappingOf(src)); proven.Count() != 5 {
				t.Errorf("%d chunks are verified with the mapping of the larger image", proven.Count())
			}
			r.fillGrownImage(4)
		})
	}
}
