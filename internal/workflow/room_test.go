package workflow

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/decamp/decamp/internal/fault"
)

// requiresRoot skips the test if it cannot mount a file system.
func requiresRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
}

// fillDisk uses all free space under dir, and returns a function that frees it.
func fillDisk(t *testing.T, dir string) (free func()) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "of-others"))
	must(t, err)
	defer f.Close()
	for page := make([]byte, os.Getpagesize()); err == nil; {
		_, err = f.Write(page)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return func() { t.Helper(); must(t, os.Remove(f.Name())) }
}

// An attempt ends if the disk of the state directory is full, and its error names the directory. The next attempt
// continues after the recorded steps.
func TestFullStateDirectoryIsReported(t *testing.T) {
	requiresRoot(t)
	dir := t.TempDir()
	must(t, syscall.Mount("decamp-test", dir, "tmpfs", 0, "size=8m"))
	t.Cleanup(func() { must(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	firsts, free := 0, func() {}
	e := openEngine(t, dir, registerPair(
		func(context.Context, int) (int, error) { firsts++; return 7, nil },
		func(_ context.Context, n int) (int, error) {
			if firsts == 1 && free != nil {
				free = fillDisk(t, dir)
			}
			return n * 6, nil
		}))
	must(t, e.Start(t.Context(), "r1", "pair", 0))
	err := e.Wait(t.Context(), "r1")
	if !fault.Is(err, fault.Full) || !errors.Is(err, fault.ErrNoRoom) || !strings.Contains(err.Error(), dir) || fault.HintOf(err) == "" {
		t.Fatalf("got %v with hint %q, want Full with a hint", err, fault.HintOf(err))
	}
	if err := e.Start(t.Context(), "r2", "pair", 0); !errors.Is(err, fault.ErrNoRoom) {
		t.Errorf("Start of another run: got %v, want ErrNoRoom", err)
	}
	free()
	free = nil
	must(t, e.Start(t.Context(), "r1", "pair", 0))
	must(t, e.Wait(t.Context(), "r1"))
	if firsts != 1 {
		t.Errorf("the first step ran %d times, want 1", firsts)
	}
}
