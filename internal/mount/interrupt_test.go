package mount_test

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/lab"
)

// interrupted does work in a thread that gets a signal every millisecond meanwhile. It is one
// that Go handles, and ignores.
func interrupted(work func()) {
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
			_ = unix.Tgkill(unix.Getpid(), id, unix.SIGURG) // not when it is done
		case <-done:
			return
		}
	}
}

// TestInterruptsAreNoErrors: what a signal or io_uring interrupts goes on. The calls are the
// system's, not package os's, which tries again after EINTR where QEMU does not.
func TestInterruptsAreNoErrors(t *testing.T) {
	const size, opens = 16 << 20, 50
	r := diskRig(t, image(t, size, 17), rigOptions{lab: lab.Config{Limits: slow}})
	interrupted(func() {
		for range opens {
			fd, err := unix.Open(r.flat(), unix.O_RDONLY, 0)
			if err != nil {
				t.Errorf("open: %v", err)
				return
			}
			defer unix.Close(fd)
		}
		fd, err := unix.Open(r.flat(), unix.O_RDONLY, 0)
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

// TestForcedUnmountEndsReads: the process that mounts does not wait for a host that is stuck
// once nobody can get the answer.
func TestForcedUnmountEndsReads(t *testing.T) {
	r := diskRig(t, image(t, 32<<20, 18), rigOptions{})
	dd := r.stuckReader()
	asked := time.Now()
	_ = unix.Unmount(r.dir, unix.MNT_FORCE) // it is busy, but the connection is aborted
	if err := dd.Wait(); err == nil {
		t.Error("dd read what nobody sent")
	}
	select {
	case <-r.mount.Done():
	case <-r.ctx.Done():
	}
	if waited := time.Since(asked); waited > time.Minute { // a read may wait for two
		t.Errorf("the mount waited %v for its host", waited)
	}
}
