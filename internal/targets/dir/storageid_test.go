package dir

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/decamp/decamp/internal/fault"
)

func TestStorageIDIsUnique(t *testing.T) {
	folder, other := t.TempDir(), filepath.Join(t.TempDir(), "mounted elsewhere")
	if err := os.Symlink(folder, other); err != nil {
		t.Fatal(err)
	}
	ids := make([]string, 16)
	var group sync.WaitGroup
	for i := range ids {
		group.Go(func() {
			var err error
			if ids[i], err = StorageID([]string{folder, other}[i%2]); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	for _, id := range ids {
		if id != ids[0] || id == "" {
			t.Fatalf("got IDs %q, want one", ids)
		}
	}
	if id, err := StorageID(t.TempDir()); err != nil || id == ids[0] {
		t.Errorf("another folder has ID %q, %v", id, err)
	}
	left, err := os.ReadDir(folder)
	if err != nil || len(left) != 1 {
		t.Errorf("got files %v, %v, want one", left, err)
	}
}

func TestStorageIDErrors(t *testing.T) {
	if _, err := StorageID(filepath.Join(t.TempDir(), "gone")); !fault.Is(err, fault.NotFound) {
		t.Errorf("missing folder: got %v", err)
	}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, storageName), []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := StorageID(folder); !fault.Is(err, fault.Corrupt) || fault.HintOf(err) == "" {
		t.Errorf("invalid file: got %v", err)
	}
}
