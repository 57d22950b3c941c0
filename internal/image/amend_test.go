package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/manifest"
)

// amended is a disk whose chunks 1, 2 and the last, which is short, are other ones.
type amended struct{ disk.Source }

func (a amended) chunks() []int64 { return []int64{1, 2, (a.Size() - 1) / manifest.ChunkSize} }

func (a amended) ReadAt(ctx context.Context, p []byte, off int64) error {
	if err := a.Source.ReadAt(ctx, p, off); err != nil {
		return err
	}
	for i := range p {
		c := (off + int64(i)) / manifest.ChunkSize
		if c == 1 || c == 2 || c == a.chunks()[2] {
			p[i] ^= 0xa5
		}
	}
	return nil
}

// holds compares the image, and its manifest, with a disk.
func (r *rig) holds(want disk.Source, root manifest.Hash) {
	r.t.Helper()
	s, err := manifest.Load(r.job.Manifest)
	if err != nil {
		r.t.Fatal(err)
	}
	defer s.Close()
	if report, err := r.job.Verify(r.t.Context(), manifest.VerifyOptions{}); err != nil || report.Root != root {
		r.t.Fatalf("verified as %v, want %v: %v", report.Root, root, err)
	}
	src, err := r.job.Opener.Read(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	defer src.Close()
	got, all := make([]byte, want.Size()), make([]byte, want.Size())
	if err := errors.Join(src.ReadAt(r.t.Context(), got, 0), want.ReadAt(r.t.Context(), all, 0)); err != nil || !bytes.Equal(got, all) {
		r.t.Errorf("the image is not the disk: %v", err)
	}
}

// The image and its manifest become those of the amended disk; RootWith knew the root before. To
// amend again changes nothing.
func TestAmend(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.done(6)
		want := amended{r.src}
		foreseen := r.foreseen(want)
		for range 2 {
			root, err := r.job.Amend(t.Context(), Amendment{Source: want, Chunks: want.chunks()})
			if err != nil || root != foreseen {
				t.Fatalf("root %v, want %v: %v", root, foreseen, err)
			}
			r.holds(want, root)
		}
	})
}

func (r *rig) foreseen(a amended) manifest.Hash {
	r.t.Helper()
	s, err := manifest.Load(r.job.Manifest)
	if err != nil {
		r.t.Fatal(err)
	}
	defer s.Close()
	other := map[int64]manifest.Hash{}
	for _, c := range a.chunks() {
		p := make([]byte, r.job.Info.Chunk(c).Len)
		if err := a.ReadAt(r.t.Context(), p, r.job.Info.Chunk(c).Off); err != nil {
			r.t.Fatal(err)
		}
		other[c] = manifest.HashOf(p)
	}
	same, err := s.RootWith(nil)
	if err != nil || same != s.Root() {
		r.t.Errorf("with nothing changed the root is %v, want %v: %v", same, s.Root(), err)
	}
	root, err := s.RootWith(other)
	if err != nil || root == same {
		r.t.Errorf("root %v: %v", root, err)
	}
	return root
}

// failingAmended fails to be read at the n-th chunk: the amendment stops there.
type failingAmended struct {
	amended
	n *int
}

var errStopped = errors.New("stopped")

func (f failingAmended) ReadAt(ctx context.Context, p []byte, off int64) error {
	if *f.n--; *f.n < 0 {
		return errStopped
	}
	return f.amended.ReadAt(ctx, p, off)
}

// Stopped on the way, no manifest takes the image for whole; the same amendment goes on.
func TestAmendGoesOnWhereItStopped(t *testing.T) {
	for after := range 3 {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			each(t, func(t *testing.T, r *rig) {
				r.done(6)
				want := amended{r.src}
				n := after
				if _, err := r.job.Amend(t.Context(), Amendment{failingAmended{want, &n}, want.chunks()}); !errors.Is(err, errStopped) {
					t.Fatalf("%v", err)
				}
				if s, err := manifest.Load(r.job.Manifest); err == nil {
					s.Close()
					t.Fatal("the manifest is sealed")
				}
				root, err := r.job.Amend(t.Context(), Amendment{want, want.chunks()})
				if err != nil {
					t.Fatal(err)
				}
				r.holds(want, root)
			})
		})
	}
}

// An image that lacks more than what changes is not amended.
func TestAmendNeedsTheRestToBeProven(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.done(6)
		log, err := manifest.Open(r.job.Manifest)
		if err := errors.Join(err, log.Drop(3, 1), log.Close()); err != nil {
			t.Fatal(err)
		}
		want := amended{r.src}
		if _, err := r.job.Amend(t.Context(), Amendment{want, want.chunks()}); !fault.Is(err, fault.Corrupt) || fault.HintOf(err) == "" {
			t.Errorf("%v", err)
		}
	})
}

// trimmed is a disk whose chunk 1 is zeros now, and half of chunk 2.
type trimmed struct{ disk.Source }

func (d trimmed) ReadAt(ctx context.Context, p []byte, off int64) error {
	if err := d.Source.ReadAt(ctx, p, off); err != nil {
		return err
	}
	gone := disk.Range{Off: manifest.ChunkSize, Len: manifest.ChunkSize * 3 / 2}
	if both := gone.Intersect(disk.Range{Off: off, Len: int64(len(p))}); !both.Empty() {
		clear(p[both.Off-off : both.End()-off])
	}
	return nil
}

// What becomes zeros gives its room back, in either format, and the manifest says so all the same.
func TestAmendGivesRoomBack(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.done(6)
		before := r.taken()
		root, err := r.job.Amend(t.Context(), Amendment{Source: trimmed{r.src}, Chunks: []int64{1, 2}})
		if err != nil {
			t.Fatal(err)
		}
		r.holds(trimmed{r.src}, root)
		if got, want := before-r.taken(), int64(manifest.ChunkSize*3/2); got < want-64<<10 || got > want+64<<10 {
			t.Errorf("it takes %d bytes less, want %d", got, want)
		}
	})
}

// taken is the room that the image has on its file system, in bytes.
func (r *rig) taken() int64 {
	r.t.Helper()
	var st syscall.Stat_t
	if err := syscall.Stat(r.job.Path, &st); err != nil {
		r.t.Fatal(err)
	}
	return st.Blocks * 512
}
