package warm

import (
	"context"
	"fmt"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/sleep"
	"github.com/decamp/decamp/internal/workflow"
)

// A Response waits until the process that executes a run has read a command. Such a process reads commands
// every few seconds, unless it is stopped or its storage hangs.
type Response struct {
	state  string         // state directory
	store  *journal.Store // store of the run
	id     journal.ID     // the run
	sentAt time.Time      // time of the last command
	now    func() time.Time
	warn   func(format string, args ...any) // prints a warning
	warned bool                             // the warning is printed
}

const (
	// readLimit is the time after which a process that has not read a command is reported. It reads every 3 s.
	readLimit = 10 * time.Second

	// silenceLimit is the time after which Check fails if the process has not read the command.
	silenceLimit = 5 * time.Minute

	readInterval = 100 * time.Millisecond // time between checks whether a command is read
)

// NewResponse returns the wait for a command that was sent now. warn prints a warning.
func NewResponse(warn func(format string, args ...any), state string, store *journal.Store, id journal.ID) *Response {
	return &Response{state: state, store: store, id: id, sentAt: time.Now(), now: time.Now, warn: warn}
}

// Check warns once if the process has not read the command for readLimit. After silenceLimit it fails with
// fault.Unreachable.
func (r *Response) Check() error {
	late := r.now().Sub(r.sentAt)
	if r.store.AreCommandsRead() {
		r.sentAt, r.warned = r.now(), false // a later command counts from now
		return nil
	}
	if late >= silenceLimit {
		return fault.New(fault.Unreachable, "%s has not read the request for %v", r.process(), silenceLimit).
			WithHint("%s; then rehearse again", r.remedy())
	}
	if late >= readLimit && !r.warned {
		r.warned = true
		r.warn("%s has not read the command for %v: it may be stopped, wait for its storage, or still log in. It obeys when it continues; %s", r.process(), readLimit, r.remedy())
	}
	return nil
}

// Wait returns true as soon as the process has read the command. It warns and returns false after readLimit.
func (r *Response) Wait(ctx context.Context) (read bool, err error) {
	for !r.warned {
		if r.store.AreCommandsRead() {
			return true, nil
		}
		if err := r.Check(); err != nil {
			return false, err
		}
		if err := sleep.For(ctx, readInterval); err != nil {
			return false, err
		}
	}
	return false, nil
}

// process names the process that executes the run.
func (r *Response) process() string {
	if pid := workflow.Holder(r.state); pid > 0 {
		return fmt.Sprintf("the decamp process %d, which executes run %s,", pid, r.id)
	}
	return fmt.Sprintf("the decamp process that executes run %s", r.id)
}

// remedy returns commands that examine and continue the process.
func (r *Response) remedy() string {
	if pid := workflow.Holder(r.state); pid > 0 {
		return fmt.Sprintf("see its state (T: stopped, D: waits for storage): ps -o pid,stat,wchan,args -p %d; continue a stopped process: kill -CONT %d", pid, pid)
	}
	return "find it with ps -C decamp -o pid,stat,args; continue a stopped process: kill -CONT PID"
}
