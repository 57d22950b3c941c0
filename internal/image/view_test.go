package image_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/image"
)

// openView returns an unfinished image with data, its guarded target, and a View of it.
func openView(t *testing.T, f image.Format, limit int64, lost func(error)) (data []byte, w disk.Target, v *image.View, file image.File) {
	t.Helper()
	dir := t.TempDir()
	const size = 5<<20 + 512
	file = image.File{Path: filepath.Join(dir, "image"), Format: f, Size: size}
	w, _, err := file.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	data = make([]byte, size)
	rnd := rand.NewChaCha8([32]byte{1})
	_, _ = rnd.Read(data[:2<<20]) // the rest is a hole
	if err := errors.Join(w.WriteAt(t.Context(), data[:2<<20], 0), w.Sync(t.Context())); err != nil {
		t.Fatal(err)
	}
	base, err := file.ReadUnfinished(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if v, err = image.NewView(base, dir, limit, lost); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(v.Close(), w.Close()); err != nil {
			t.Error(err)
		}
	})
	return data, v.Guard(w), v, file
}

// A View does not change while several goroutines write to the image, and their writes succeed.
func TestViewIsStableDuringWrites(t *testing.T) {
	t.Parallel()
	for _, f := range []image.Format{image.Raw, image.QCOW2} {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			data, w, v, file := openView(t, f, 1<<30, func(err error) { t.Error(err) })
			ctx, stop := context.WithCancel(t.Context())
			var readers, writers sync.WaitGroup
			for n := range 2 {
				readers.Go(func() {
					rnd := rand.New(rand.NewPCG(uint64(n), 1))
					for ctx.Err() == nil {
						checkView(t, v, data, rnd)
					}
				})
			}
			const part = (5<<20 + 512) / 3
			for n := range 3 {
				writers.Go(func() { writeRandomly(t, w, disk.Range{Off: int64(n) * part / 512 * 512, Len: part / 512 * 512}) })
			}
			writers.Wait()
			stop()
			readers.Wait()
			got := make([]byte, len(data))
			if err := v.ReadAt(t.Context(), got, 0); err != nil || !bytes.Equal(got, data) {
				t.Errorf("the view has changed: %v", err)
			}
			if left, _ := filepath.Glob(filepath.Join(filepath.Dir(file.Path), "view-*")); left != nil {
				t.Errorf("files %v remain", left)
			}
			if err := v.Close(); err != nil {
				t.Error(err)
			}
			if err := w.WriteAt(t.Context(), make([]byte, 4096), 0); err != nil {
				t.Errorf("a write after the view: %v", err)
			}
		})
	}
}

// checkView reads a random range of a view, and compares it with data.
func checkView(t *testing.T, v *image.View, data []byte, rnd *rand.Rand) {
	off := rnd.IntN(len(data))
	p := make([]byte, min(1+rnd.IntN(300<<10), len(data)-off))
	if err := v.ReadAt(context.Background(), p, int64(off)); err != nil || !bytes.Equal(p, data[off:off+len(p)]) {
		t.Errorf("%d bytes at %d differ: %v", len(p), off, err)
	}
}

// writeRandomly writes and zeroes random ranges within r.
func writeRandomly(t *testing.T, w disk.Target, r disk.Range) {
	rnd := rand.New(rand.NewPCG(uint64(r.Off), 2))
	for range 60 {
		off := rnd.Int64N(r.Len/512) * 512
		part := disk.Range{Off: r.Off + off, Len: min(int64(1+rnd.IntN(400))*512, r.Len-off)}
		var err error
		if rnd.IntN(3) == 0 {
			err = w.Zero(t.Context(), part)
		} else {
			err = w.WriteAt(t.Context(), bytes.Repeat([]byte{0xa5}, int(part.Len)), part.Off)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// If a View has no room to save data, the View ends and the write succeeds.
func TestFullViewEndsAndWritesSucceed(t *testing.T) {
	t.Parallel()
	var reported []error
	_, w, v, file := openView(t, image.Raw, 256<<10, func(err error) { reported = append(reported, err) })
	for off := range int64(4) {
		if err := w.WriteAt(t.Context(), bytes.Repeat([]byte{1}, 128<<10), off*128<<10); err != nil {
			t.Fatal(err)
		}
	}
	if len(reported) != 1 || !fault.Is(reported[0], fault.Full) || fault.HintOf(reported[0]) == "" {
		t.Errorf("reported errors %v", reported)
	}
	if err := v.ReadAt(t.Context(), make([]byte, 512), 4<<20); !fault.Is(err, fault.Full) {
		t.Errorf("read of a lost view: %v", err)
	}
	src, err := file.ReadUnfinished(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	p := make([]byte, 128<<10)
	if err := src.ReadAt(t.Context(), p, 384<<10); err != nil || p[0] != 1 {
		t.Errorf("the write is missing in the image: %v", err)
	}
}
