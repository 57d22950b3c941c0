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

// landedFolder is a folder in which a host lands a disk, with a Watch.
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

const flatFile = "web01/web01-flat.vmdk"

func (l *landedFolder) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

// writeMiB writes a MiB at an offset of a sparse file of 64 MiB.
func (l *landedFolder) writeMiB(mib int64) {
	l.Helper()
	f, err := os.OpenFile(filepath.Join(l.dir, flatFile), os.O_RDWR|os.O_CREATE, 0o600)
	l.must(err)
	defer f.Close()
	l.must(f.Truncate(64 << 20))
	_, err = f.WriteAt([]byte(strings.Repeat("x", 1<<20)), mib<<20)
	l.must(err)
}

func (l *landedFolder) createLock() string {
	l.Helper()
	info, err := os.Stat(filepath.Join(l.dir, flatFile))
	l.must(err)
	name := filepath.Join(l.dir, "web01", fmt.Sprintf(".lck-%016x", bits.ReverseBytes64(info.Sys().(*syscall.Stat_t).Ino)))
	l.must(os.WriteFile(name, make([]byte, 84), 0o600))
	l.must(os.Chtimes(name, l.now, l.now))
	return name
}

// pollAndWant polls d later, and fails unless the state want is reported; "" is no report.
func (l *landedFolder) pollAndWant(d time.Duration, want State) {
	l.Helper()
	l.now = l.now.Add(d)
	switch news := l.Poll(l.now); {
	case want == "" && len(news) > 0, want != "" && (len(news) != 1 || news[0].State != want || news[0].Name != flatFile):
		l.Fatalf("Poll reported %v, want %q", news, want)
	}
}

// A file with a lock is complete when the host removes the lock, even after long pauses.
func TestLockRemovalCompletesFile(t *testing.T) {
	l := newLandedFolder(t)
	l.writeMiB(0)
	l.Used(flatFile)
	l.Used("web01/.lck-0000000000000001")
	lock := l.createLock()
	l.pollAndWant(0, Landing)
	for range 3 {
		l.pollAndWant(SilentAfter, Landing) // growing files are reported every ten seconds
		l.must(os.Chtimes(lock, l.now, l.now))
	}
	l.writeMiB(1)
	l.pollAndWant(time.Second, "")
	if files, _, open := l.Total(); files != 0 || len(open) != 1 {
		t.Errorf("Total: %d landed, open %v, want 0 and one", files, open)
	}
	l.must(os.Remove(lock))
	l.pollAndWant(time.Second, Landed)
	l.pollAndWant(time.Hour, "")
	if files, bytes, open := l.Total(); files != 1 || bytes < 2<<20 || len(open) > 0 {
		t.Errorf("Total: %d landed, %d bytes, open %v, want 1, at least 2 MiB, none", files, bytes, open)
	}
}

// A stale lock is reported as Silent. If it is renewed, the file is Landing again.
func TestSilentHostIsReported(t *testing.T) {
	l := newLandedFolder(t)
	l.writeMiB(0)
	l.Used(flatFile)
	lock := l.createLock()
	l.pollAndWant(0, Landing)
	l.pollAndWant(SilentAfter+time.Second, Silent)
	l.pollAndWant(time.Minute, "")
	l.must(os.Chtimes(lock, l.now, l.now))
	l.pollAndWant(time.Second, Landing)
	l.must(os.Remove(filepath.Join(l.dir, flatFile)))
	l.pollAndWant(time.Second, Removed)
	l.pollAndWant(time.Second, "")
}

// A copy that starts and ends between two calls of Poll is reported as Landed, even if the server started during
// the copy.
func TestCopyBetweenPollsIsReportedAsLanded(t *testing.T) {
	l := newLandedFolder(t)
	l.writeMiB(0)
	lock := l.createLock()
	l.Used(flatFile)
	l.writeMiB(1)
	l.must(os.Remove(lock))
	l.pollAndWant(0, Landing)
	l.pollAndWant(quietAfter, Landed)
	l.pollAndWant(time.Hour, "")
}

// A file without a lock is complete after a quiet time.
func TestUnlockedFileCompletesAfterQuietTime(t *testing.T) {
	l := newLandedFolder(t)
	l.writeMiB(0)
	l.Used(flatFile)
	l.pollAndWant(0, "") // the file may be old
	l.writeMiB(1)
	l.pollAndWant(time.Second, Landing)
	l.pollAndWant(time.Second, "")
	l.pollAndWant(quietAfter, Landed)
	l.writeMiB(2)
	l.pollAndWant(time.Second, Landing)
}

func TestSmallFilesAreNotReported(t *testing.T) {
	l := newLandedFolder(t)
	name := filepath.Join(l.dir, "web01/web01.vmdk")
	l.must(os.WriteFile(name, []byte("# Disk DescriptorFile"), 0o600))
	l.Used("web01/web01.vmdk")
	l.pollAndWant(0, "")
	l.must(os.WriteFile(name, []byte("# Disk DescriptorFile\n"), 0o600))
	l.pollAndWant(time.Second, "")
}
