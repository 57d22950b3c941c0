package filewatch

import (
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// landedFolder is one that a host lands a disk in.
type landedFolder struct {
	*testing.T
	dir string
	*Watch
	now time.Time
}

func newLandedFolder(t *testing.T) *landedFolder {
	l := &landedFolder{T: t, dir: t.TempDir(), now: time.Now()}
	l.Watch = New(l.dir)
	if err := os.Mkdir(filepath.Join(l.dir, "web01"), 0o700); err != nil {
		t.Fatal(err)
	}
	return l
}

const flat = "web01/web01-flat.vmdk"

func (l *landedFolder) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

// write adds a MiB at an offset of a sparse file of 64 MiB.
func (l *landedFolder) write(mib int64) {
	l.Helper()
	f, err := os.OpenFile(filepath.Join(l.dir, flat), os.O_RDWR|os.O_CREATE, 0o600)
	l.must(err)
	defer f.Close()
	l.must(f.Truncate(64 << 20))
	_, err = f.WriteAt([]byte(strings.Repeat("x", 1<<20)), mib<<20)
	l.must(err)
}

func (l *landedFolder) lock() string {
	l.Helper()
	info, err := os.Stat(filepath.Join(l.dir, flat))
	l.must(err)
	name := filepath.Join(l.dir, "web01", fmt.Sprintf(".lck-%016x", bits.ReverseBytes64(info.Sys().(*syscall.Stat_t).Ino)))
	l.must(os.WriteFile(name, make([]byte, 84), 0o600))
	l.must(os.Chtimes(name, l.now, l.now))
	return name
}

// expect looks d later, and checks the state that is told; "" is nothing.
func (l *landedFolder) expect(d time.Duration, want State) {
	l.Helper()
	l.now = l.now.Add(d)
	switch news := l.Poll(l.now); {
	case want == "" && len(news) > 0, want != "" && (len(news) != 1 || news[0].State != want || news[0].Name != flat):
		l.Fatalf("told %v, want %q", news, want)
	}
}

// A file is complete when the host lets go of its lock, however long it pauses.
func TestLockSaysWhenAFileHasLanded(t *testing.T) {
	l := newLandedFolder(t)
	l.write(0)
	l.Used(flat)
	l.Used("web01/.lck-0000000000000001")
	lock := l.lock()
	l.expect(0, Landing)
	for range 3 {
		l.expect(SilentAfter, Landing) // every ten seconds it would be told
		l.must(os.Chtimes(lock, l.now, l.now))
	}
	l.write(1)
	l.expect(time.Second, "")
	if files, _, open := l.Total(); files != 0 || len(open) != 1 {
		t.Errorf("%d landed, open %v", files, open)
	}
	l.must(os.Remove(lock))
	l.expect(time.Second, Landed)
	l.expect(time.Hour, "")
	if files, bytes, open := l.Total(); files != 1 || bytes < 2<<20 || len(open) > 0 {
		t.Errorf("%d landed, %d bytes, open %v", files, bytes, open)
	}
}

// A host that died leaves its lock behind, and another that takes it goes on.
func TestSilentHostIsTold(t *testing.T) {
	l := newLandedFolder(t)
	l.write(0)
	l.Used(flat)
	lock := l.lock()
	l.expect(0, Landing)
	l.expect(SilentAfter+time.Second, Silent)
	l.expect(time.Minute, "")
	l.must(os.Chtimes(lock, l.now, l.now))
	l.expect(time.Second, Landing)
	l.must(os.Remove(filepath.Join(l.dir, flat)))
	l.expect(time.Second, Removed)
	l.expect(time.Second, "")
}

// A copy that begins and ends between two looks has landed like any other, also where an
// earlier server of the folder had the most of it.
func TestQuickCopyHasLanded(t *testing.T) {
	l := newLandedFolder(t)
	l.write(0)
	lock := l.lock()
	l.Used(flat)
	l.write(1)
	l.must(os.Remove(lock))
	l.expect(0, Landing)
	l.expect(quietAfter, Landed)
	l.expect(time.Hour, "")
}

// Clients without locks are done when nothing comes any more.
func TestQuietFileHasLanded(t *testing.T) {
	l := newLandedFolder(t)
	l.write(0)
	l.Used(flat)
	l.expect(0, "") // it may have been there for years
	l.write(1)
	l.expect(time.Second, Landing)
	l.expect(time.Second, "")
	l.expect(quietAfter, Landed)
	l.write(2)
	l.expect(time.Second, Landing)
}

func TestSmallFilesAreNotWorthALine(t *testing.T) {
	l := newLandedFolder(t)
	name := filepath.Join(l.dir, "web01/web01.vmdk")
	l.must(os.WriteFile(name, []byte("# Disk DescriptorFile"), 0o600))
	l.Used("web01/web01.vmdk")
	l.expect(0, "")
	l.must(os.WriteFile(name, []byte("# Disk DescriptorFile\n"), 0o600))
	l.expect(time.Second, "")
}
