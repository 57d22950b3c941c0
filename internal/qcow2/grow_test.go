package qcow2

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/test/lane"
)

// TestGrownImageIsTheLargerDisk grows random images repeatedly, unfinished and finished. The image keeps
// its data, has zeros after it, accepts writes everywhere, and passes qemu-img check.
func TestGrownImageIsTheLargerDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	seeds := map[bool]uint64{false: 8, true: 16}[lane.Slow]
	for seed := range seeds {
		rnd := rand.New(rand.NewPCG(seed, 43))
		size := randomSize(rnd)
		path := filepath.Join(t.TempDir(), "disk.qcow2")
		im, err := Create(path, size, Options{})
		if err != nil {
			t.Fatal(err)
		}
		want := make(memory, size)
		for range 1 + rnd.IntN(3) {
			writeRandomPieces(t, rnd, im, want)
			if rnd.IntN(2) == 0 {
				err = im.Finish(t.Context())
			}
			if err := errors.Join(err, im.Close()); err != nil {
				t.Fatal(err)
			}
			least := size - rnd.Int64N(2)*512
			size += rnd.Int64N(40) * 100 << 10
			want = append(want, make([]byte, size-want.Size())...)
			if err := Grow(t.Context(), path, least, size); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if im, err = Open(path, Options{Size: size}); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		writeRandomPieces(t, rnd, im, want)
		if err := im.Finish(t.Context()); err != nil {
			t.Fatal(err)
		}
		checkWithQEMU(t, path, want)
		compareRandomReads(t, rnd, seed, openDirect(t, path), want)
	}
}

// markOffsets are the offsets of pieces of a pattern on a large disk.
var markOffsets = []int64{0, 300<<20 + 700, 1<<30 - 700, 1 << 30, 19<<30 + 77, 20<<30 - 700}

// writeMarks writes the marks that fit on a disk of size bytes.
func writeMarks(t *testing.T, im *Image, size int64) {
	t.Helper()
	p := make([]byte, 700)
	for _, off := range markOffsets {
		if off+700 > size {
			continue
		}
		if err := errors.Join(disk.NewPattern(size).ReadAt(t.Context(), p, off), im.WriteAt(t.Context(), p, off)); err != nil {
			t.Fatal(err)
		}
	}
}

// checkMarks requires the marks that writeMarks wrote when the disk had size bytes, and zeros at the others.
func checkMarks(t *testing.T, src disk.Source, size int64) {
	t.Helper()
	p, q := make([]byte, 700), make([]byte, 700)
	for _, off := range markOffsets {
		if off+700 > src.Size() {
			continue
		}
		clear(q)
		err := src.ReadAt(t.Context(), p, off)
		if off+700 <= size {
			err = errors.Join(err, disk.NewPattern(src.Size()).ReadAt(t.Context(), q, off))
		}
		if err != nil || !bytes.Equal(p, q) {
			t.Errorf("at %d: content differs (%v)", off, err)
		}
	}
}

const smallDisk, largeDisk = 1 << 30, 20 << 30 // the tables of largeDisk do not fit before the data

// growStates creates images of a disk of smallDisk bytes, in the states that a run can leave them in.
var growStates = map[string]func(t *testing.T, path string){
	"unfinished": func(t *testing.T, path string) { createMarked(t, path, (*Image).Close) },
	"finished": func(t *testing.T, path string) {
		createMarked(t, path, func(im *Image) error { return im.Finish(context.Background()) })
	},
	"grown": func(t *testing.T, path string) {
		createMarked(t, path, (*Image).Close)
		if err := Grow(t.Context(), path, smallDisk, largeDisk/2); err != nil {
			t.Fatal(err)
		}
	},
	"grown and finished": func(t *testing.T, path string) {
		createMarked(t, path, (*Image).Close)
		err := Grow(t.Context(), path, smallDisk, largeDisk/2)
		if err != nil {
			t.Fatal(err)
		}
		im, err := Open(path, Options{Size: largeDisk / 2})
		if err != nil {
			t.Fatal(err)
		}
		if err := im.Finish(t.Context()); err != nil {
			t.Fatal(err)
		}
		checkMarks(t, openDirect(t, path), smallDisk)
	},
}

func createMarked(t *testing.T, path string, leave func(*Image) error) {
	t.Helper()
	im, err := Create(path, smallDisk, Options{})
	if err != nil {
		t.Fatal(err)
	}
	writeMarks(t, im, smallDisk)
	if err := leave(im); err != nil {
		t.Fatal(err)
	}
}

// expiringContext is canceled after a number of calls of Err.
type expiringContext struct {
	context.Context
	left int
}

func (d *expiringContext) Err() error {
	if d.left--; d.left < 0 {
		return context.Canceled
	}
	return nil
}

// Grow is canceled before each of its operations, from every state. Afterwards the image is unfinished with the
// old or the new size, or a second Grow makes it so.
func TestGrowCanceledAtEveryOperation(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for name, begin := range growStates {
		t.Run(name, func(t *testing.T) {
			for n, ended := 0, true; ended; n++ {
				path := filepath.Join(t.TempDir(), "disk.qcow2")
				begin(t, path)
				ended = Grow(&expiringContext{t.Context(), n}, path, smallDisk, largeDisk) != nil
				if ended && n > 20 {
					t.Fatal("Grow does not complete after 20 operations")
				}
				if !ended && n < 5 {
					t.Fatalf("Grow checks its context only %d times, want at least 5", n)
				}
				checkGrows(t, path, fmt.Sprintf("canceled before operation %d", n))
			}
		})
	}
}

// checkGrows grows an image with marks to largeDisk, checks the marks at each step, and finishes it.
func checkGrows(t *testing.T, path, what string) {
	t.Helper()
	if src, err := OpenUnfinished(path, SourceOptions{}); err == nil {
		if src.Size() == largeDisk {
			checkMarks(t, src, smallDisk)
		}
		if err := src.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := Grow(t.Context(), path, smallDisk, largeDisk); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	src, err := OpenUnfinished(path, SourceOptions{})
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	checkMarks(t, src, smallDisk)
	im, err := Open(path, Options{Size: largeDisk})
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	writeMarks(t, im, largeDisk)
	if err := errors.Join(im.Finish(t.Context()), src.Close()); err != nil {
		t.Fatal(err)
	}
	finished := openDirect(t, path)
	checkMarks(t, finished, largeDisk)
	if err := finished.Close(); err != nil {
		t.Error(err)
	}
	if _, err := exec.LookPath("qemu-img"); err == nil {
		qemuImg(t, "check", "-q", "-f", "qcow2", path)
	}
}

// A grown image that was finished can be opened for writing again.
func TestGrownImageResumesFinished(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk.qcow2")
	growStates["grown and finished"](t, path)
	im, err := Open(path, Options{Size: largeDisk / 2})
	if err != nil {
		t.Fatal(err)
	}
	writeMarks(t, im, largeDisk/2)
	if err := im.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkMarks(t, openDirect(t, path), largeDisk/2)
}

// Grow does not move the data and allocates no blocks.
func TestGrowAllocatesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk.qcow2")
	growStates["unfinished"](t, path)
	blocks := func() int64 {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Sys().(*syscall.Stat_t).Blocks
	}
	had := blocks()
	if err := Grow(t.Context(), path, smallDisk, largeDisk); err != nil {
		t.Fatal(err)
	}
	if has := blocks(); has > had {
		t.Errorf("%d sectors allocated after Grow, %d before", has, had)
	}
}

func TestGrowRefuses(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, begin := range growStates {
		begin(t, at(name))
	}
	cut := at("cut")
	growStates["unfinished"](t, cut)
	other, empty := at("other"), at("empty")
	if err := errors.Join(os.Truncate(cut, 64<<20), os.WriteFile(other, bytes.Repeat([]byte("x"), 8<<20), 0o600), os.WriteFile(empty, make([]byte, 8<<20), 0o600)); err != nil {
		t.Fatal(err)
	}
	grow := func(name string, least, size int64) error { return Grow(t.Context(), at(name), least, size) }
	for name, c := range map[string]struct {
		err  error
		want fault.Kind
	}{
		"it shrinks":              {grow("unfinished", 0, smallDisk-512), fault.Conflict},
		"it was larger":           {grow("unfinished", smallDisk+512, largeDisk), fault.Conflict},
		"a finished one shrinks":  {grow("finished", 0, smallDisk-512), fault.Conflict},
		"cut":                     {grow("cut", smallDisk, largeDisk), fault.Conflict},
		"no qcow2":                {grow("other", 0, largeDisk), fault.Conflict},
		"empty, but it had bytes": {grow("empty", smallDisk, largeDisk), fault.Conflict},
		"no file":                 {grow("none", 0, largeDisk), fault.NotFound},
		"4 PiB":                   {grow("unfinished", 0, 4<<50), fault.Unsupported},
	} {
		if !fault.Is(c.err, c.want) || fault.HintOf(c.err) == "" {
			t.Errorf("%s: got %v (%v), want kind %v", name, c.err, fault.KindOf(c.err), c.want)
		}
	}
	checkMarks(t, openDirect(t, at("finished")), smallDisk) // the refused calls changed nothing
	if err := grow("empty", 0, largeDisk); err != nil {     // an empty file remains if Create is killed at once
		t.Fatal(err)
	}
	im, err := Open(at("empty"), Options{Size: largeDisk})
	if err != nil {
		t.Fatal(err)
	}
	if err := im.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestGrowRefusesAnOpenImage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk.qcow2")
	im, err := Create(path, smallDisk, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer im.Close()
	if err := Grow(t.Context(), path, smallDisk, largeDisk); !fault.Is(err, fault.Conflict) {
		t.Errorf("Grow of an open image: got %v, want a conflict", err)
	}
}
