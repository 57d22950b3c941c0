package qcow2

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/disktest"
)

const victimSize = 24<<20 + 1024

// TestMain turns the test binary into the process that TestKill9 kills.
func TestMain(m *testing.M) { disktest.MainWithVictim(m, victim) }

// victim writes wrong content at random offsets, finishes the image and opens it again, until it is
// killed. It reports each step before the step starts, so that a kill can happen in any of them.
func victim(path string) error {
	ctx, p, rnd := context.Background(), bytes.Repeat([]byte{0xdb}, 700<<10), rand.New(rand.NewPCG(1, 2))
	for {
		disktest.Step()
		im, err := Open(path, Options{Size: victimSize})
		if err != nil {
			return err
		}
		for range 3 {
			disktest.Step()
			off := rnd.Int64N(victimSize)
			r := disk.Range{Off: off, Len: min(1+rnd.Int64N(int64(len(p))), victimSize-off)}
			if err := errors.Join(im.WriteAt(ctx, p[:r.Len], off), im.Zero(ctx, disk.Range{Off: off, Len: r.Len / 2})); err != nil {
				return err
			}
		}
		disktest.Step()
		if err := im.Finish(ctx); err != nil {
			return err
		}
	}
}

// TestKill9 kills a writer at each of its steps. The image then resumes, accepts the right content, and passes
// qemu-img check.
func TestKill9(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk.qcow2")
	im, err := Create(path, victimSize, Options{})
	if err := errors.Join(err, im.Close()); err != nil {
		t.Fatal(err)
	}
	for steps := 1; steps <= 12; steps++ {
		disktest.KillVictim(t, path, steps)
		want := disk.NewSparsePattern(victimSize, 0.6, uint64(steps))
		im, err := Open(path, Options{Size: victimSize})
		if err != nil {
			t.Fatalf("after a kill at step %d: %v", steps, err)
		}
		copyDisk(t, im, want)
		if err := im.Finish(t.Context()); err != nil {
			t.Fatal(err)
		}
		readBack(t, path, want)
		checkWithQEMU(t, path, want)
	}
}
