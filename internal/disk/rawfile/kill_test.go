package rawfile

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/disktest"
)

const victimSize = 24<<20 + 1024

// TestMain turns the test binary into the process that TestKill9 kills.
// It puts temporary files on a disk: a file system in memory does not limit sizes, and O_DIRECT and holes behave
// differently there.
func TestMain(m *testing.M) {
	if err := os.Setenv("TMPDIR", "/var/tmp"); err != nil {
		panic(err)
	}
	disktest.MainWithVictim(m, victim)
}

// victim writes wrong content at random offsets and reports each write, until it is killed.
func victim(path string) error {
	f, err := Open(path, Options{})
	if err != nil {
		return err
	}
	rnd, p := rand.New(rand.NewPCG(1, 2)), bytes.Repeat([]byte{0xdb}, 700<<10)
	for {
		off := rnd.Int64N(victimSize)
		r := disk.Range{Off: off, Len: min(1+rnd.Int64N(int64(len(p))), victimSize-off)}
		if rnd.IntN(4) == 0 {
			err = f.Zero(context.Background(), r)
		} else {
			err = f.WriteAt(context.Background(), p[:r.Len], r.Off)
		}
		if err != nil {
			return err
		}
		disktest.Step()
	}
}

// TestKill9 kills a writer after a number of writes. The lock is then free, and the image accepts the right
// content.
func TestKill9(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk.raw")
	f, err := Create(path, victimSize, Options{})
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, writes := range []int{1, 3, 17, 60} {
		disktest.KillVictim(t, path, writes)
		want := disk.NewSparsePattern(victimSize, 0.6, uint64(writes))
		rewrite(t, path, want)
		got, content := make([]byte, victimSize), make([]byte, victimSize)
		s := openSource(t, path, true)
		err := errors.Join(s.ReadAt(t.Context(), got, 0), want.ReadAt(t.Context(), content, 0), s.Close())
		if err != nil || !bytes.Equal(got, content) {
			t.Fatalf("after a kill at write %d: content differs (%v)", writes, err)
		}
	}
}

// rewrite resumes the image and overwrites all of it with want.
func rewrite(t *testing.T, path string, want disk.Source) {
	t.Helper()
	f, err := Open(path, Options{Size: want.Size()})
	if err != nil {
		t.Fatal(err)
	}
	extents, err := want.Extents(t.Context(), disk.Range{Len: want.Size()})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range extents {
		if e.Kind == disk.Zero {
			err = f.Zero(t.Context(), e.Range)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	copyRange(t, f, want, disk.Range{Len: want.Size()})
	if err := f.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
}
