package dir

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// openTarget returns the target of a folder.
func openTarget(t *testing.T, folder string) *Target {
	t.Helper()
	tgt, err := New(folder, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return tgt
}

// LockImages excludes other processes, and its error names the process. The release removes the lock file.
func TestLockImagesExcludesOtherProcesses(t *testing.T) {
	folder := t.TempDir()
	vm, other := &inventory.VM{Ref: "7", Name: "web01", UUID: "u"}, &inventory.VM{Ref: "8", Name: "web01", UUID: "v"}
	a, b := openTarget(t, folder), openTarget(t, folder)
	release, err := a.LockImages(t.Context(), vm)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.LockImages(t.Context(), vm); !fault.Is(err, fault.Transient) || !strings.Contains(err.Error(), "process ") || fault.HintOf(err) == "" {
		t.Errorf("second lock: got %v (%v), want transient with the process", err, fault.KindOf(err))
	}
	free, err := b.LockImages(t.Context(), other)
	if err != nil {
		t.Fatalf("lock of another VM: %v", err)
	}
	for _, release := range []func() error{free, release} {
		if err := release(); err != nil {
			t.Error(err)
		}
	}
	again, err := b.LockImages(t.Context(), vm)
	if err != nil {
		t.Fatal(err)
	}
	if err := again(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("remaining files: %v, %v", left, err)
	}
}

// Each release removes the lock file, so concurrent callers may open different files. Still only one of them has the
// lock.
func TestImageLockHasOneHolder(t *testing.T) {
	folder := t.TempDir()
	vm := &inventory.VM{Ref: "7", UUID: "u"}
	var has sync.Mutex
	var done sync.WaitGroup
	for range 8 {
		tgt := openTarget(t, folder)
		done.Go(func() {
			for locks := 0; locks < 50; {
				release, err := tgt.LockImages(t.Context(), vm)
				if fault.Is(err, fault.Transient) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if !has.TryLock() {
					t.Error("two callers have the lock")
					return
				}
				locks++
				has.Unlock()
				if err := release(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done.Wait()
}

func TestLockImagesInAMissingFolder(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "f")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	tgt := openTarget(t, folder)
	if err := os.Remove(folder); err != nil {
		t.Fatal(err)
	}
	if _, err := tgt.LockImages(t.Context(), &inventory.VM{Name: "web01"}); err == nil || !strings.Contains(err.Error(), "web01") {
		t.Errorf("got %v, want an error with the VM's name", err)
	}
}
