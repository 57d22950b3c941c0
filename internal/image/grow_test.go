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

// largerSize is what testSize becomes: the chunk that was short is whole then, and three more.
const largerSize = 8<<20 + 3*disk.SectorSize

// becomes makes the rig's disk one of size bytes, which begin as they did.
func (r *rig) becomes(size int64) {
	place := r.job.Opener.(File)
	place.Size = size
	r.job.Opener, r.job.Info.Size, r.src = place, size, disk.NewPattern(size)
	r.job.Grow = place.Grow
}

// grown fills the rest, and compares the image and its manifest with the larger disk.
func (r *rig) grown(written int) {
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

// A disk grew while its image was new, half full, full or finished, and the process that lets
// them grow is killed before the image does, after it did, or not at all: of what was proven
// only the chunk that was short is copied again.
func TestImageFollowsADiskThatGrew(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for _, had := range []int{0, 3, 6, finished} {
		for killed := range 3 {
			t.Run(fmt.Sprintf("%d chunks, killed %d", had, killed), func(t *testing.T) {
				each(t, func(t *testing.T, r *rig) {
					r.has(had)
					r.becomes(largerSize)
					r.killedWhileGrowing(killed)
					kept := min(had, 5) // the sixth is another chunk now
					r.grown(9 - kept)
					if len(r.anew) > 0 {
						t.Errorf("copied anew: %v", r.anew)
					}
				})
			})
		}
	}
}

const finished = 7 // chunks, and sealed

func (r *rig) has(chunks int) {
	r.t.Helper()
	if chunks == finished {
		r.done(6)
		return
	}
	if _, err := r.job.Advance(r.t.Context(), r.copy(chunks)); err != nil && !errors.Is(err, errStop) {
		r.t.Fatal(err)
	}
}

// killedWhileGrowing ends an attempt before the image has grown, or just after that.
func (r *rig) killedWhileGrowing(when int) {
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
		r.t.Fatalf("not killed: %v", err)
	}
	r.job.Grow = grow
}

// It grows again before anybody could act on the first time.
func TestImageFollowsADiskThatGrewTwice(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.has(6)
		r.becomes(7 << 20)
		r.killedWhileGrowing(2)
		r.becomes(largerSize)
		r.killedWhileGrowing(2)
		r.grown(4)
	})
}

// A qcow2 that grew so much that its tables had to go elsewhere is as good as any other: it is
// verified, tables and all, and can be written again.
func TestImageWhoseTablesMovedIsVerified(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.becomes(1 << 30)
		r.sparse()
		r.becomes(8 << 30)
		r.sparse()
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
		r.sparse()
		if _, err := r.job.Verify(t.Context(), manifest.VerifyOptions{NoSums: true}); err != nil {
			t.Error(err)
		}
	})
}

// sparse fills the image of a disk with data in its first and in its last chunk.
func (r *rig) sparse() {
	r.t.Helper()
	r.job.Source = nil // it is a pattern all over
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

// Where the manifest is of no use, or there is none, the image becomes one of the larger disk
// and is copied anew.
func TestGrownImageWithoutAManifestIsCopiedAnew(t *testing.T) {
	for name, spoil := range map[string]func(*rig) error{
		"gone":            func(r *rig) error { return os.Remove(r.job.Manifest) },
		"damaged":         func(r *rig) error { return os.WriteFile(r.job.Manifest, []byte("no manifest"), 0o600) },
		"of another disk": func(r *rig) error { r.job.Info.Source = "there"; return nil },
		"image gone":      func(r *rig) error { return os.Remove(r.job.Path) },
		"image empty":     func(r *rig) error { return os.Truncate(r.job.Path, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, r *rig) {
				r.has(3)
				r.becomes(largerSize)
				if err := spoil(r); err != nil {
					t.Fatal(err)
				}
				r.grown(9)
			})
		})
	}
}

// An image that is smaller than its manifest says is not what it lists, and a disk that shrank
// is another.
func TestGrowDoesNotHideWhatIsWrong(t *testing.T) {
	for name, change := range map[string]func(*rig) error{
		"cut":    func(r *rig) error { r.becomes(largerSize); return os.Truncate(r.job.Path, 2<<20) },
		"shrank": func(r *rig) error { r.becomes(4 << 20); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, r *rig) {
				r.has(3)
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

// What was read back before the disk grew need not be read again, but for the chunk that was
// short; a crash in between proves nothing.
func TestProvenFollowsADiskThatGrew(t *testing.T) {
	for _, killed := range []int{0, 2} {
		each(t, func(t *testing.T, r *rig) {
			r.has(6)
			if report, err := r.job.VerifyWritten(t.Context(), func(manifest.Progress) {}); err != nil || report.Read != testSize {
				t.Fatalf("read %d bytes back: %v", report.Read, err)
			}
			r.becomes(largerSize)
			r.killedWhileGrowing(killed)
			proven := openProven(t, r.job.Manifest, r.job.Info)
			if n := proven.Count(); n > 0 {
				t.Errorf("%d chunks are proven of a disk that nobody copied", n)
			}
			if _, err := r.job.Advance(t.Context(), func(context.Context, *Copying) error { return nil }); err != nil {
				t.Fatal(err)
			}
			if proven = openProven(t, r.job.Manifest, r.job.Info); proven.Count() != 5 || proven.Has(5) {
				t.Errorf("%d chunks are proven, the one that was short %v", proven.Count(), proven.Has(5))
			}
			src, err := r.job.Opener.ReadUnfinished(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			if proven.setMapping(mappingOf(src)); proven.Count() != 5 {
				t.Errorf("%d chunks are proven where the larger image has them", proven.Count())
			}
			r.grown(4)
		})
	}
}
