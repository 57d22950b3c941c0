package dir

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/decamp/decamp/internal/inventory"
)

func TestNeed(t *testing.T) {
	root := t.TempDir()
	d, err := New(root, Options{})
	if err != nil {
		t.Fatal(err)
	}
	vm := &inventory.VM{Ref: "vm-1", Name: "a b", UUID: "u", Disks: []inventory.Disk{
		{Capacity: 10 << 20, Used: 3 << 20, Thin: true}, {Capacity: 4 << 20, Used: 4 << 20}, {Capacity: 1 << 20, Used: -1, Thin: true},
	}}
	if least, most := d.Need(vm); least != 3<<20 || most != 15<<20 {
		t.Errorf("Need = %d, %d, want 3 MiB and 15 MiB", least, most)
	}
	if err := os.Mkdir(d.partialFolder(vm), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.partialFolder(vm), "disk0"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	allocated := allocatedBytes(d.partialFolder(vm)) // a file system may allocate more or less than the written size
	if least, most := d.Need(vm); least != max(3<<20-allocated, 0) || most != 15<<20-allocated {
		t.Errorf("with %d allocated bytes: Need = %d, %d", allocated, least, most)
	}
	if d.Folder(vm) != filepath.Join(root, "a_b") || d.Holds(vm) {
		t.Errorf("Folder = %s, Holds = %v", d.Folder(vm), d.Holds(vm))
	}
}

func TestRoomOfTargetsOnOneFileSystem(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	a, errA := New(root, Options{})
	b, errB := New(filepath.Join(root, "x"), Options{})
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	a.free = func(string) (int64, error) { return 7, nil }
	free, one, err := a.Room()
	_, two, err2 := b.Room()
	if err != nil || err2 != nil || free != 7 || one != two {
		t.Errorf("got %d bytes free on file systems %d and %d: %v, %v", free, one, two, err, err2)
	}
	if err := os.Remove(filepath.Join(root, "x")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Room(); err == nil {
		t.Error("Room of a missing folder succeeds")
	}
}
