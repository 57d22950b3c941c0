package nfs

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Kernels from 6.13 on keep times of birth fine enough to tell files apart, so that what
// older ones do is played here: the first two inodes that come are those of files removed
// within the tick.
func TestNothingIsMadeWithTheIdentityOfTheDead(t *testing.T) {
	x := &export{}
	now := time.Now().UnixNano()
	x.removed.add(inodeID{1, now})
	x.removed.add(inodeID{2, now})
	x.removed.add(inodeID{3, now - int64(time.Hour)}) // nobody is born then any more
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
	// On a machine so slow that the tick was over by then, the first one is right too.
	if slow := time.Since(time.Unix(0, now)) > birthTick; !slow && (o.attr.id.ino != 3 || removed != 2) {
		t.Errorf("inode %d was kept, %d were given back", o.attr.id.ino, removed)
	}
	if len(x.removed.until) > 2 {
		t.Errorf("%d graves", len(x.removed.until))
	}
}
