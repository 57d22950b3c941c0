package mount

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// callerPoll is the interval in which the process of an interrupted request is checked.
const callerPoll = 50 * time.Millisecond

// requestContext returns the context of a request. It ends with Options.ReadTimeout, with the mount, or
// when the calling process is killed.
//
// An interrupt alone does not end it. The kernel interrupts a request if anything waits for its thread:
// a signal that the program handles, or work of the kernel such as that of io_uring. Programs do not
// expect that opening or reading a file fails with EINTR; QEMU then fails the disk.
func (m *Mount) requestContext(caller context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeoutCause(m.ctx, m.opts.ReadTimeout, errDeadline)
	stop := context.AfterFunc(caller, func() {
		m.waitCallerGone(ctx, caller)
		cancel()
	})
	return ctx, func() { stop(); cancel() }
}

// waitCallerGone returns when the calling thread does not wait for the reply any more, or when ctx
// ends.
func (m *Mount) waitCallerGone(ctx, caller context.Context) {
	from, ok := fuse.FromContext(caller)
	tick := time.NewTicker(callerPoll)
	defer tick.Stop()
	for ok && !isKilled(from.Pid) && !m.isDisconnected() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// isDisconnected reports whether another process unmounted the file system or aborted its connection.
// That interrupts all requests.
func (m *Mount) isDisconnected() bool {
	top, ok := topMount(m.dir)
	return !ok || top.minor != m.minor || isDead(m.dir)
}

// isKilled reports whether a thread is about to end. The kernel marks each thread of a dying process
// with SIGKILL, for all fatal signals. A thread that cannot be examined, such as one in another PID
// namespace, counts as killed, so that no process waits in vain.
func isKilled(thread uint32) bool {
	status, err := os.Open(fmt.Sprintf("/proc/%d/status", thread))
	if err != nil {
		return true
	}
	defer status.Close()
	for lines := bufio.NewScanner(status); lines.Scan(); {
		if mask, ok := strings.CutPrefix(lines.Text(), "SigPnd:"); ok {
			pending, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
			return err != nil || pending&(1<<(syscall.SIGKILL-1)) != 0
		}
	}
	return true
}
