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

// amendedDisk is a disk with changes in chunk 1, chunk 2 and the short last chunk.
type amendedDisk struct{ disk.Source }

// chunks returns the changed chunks.
func (a amendedDisk) chunks() []int64 { return []int64{1, 2, (a.Size() - 1) / manifest.ChunkSize} }

func (a amendedDisk) ReadAt(ctx context.Context, p []byte, off int64) error {
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

// checkContent compares the image with a disk, and its root with the given one.
func (r *testJob) checkContent(want disk.Source, root manifest.Hash) {
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
		r.t.Errorf("the image differs from the disk: %v", err)
	}
}

// Amend changes the image and its manifest to those of the amended disk, with the root that RootWith returned
// before. A second Amend has no effect.
func TestAmend(t *testing.T) {
	eachFormat(t, func(t *testing.T, r *testJob) {
		r.fillRest(6)
		want := amendedDisk{r.src}
		expected := r.expectedRoot(want)
		for range 2 {
			root, err := r.job.Amend(t.Context(), Amendment{Source: want, Chunks: want.chunks()})
			if err != nil || root != expected {
				t.Fatalf("root %v, want %v: %v", root, expected, err)
			}
			r.checkContent(want, root)
		}
	})
}

// expectedRoot returns the root that RootWith computes for the amended disk.
func (r *testJob) expectedRoot(a amendedDisk) manifest.Hash {
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
		r.t.Errorf("without changes the root is %v, want %v: %v", same, s.Root(), err)
	}
	root, err := s.RootWith(other)
	if err != nil || root == same {
		r.t.Errorf("root %v: %v", root, err)
	}
	return root
}

// failingDisk is an amendedDisk that fails after n reads.
type failingDisk struct {
	amendedDisk
	n *int // remaining successful reads
}

var errStopped = errors.New("stopped")

func (f failingDisk) ReadAt(ctx context.Context, p []byte, off int64) error {
	if *f.n--; *f.n < 0 {
		return errStopped
	}
	return f.amendedDisk.ReadAt(ctx, p, off)
}

// After an interrupted amendment the manifest is not sealed, and the same amendment continues.
func TestInterruptedAmendResumes(t *testing.T) {
	for after := range 3 {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			eachFormat(t, func(t *testing.T, r *testJob) {
				r.fillRest(6)
				want := amendedDisk{r.src}
				n := after
				if _, err := r.job.Amend(t.Context(), Amendment{failingDisk{want, &n}, want.chunks()}); !errors.Is(err, errStopped) {
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
				r.checkContent(want, root)
			})
		})
	}
}

// An image with other missing chunks than the changed ones is not amended.
func TestAmendRequiresAllOtherChunks(t *testing.T) {
	eachFormat(t, func(t *testing.T, r *testJob) {
		r.fillRest(6)
		log, err := manifest.Open(r.job.Manifest)
		if err := errors.Join(err, log.Drop(3, 1), log.Close()); err != nil {
			t.Fatal(err)
		}
		want := amendedDisk{r.src}
		if _, err := r.job.Amend(t.Context(), Amendment{want, want.chunks()}); !fault.Is(err, fault.Corrupt) || fault.HintOf(err) == "" {
			t.Errorf("%v", err)
		}
	})
}

// trimmedDisk is a disk in which chunk 1 and half of chunk 2 became zeros.
type trimmedDisk struct{ disk.Source }

func (d trimmedDisk) ReadAt(ctx context.Context, p []byte, off int64) error {
	if err := d.Source.ReadAt(ctx, p, off); err != nil {
		return err
	}
	zeros := disk.Range{Off: manifest.ChunkSize, Len: manifest.ChunkSize * 3 / 2}
	if both := zeros.Intersect(disk.Range{Off: off, Len: int64(len(p))}); !both.Empty() {
		clear(p[both.Off-off : both.End()-off])
	}
	return nil
}

// Amend frees the space of data that becomes zeros, in both formats.
func TestAmendFreesSpace(t *testing.T) {
	eachFormat(t, func(t *testing.T, r *testJob) {
		r.fillRest(6)
		before := r.usedSpace()
		root, err := r.job.Amend(t.Context(), Amendment{Source: trimmedDisk{r.src}, Chunks: []int64{1, 2}})
		if err != nil {
			t.Fatal(err)
		}
		r.checkContent(trimmedDisk{r.src}, root)
		if got, want := before-r.usedSpace(), int64(manifest.ChunkSize*3/2); got < want-64<<10 || got > want+64<<10 {
			t.Errorf("the image takes %d bytes less, want %d", got, want)
		}
	})
}

// usedSpace returns the bytes that the image takes on its file system.
func (r *testJob) usedSpace() int64 {
	r.t.Helper()
	var st syscall.Stat_t
	if err := syscall.Stat(r.job.Path, &st); err != nil {
		r.t.Fatal(err)
	}
	return st.Blocks * 512
}
