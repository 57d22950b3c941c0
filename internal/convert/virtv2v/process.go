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

// A process is virt-v2v that is to run for a job.
type process struct {
	path string
	args []string
	env  []string
	keys []*os.File // inherited key files, from descriptor firstKey on
	job  Job
}

// firstKey is the number of the first file that a process has beside the usual three.
const firstKey = 3

// run runs it to its end, and has all that it started end, too.
func (e *Engine) run(ctx context.Context, p process) (said, error) {
	log, err := newRecord(p.job.Log, p.job.Tell)
	if err != nil {
		return said{}, fault.Room(p.job.Log, err)
	}
	status, stopped := e.wait(ctx, p, log)
	heard, err := log.close()
	switch {
	case stopped != nil:
		return heard, stopped
	case status != nil:
		return heard, heard.failed(status, p.job.Log)
	case err != nil:
		return heard, fault.Room(p.job.Log, err)
	}
	return heard, nil
}

// wait starts the process and returns how it ended, or why it was stopped. It keeps its OS thread: the
// parent-death signal is sent when the parent's thread ends.
func (e *Engine) wait(ctx context.Context, p process, log *record) (status, stopped error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	l, err := newLeash()
	if err != nil {
		return nil, err
	}
	defer func() { stopped = errors.Join(stopped, l.clear()) }()
	cmd := exec.Command(p.path, p.args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = p.env, log, log
	cmd.ExtraFiles = p.keys
	cmd.Dir = filepath.Dir(p.args[len(p.args)-1])
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: l.group(), Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = 10 * time.Second // time for the remaining output
	if err := cmd.Start(); err != nil {
		return nil, fault.New(fault.Unsupported, "start %s: %w", p.path, err).WithHint(InstallHint)
	}
	over, watched := make(chan struct{}), make(chan error, 1)
	go func() { watched <- e.watch(ctx, l, p.job, over) }() // ends when over is closed
	status = cmd.Wait()
	close(over)
	return status, <-watched
}

// pace is how often the room that is left is looked at.
const pace = time.Second

// watch stops the process group when ctx ends, when its time is over, and when room is short. It
// returns why, and nil once over is closed.
func (e *Engine) watch(ctx context.Context, l *leash, j Job, over <-chan struct{}) error {
	late := time.NewTimer(e.o.Deadline)
	defer late.Stop()
	tick := time.NewTicker(pace)
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
				WithHint("see how far it came: %s; a machine whose KVM runs is 20 times faster", j.Log)
		case <-tick.C:
			why = e.short(j)
		}
		if why != nil {
			l.stop(over)
			return why
		}
	}
}

// short returns an error if the overlays have no room left to grow.
func (e *Engine) short(j Job) error {
	for _, path := range j.Disks {
		folder := filepath.Dir(path)
		space, err := diskspace.At(folder)
		if err == nil && space.Available < e.o.Reserve {
			return fault.New(fault.Full, "%w: %s has %d MiB left, and virt-v2v writes on", fault.ErrNoRoom, folder, space.Available>>20).
				WithHint("make room there: what changes of the guest is kept beside its images until it is published")
		}
	}
	return nil
}

// stop requests virt-v2v's end, and then forces it: on request it also ends its helpers.
func (l *leash) stop(over <-chan struct{}) {
	const grace = 10 * time.Second
	l.ask()
	select {
	case <-over:
	case <-time.After(grace):
		l.kill()
	}
}
