package virtv2v

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/decamp/decamp/internal/diskspace"
	"github.com/decamp/decamp/internal/fault"
)

// A process is a virt-v2v to run for a job.
type process struct {
	path string     // path of the program
	args []string   // arguments; the last one is the path of the domain
	env  []string   // complete environment
	keys []*os.File // inherited key files, from descriptor firstKey on
	job  Job        // job with disks and log
}

// firstKey is the first descriptor after standard input, output and error.
const firstKey = 3

// runProcess runs the process to its end, and ends all processes that it started.
func (e *Engine) runProcess(ctx context.Context, p process) (messages, error) {
	log, err := newOutputLog(p.job.Log, p.job.Report)
	if err != nil {
		return messages{}, fault.Room(p.job.Log, err)
	}
	status, stopped := e.waitProcess(ctx, p, log)
	found, err := log.close()
	switch {
	case stopped != nil:
		return found, stopped
	case status != nil:
		return found, found.failureError(status, p.job.Log)
	case err != nil:
		return found, fault.Room(p.job.Log, err)
	}
	return found, nil
}

// waitProcess starts the process. It returns the exit status, or in stopped the reason why it was
// stopped. It locks its OS thread, because the kernel sends the parent-death signal when the parent's
// thread ends.
func (e *Engine) waitProcess(ctx context.Context, p process, log *outputLog) (status, stopped error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	l, err := newProcessGroup()
	if err != nil {
		return nil, err
	}
	defer func() { stopped = errors.Join(stopped, l.close()) }()
	cmd := exec.Command(p.path, p.args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = p.env, log, log
	cmd.ExtraFiles = p.keys
	// The working folder is the temporary one.
	cmd.Dir = filepath.Dir(p.args[len(p.args)-1])
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: l.id(), Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = 10 * time.Second // time for the remaining output
	if err := cmd.Start(); err != nil {
		return nil, fault.New(fault.Unsupported, "start %s: %w", p.path, err).WithHint(InstallHint)
	}
	over, watched := make(chan struct{}), make(chan error, 1)
	go func() { watched <- e.watchLimits(ctx, l, p.job, over) }() // ends when over is closed
	status = cmd.Wait()
	close(over)
	return status, <-watched
}

// checkInterval is the time between two checks of free space.
const checkInterval = time.Second

// watchLimits stops the process group when ctx ends, after the deadline, or if space is short. It
// returns the reason, or nil when over is closed.
func (e *Engine) watchLimits(ctx context.Context, l *processGroup, j Job, over <-chan struct{}) error {
	late := time.NewTimer(e.o.Deadline)
	defer late.Stop()
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for {
		var why error
		select {
		case <-over:
			return nil
		case <-ctx.Done():
			why = ctx.Err()
		case <-late.C:
			why = fault.New(fault.Transient, "virt-v2v did not end within %v", e.o.Deadline).
				WithHint("see its log: %s; on a machine with KVM it is about 20 times faster", j.Log)
		case <-tick.C:
			why = e.checkSpace(j)
		}
		// stop waits until the process has ended, or kills it.
		if why != nil {
			l.stop(over)
			return why
		}
	}
}

// checkSpace returns an error if less than the reserve is free for the overlays.
func (e *Engine) checkSpace(j Job) error {
	for _, path := range j.Disks {
		folder := filepath.Dir(path)
		space, err := diskspace.At(folder)
		if err == nil && space.Available < e.o.Reserve {
			return fault.New(fault.Full, "%w: %s has %d MiB left, and virt-v2v continues to write", fault.ErrNoRoom, folder, space.Available>>20).
				WithHint("free space there: changes of the guest are stored next to its images until the VM is published")
		}
	}
	return nil
}

// stop terminates virt-v2v, which then also ends its helpers, and kills the group if that takes too
// long.
func (l *processGroup) stop(over <-chan struct{}) {
	const grace = 10 * time.Second
	l.terminate()
	select {
	case <-over:
	case <-time.After(grace):
		l.killAll()
	}
}
