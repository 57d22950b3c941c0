package mount_test

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/lab"
)

// runInterrupted calls work in a thread that receives a SIGURG every millisecond. Go handles this signal and ignores
// it.
func runInterrupted(work func()) {
	thread, done := make(chan int), make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		thread <- unix.Gettid()
		work()
	}()
	id := <-thread
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_ = unix.Tgkill(unix.Getpid(), id, unix.SIGURG) // fails when the thread has ended
		case <-done:
			return
		}
	}
}

// Calls that a signal or io_uring interrupts succeed. The test uses system calls, because package os tries again after
// EINTR and QEMU does not.
func TestInterruptedCallsSucceed(t *testing.T) {
	const size, opens = 16 << 20, 50
	r := newDiskRig(t, newImage(t, size, 17), rigOptions{lab: lab.Config{Limits: slowLimits}})
	runInterrupted(func() {
		for range opens {
			fd, err := unix.Open(r.flatPath(), unix.O_RDONLY, 0)
			if err != nil {
				t.Errorf("open: %v", err)
				return
			}
			defer unix.Close(fd)
		}
		fd, err := unix.Open(r.flatPath(), unix.O_RDONLY, 0)
		if err != nil {
			t.Errorf("open: %v", err)
			return
		}
		defer unix.Close(fd)
		if n, err := unix.Pread(fd, make([]byte, size), 0); n != size || err != nil {
			t.Errorf("read %d of %d bytes: %v", n, size, err)
		}
	})
}

// After a forced unmount, the mount ends without waiting for the read of a host that does not answer.
func TestForcedUnmountEndsReads(t *testing.T) {
	r := newDiskRig(t, newImage(t, 32<<20, 18), rigOptions{})
	dd := r.stuckReader()
	began := time.Now()
	_ = unix.Unmount(r.dir, unix.MNT_FORCE) // fails because it is busy, but aborts the connection
	if err := dd.Wait(); err == nil {
		t.Error("dd succeeded without an answer of the host")
	}
	select {
	case <-r.mount.Done():
	case <-r.ctx.Done():
	}
	if waited := time.Since(began); waited > time.Minute { // a read may wait for two minutes
		t.Errorf("the mount waited %v for its host, want at most a minute", waited)
	}
}
