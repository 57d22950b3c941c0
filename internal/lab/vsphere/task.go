package vsphere

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// labTask is a task of the lab. The simulator keeps the lock of a task's entity while the task runs, so
// each copy of a disk would wait for the previous one. Therefore each labTask has a separate lock, and
// its entity is set once it runs.
type labTask struct {
	lab  *Lab
	task *simulator.Task
	ctx  context.Context // ends when the task is cancelled or the host goes
}

var taskLock atomic.Int64

// startTask runs f as a task and returns its reference.
func (l *Lab) startTask(ctx *simulator.Context, entity types.ManagedObjectReference, name string, f func(*labTask) (types.AnyType, types.BaseMethodFault)) types.ManagedObjectReference {
	t := &labTask{lab: l}
	run, cancel := l.jobs.jobContext(context.Background())
	t.ctx = run
	lock := types.ManagedObjectReference{Type: entity.Type, Value: fmt.Sprintf("%s-%d", entity.Value, taskLock.Add(1))}
	l.jobs.running.Add(1)
	t.task = simulator.CreateTask(lock, name, func(*simulator.Task) (types.AnyType, types.BaseMethodFault) {
		defer l.jobs.running.Done()
		defer cancel()
		return f(t)
	})
	ref := t.task.Run(ctx)
	own := l.newContext()
	own.WithLock(t.task, func() { t.task.Info.Entity = &entity }) // the task is not visible to clients yet
	return ref
}

// showProgress shows a percentage. It replaces the task's info as a whole: for a change of a
// part, the simulator reads the rest without a lock when a client waits for all of it.
func (t *labTask) showProgress(percent int) {
	ctx := t.lab.newContext()
	ctx.WithLock(t.task, func() {
		if info := t.task.Info; !info.Cancelled {
			info.Progress = int32(percent)
			ctx.Update(t.task, []types.PropertyChange{{Name: "info", Val: info}})
		}
	})
}

// watchCancel cancels f's context when a client cancels the task. The simulator sends no notification, so
// watch polls.
func (t *labTask) watchCancel() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(t.ctx)
	done := make(chan struct{})
	t.lab.jobs.running.Go(func() {
		tick := time.NewTicker(cancelPoll)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-done:
				return
			}
			look := t.lab.newContext()
			look.WithLock(t.task, func() {
				if t.task.Info.Cancelled {
					cancel(errKilled)
				}
			})
		}
	})
	return ctx, func() {
		close(done)
		cancel(nil)
	}
}

// cancelPoll is how soon a cancelled task notices.
const cancelPoll = 100 * time.Millisecond
