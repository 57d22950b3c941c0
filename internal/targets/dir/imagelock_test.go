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

// target returns the target of a folder.
func targetOf(t *testing.T, folder string) *Target {
	t.Helper()
	tgt, err := New(folder, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return tgt
}

// Who has a VM's images keeps others away from them, says who he is, and leaves nothing.
func TestHold(t *testing.T) {
	folder := t.TempDir()
	vm, other := &inventory.VM{Ref: "7", Name: "web01", UUID: "u"}, &inventory.VM{Ref: "8", Name: "web01", UUID: "v"}
	a, b := targetOf(t, folder), targetOf(t, folder)
	release, err := a.LockImages(t.Context(), vm)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.LockImages(t.Context(), vm); !fault.Is(err, fault.Transient) || !strings.Contains(err.Error(), "process ") || fault.HintOf(err) == "" {
		t.Errorf("the second got %v (%v)", err, fault.KindOf(err))
	}
	free, err := b.LockImages(t.Context(), other)
	if err != nil {
		t.Fatalf("another VM: %v", err)
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
		t.Errorf("left: %v, %v", left, err)
	}
}

// The name goes with each release, so of many at once each may open another file: still only
// one has it at a time.
func TestOneHoldsAtATime(t *testing.T) {
	folder := t.TempDir()
	vm := &inventory.VM{Ref: "7", UUID: "u"}
	var has sync.Mutex
	var done sync.WaitGroup
	for range 8 {
		tgt := targetOf(t, folder)
		done.Go(func() {
			for held := 0; held < 50; {
				release, err := tgt.LockImages(t.Context(), vm)
				if fault.Is(err, fault.Transient) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if !has.TryLock() {
					t.Error("two have it")
					return
				}
				held++
				has.Unlock()
				if err := release(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done.Wait()
}

func TestHoldInAFolderThatCannotBeWritten(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "f")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	tgt := targetOf(t, folder)
	if err := os.Remove(folder); err != nil {
		t.Fatal(err)
	}
	if _, err := tgt.LockImages(t.Context(), &inventory.VM{Name: "web01"}); err == nil || !strings.Contains(err.Error(), "web01") {
		t.Errorf("got %v", err)
	}
}
