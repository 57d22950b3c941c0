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

// requiresRoot skips where nothing can be mounted.
func requiresRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
}

// fill takes all the room there is under dir, and returns what gives it back.
func fill(t *testing.T, dir string) (room func()) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "of-others"))
	ok(t, err)
	defer f.Close()
	for page := make([]byte, os.Getpagesize()); err == nil; {
		_, err = f.Write(page)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return func() { t.Helper(); ok(t, os.Remove(f.Name())) }
}

// Without room under the state directory an attempt ends, its error says where to make some, and
// the next one goes on behind what was recorded.
func TestFullStateIsSaid(t *testing.T) {
	requiresRoot(t)
	dir := t.TempDir()
	ok(t, syscall.Mount("decamp-test", dir, "tmpfs", 0, "size=8m"))
	t.Cleanup(func() { ok(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	firsts, room := 0, func() {}
	e := open(t, dir, pair(
		func(context.Context, int) (int, error) { firsts++; return 7, nil },
		func(_ context.Context, n int) (int, error) {
			if firsts == 1 && room != nil {
				room = fill(t, dir)
			}
			return n * 6, nil
		}))
	ok(t, e.Start(t.Context(), "r1", "pair", 0))
	err := e.Wait(t.Context(), "r1")
	if !fault.Is(err, fault.Full) || !errors.Is(err, fault.ErrNoRoom) || !strings.Contains(err.Error(), dir) || fault.HintOf(err) == "" {
		t.Fatalf("%v, remedy %q", err, fault.HintOf(err))
	}
	if err := e.Start(t.Context(), "r2", "pair", 0); !errors.Is(err, fault.ErrNoRoom) {
		t.Errorf("another one: %v", err)
	}
	room()
	room = nil
	ok(t, e.Start(t.Context(), "r1", "pair", 0))
	ok(t, e.Wait(t.Context(), "r1"))
	if firsts != 1 {
		t.Errorf("first ran %d times", firsts)
	}
}
