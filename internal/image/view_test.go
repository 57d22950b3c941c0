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

// viewed is an unfinished image with data in it, open for writing, and a View of it.
func viewed(t *testing.T, f image.Format, most int64, torn func(error)) (data []byte, w disk.Target, v *image.View, file image.File) {
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
	if v, err = image.NewView(base, dir, most, torn); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(v.Close(), w.Close()); err != nil {
			t.Error(err)
		}
	})
	return data, v.Guard(w), v, file
}

// Whatever is written while a View is read, by several at a time, it stays what it was, and what is
// written arrives.
func TestViewStaysWhileTheImageIsWritten(t *testing.T) {
	t.Parallel()
	for _, f := range []image.Format{image.Raw, image.QCOW2} {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			data, w, v, file := viewed(t, f, 1<<30, func(err error) { t.Error(err) })
			ctx, stop := context.WithCancel(t.Context())
			var readers, writers sync.WaitGroup
			for n := range 2 {
				readers.Go(func() {
					rnd := rand.New(rand.NewPCG(uint64(n), 1))
					for ctx.Err() == nil {
						readSame(t, v, data, rnd)
					}
				})
			}
			const part = (5<<20 + 512) / 3
			for n := range 3 {
				writers.Go(func() { scribble(t, w, disk.Range{Off: int64(n) * part / 512 * 512, Len: part / 512 * 512}) })
			}
			writers.Wait()
			stop()
			readers.Wait()
			got := make([]byte, len(data))
			if err := v.ReadAt(t.Context(), got, 0); err != nil || !bytes.Equal(got, data) {
				t.Errorf("in the end the view is another: %v", err)
			}
			if left, _ := filepath.Glob(filepath.Join(filepath.Dir(file.Path), "view-*")); left != nil {
				t.Errorf("files with names: %v", left)
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

func readSame(t *testing.T, v *image.View, data []byte, rnd *rand.Rand) {
	off := rnd.IntN(len(data))
	p := make([]byte, min(1+rnd.IntN(300<<10), len(data)-off))
	if err := v.ReadAt(context.Background(), p, int64(off)); err != nil || !bytes.Equal(p, data[off:off+len(p)]) {
		t.Errorf("%d bytes at %d are others: %v", len(p), off, err)
	}
}

// scribble writes and zeros here and there within r.
func scribble(t *testing.T, w disk.Target, r disk.Range) {
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

// What a View cannot keep ends it, and is written nonetheless.
func TestViewThatIsTornLetsWritersPass(t *testing.T) {
	t.Parallel()
	var told []error
	_, w, v, file := viewed(t, image.Raw, 256<<10, func(err error) { told = append(told, err) })
	for off := range int64(4) {
		if err := w.WriteAt(t.Context(), bytes.Repeat([]byte{1}, 128<<10), off*128<<10); err != nil {
			t.Fatal(err)
		}
	}
	if len(told) != 1 || !fault.Is(told[0], fault.Full) || fault.HintOf(told[0]) == "" {
		t.Errorf("told %v", told)
	}
	if err := v.ReadAt(t.Context(), make([]byte, 512), 4<<20); !fault.Is(err, fault.Full) {
		t.Errorf("a torn view is read: %v", err)
	}
	src, err := file.ReadUnfinished(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	p := make([]byte, 128<<10)
	if err := src.ReadAt(t.Context(), p, 384<<10); err != nil || p[0] != 1 {
		t.Errorf("what was written is not there: %v", err)
	}
}
