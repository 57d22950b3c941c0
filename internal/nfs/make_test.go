package nfs

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// makeUnique does not return an object with the identity of a removed file. Kernels from 6.13 on have times of birth
// that are fine enough to distinguish files. Therefore the test simulates an older kernel: the first two new inodes
// are those of files that were removed within the tick.
func TestMakeUniqueSkipsRemovedIdentities(t *testing.T) {
	x := &export{}
	now := time.Now().UnixNano()
	x.removed.add(inodeID{1, now})
	x.removed.add(inodeID{2, now})
	x.removed.add(inodeID{3, now - int64(time.Hour)}) // too old to occur again
	ino, removed := uint64(0), 0
	o, err := x.makeUnique(func() (*object, error) {
		ino++
		fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		return &object{fd: fd, attr: &attr{id: inodeID{ino, now}}}, err
	}, func() error { removed++; return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer o.close()
	// On a slow machine the tick may be over, and then the first inode is correct too.
	if slow := time.Since(time.Unix(0, now)) > birthTick; !slow && (o.attr.id.ino != 3 || removed != 2) {
		t.Errorf("got inode %d after %d removals, want 3 after 2", o.attr.id.ino, removed)
	}
	if len(x.removed.until) > 2 {
		t.Errorf("%d removed identities are recorded, want at most 2", len(x.removed.until))
	}
}
