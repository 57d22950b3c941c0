package vsphere

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// A labTask is a task of the emulator. The simulator locks a task's entity while the task runs, so that
// each copy of a disk would wait for the previous one. Therefore each labTask locks a separate object,
// and its entity is set while it runs.
type labTask struct {
	lab  *Lab            // emulator of the task
	task *simulator.Task // task in the API
	ctx  context.Context // ends when the host loses power
}

// taskLock numbers the objects that tasks lock.
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

// showProgress sets the percentage of the task. It replaces the whole info: after a change of a part,
// the simulator reads the rest without a lock.
func (t *labTask) showProgress(percent int) {
	ctx := t.lab.newContext()
	ctx.WithLock(t.task, func() {
		if info := t.task.Info; !info.Cancelled {
			info.Progress = int32(percent)
			ctx.Update(t.task, []types.PropertyChange{{Name: "info", Val: info}})
		}
	})
}

// watchCancel returns a context that ends when a client cancels the task, and a function that releases
// it. The simulator sends no notification, so the task is polled.
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

// cancelPoll is the interval of these checks.
const cancelPoll = 100 * time.Millisecond
