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

// TestGrownImageIsTheLargerDisk is a property over seeds: an image that grows again and again,
// unfinished or finished, holds what was written and zeros behind it, takes writes to all of
// it, and passes qemu-img check.
func TestGrownImageIsTheLargerDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	seeds := map[bool]uint64{false: 8, true: 16}[lane.Slow]
	for seed := range seeds {
		rnd := rand.New(rand.NewPCG(seed, 43))
		size := anySize(rnd)
		path := filepath.Join(t.TempDir(), "disk.qcow2")
		im, err := Create(path, size, Options{})
		if err != nil {
			t.Fatal(err)
		}
		want := make(memory, size)
		for range 1 + rnd.IntN(3) {
			scribble(t, rnd, im, want)
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
		scribble(t, rnd, im, want)
		if err := im.Finish(t.Context()); err != nil {
			t.Fatal(err)
		}
		judge(t, path, want)
		readAnyhow(t, rnd, seed, open(t, path), want)
	}
}

// marks are pieces of a pattern here and there on a large disk.
var marks = []int64{0, 300<<20 + 700, 1<<30 - 700, 1 << 30, 19<<30 + 77, 20<<30 - 700}

// mark writes those that lie on a disk of size bytes.
func mark(t *testing.T, im *Image, size int64) {
	t.Helper()
	p := make([]byte, 700)
	for _, off := range marks {
		if off+700 > size {
			continue
		}
		if err := errors.Join(disk.NewPattern(size).ReadAt(t.Context(), p, off), im.WriteAt(t.Context(), p, off)); err != nil {
			t.Fatal(err)
		}
	}
}

// checkMarks reads those that were written to a disk when it had so many bytes.
func checkMarks(t *testing.T, src disk.Source, size int64) {
	t.Helper()
	p, q := make([]byte, 700), make([]byte, 700)
	for _, off := range marks {
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

const smallDisk, largeDisk = 1 << 30, 20 << 30 // the tables of the larger one have no room before the data

// grownUps make an image of a disk of smallDisk bytes, in the states that a run leaves.
var grownUps = map[string]func(t *testing.T, path string){
	"unfinished": func(t *testing.T, path string) { makeMarked(t, path, (*Image).Close) },
	"finished": func(t *testing.T, path string) {
		makeMarked(t, path, func(im *Image) error { return im.Finish(context.Background()) })
	},
	"grown": func(t *testing.T, path string) {
		makeMarked(t, path, (*Image).Close)
		if err := Grow(t.Context(), path, smallDisk, largeDisk/2); err != nil {
			t.Fatal(err)
		}
	},
	"grown and finished": func(t *testing.T, path string) {
		makeMarked(t, path, (*Image).Close)
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
		checkMarks(t, open(t, path), smallDisk)
	},
}

func makeMarked(t *testing.T, path string, leave func(*Image) error) {
	t.Helper()
	im, err := Create(path, smallDisk, Options{})
	if err != nil {
		t.Fatal(err)
	}
	mark(t, im, smallDisk)
	if err := leave(im); err != nil {
		t.Fatal(err)
	}
}

// A dying context ends after it was asked so many times.
type dying struct {
	context.Context
	left int
}

func (d *dying) Err() error {
	if d.left--; d.left < 0 {
		return context.Canceled
	}
	return nil
}

// Grow is ended before each of its operations, from every state: what is left is an unfinished
// image of the disk as it was or as it is, or one that Grow makes that.
func TestGrowEndedAtEveryOperation(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for name, begin := range grownUps {
		t.Run(name, func(t *testing.T) {
			for n, ended := 0, true; ended; n++ {
				path := filepath.Join(t.TempDir(), "disk.qcow2")
				begin(t, path)
				ended = Grow(&dying{t.Context(), n}, path, smallDisk, largeDisk) != nil
				if ended && n > 20 {
					t.Fatal("it does not end")
				}
				if !ended && n < 5 {
					t.Fatalf("it has %d operations only: the test does not look closely enough", n)
				}
				checkGrows(t, path, fmt.Sprintf("ended before operation %d", n))
			}
		})
	}
}

// checkGrows lets an image of marks become one of the larger disk, and looks at it on the way.
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
	mark(t, im, largeDisk)
	if err := errors.Join(im.Finish(t.Context()), src.Close()); err != nil {
		t.Fatal(err)
	}
	finished := open(t, path)
	checkMarks(t, finished, largeDisk)
	if err := finished.Close(); err != nil {
		t.Error(err)
	}
	if _, err := exec.LookPath("qemu-img"); err == nil {
		qemuImg(t, "check", "-q", "-f", "qcow2", path)
	}
}

// A grown image can be written again after it was finished, by this package alone.
func TestGrownImageResumesFinished(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk.qcow2")
	grownUps["grown and finished"](t, path)
	im, err := Open(path, Options{Size: largeDisk / 2})
	if err != nil {
		t.Fatal(err)
	}
	mark(t, im, largeDisk/2)
	if err := im.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkMarks(t, open(t, path), largeDisk/2)
}

// The data stays where it is: growth takes no room.
func TestGrowTakesNoRoom(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk.qcow2")
	grownUps["unfinished"](t, path)
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
		t.Errorf("%d sectors, %d once", has, had)
	}
}

func TestGrowRefuses(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, begin := range grownUps {
		begin(t, at(name))
	}
	cut := at("cut")
	grownUps["unfinished"](t, cut)
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
		"nothing":                 {grow("none", 0, largeDisk), fault.NotFound},
		"4 PiB":                   {grow("unfinished", 0, 4<<50), fault.Unsupported},
	} {
		if !fault.Is(c.err, c.want) || fault.HintOf(c.err) == "" {
			t.Errorf("%s: %v (%v)", name, c.err, fault.KindOf(c.err))
		}
	}
	checkMarks(t, open(t, at("finished")), smallDisk)   // none of the attempts changed it
	if err := grow("empty", 0, largeDisk); err != nil { // a Create that was killed at once
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

func TestGrowKeepsOthersOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk.qcow2")
	im, err := Create(path, smallDisk, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer im.Close()
	if err := Grow(t.Context(), path, smallDisk, largeDisk); !fault.Is(err, fault.Conflict) {
		t.Errorf("while it is written: %v", err)
	}
}
