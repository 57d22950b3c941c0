package pve

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A task is work that continues after the response. upid, kind, id, user, start and cancel are
// constant; mu guards log and exit.
type task struct {
	upid   string             // Proxmox's identifier of the task
	kind   string             // type of the task, such as qmcreate
	id     string             // VMID or volume that the task works on; may be empty
	user   string             // token of the caller as user!id, which owns the task
	start  time.Time          // time of the call
	cancel context.CancelFunc // interrupts the task
	broken error              // error of Faults.Tasks; nil to succeed

	mu   sync.Mutex    // guards log and exit
	log  []string      // lines of the log, oldest first
	exit string        // "OK" or the error; empty while the task runs
	over chan struct{} // closed when the task has ended
}

// logf appends a line to the task's log.
func (t *task) logf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.log = append(t.log, fmt.Sprintf(format, args...))
}

// errStopped is the error of a task that was interrupted by a user or by Close.
var errStopped = errors.New("interrupted by signal")

// startTask runs work in a goroutine and returns its UPID. The context ends with Close or by stopTask,
// not with the request.
func (c *call) startTask(kind, id string, work func(ctx context.Context, t *task) error) string {
	ctx, cancel := context.WithCancel(c.alive)
	now := time.Now()
	c.mu.Lock()
	number := len(c.tasks) + 1
	t := &task{kind: kind, id: id, user: c.token.name(), start: now, cancel: cancel, over: make(chan struct{})}
	t.upid = fmt.Sprintf("UPID:%s:%08X:%08X:%08X:%s:%s:%s:", c.config.Node, 4000+number, number, now.Unix(), kind, id, t.user)
	c.tasks = append(c.tasks, t)
	c.mu.Unlock()
	text, hold := c.taskFault(kind) // faults at the time of the request
	c.work.Go(func() {
		defer cancel()
		t.end(t.run(ctx, text, hold, work))
	})
	return t.upid
}

// run waits for hold, runs work and returns its error, or text if that is set. If the task was interrupted, the
// error is errStopped.
func (t *task) run(ctx context.Context, text string, hold chan struct{}, work func(context.Context, *task) error) error {
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return errStopped
		}
	}
	if text != "" {
		t.broken = errors.New(text)
	}
	err := work(ctx, t)
	if ctx.Err() != nil && err != nil {
		return errStopped
	}
	return err
}

// end records the result of the task and closes over.
func (t *task) end(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.exit = "OK" // the exit status of a successful task
	if err != nil {
		t.exit = strings.TrimSpace(err.Error())
	}
	if err != nil {
		t.log = append(t.log, "TASK ERROR: "+t.exit)
	} else {
		t.log = append(t.log, "TASK OK")
	}
	close(t.over) // wakes Settle
}

// Settle waits until all tasks that exist now have ended. It returns ctx's error if ctx ends first.
func (s *Server) Settle(ctx context.Context) error {
	s.mu.Lock()
	tasks := slices.Clone(s.tasks)
	s.mu.Unlock()
	for _, t := range tasks {
		select {
		case <-t.over:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// findTask returns the task if the caller owns it or has Sys.Audit on the node.
func (c *call) findTask(upid string) (*task, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.tasks {
		if t.upid != upid {
			continue
		}
		if t.user == c.token.name() {
			return t, nil
		}
		return t, c.token.requireAll("/nodes/"+c.config.Node, "Sys.Audit")
	}
	return nil, newRefusal(http.StatusBadRequest, "unable to parse worker upid '%s'", upid)
}

// apiStatus returns the status as the API returns it for a single task.
func (t *task) apiStatus() map[string]any {
	t.mu.Lock()
	defer t.mu.Unlock()
	shown := map[string]any{"upid": t.upid, "type": t.kind, "id": t.id, "user": t.user, "starttime": t.start.Unix(), "status": "running"}
	if t.exit != "" {
		shown["status"], shown["exitstatus"] = "stopped", t.exit
	}
	return shown
}

// taskStatus returns the status of one task.
func taskStatus(c *call) (any, error) {
	t, err := c.findTask(c.args[0])
	if err != nil {
		return nil, err
	}
	return t.apiStatus(), nil
}

// taskLog returns log lines as {n, t} from the offset start on, at most limit of them: 50 by default.
func taskLog(c *call) (any, error) {
	t, err := c.findTask(c.args[0])
	if err != nil {
		return nil, err
	}
	start, _ := strconv.Atoi(c.form.Get("start"))
	limit, err := strconv.Atoi(c.form.Get("limit"))
	if err != nil {
		limit = 50
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := []map[string]any{}
	for i := max(start, 0); i < len(t.log) && len(lines) < limit; i++ {
		lines = append(lines, map[string]any{"n": i + 1, "t": t.log[i]})
	}
	return lines, nil
}

// listTasks lists the tasks that the caller may see, newest first. A list names the result "status";
// the status of a single task names it "exitstatus".
func listTasks(c *call) (any, error) {
	audit := c.token.hasPrivilege("/nodes/"+c.config.Node, "Sys.Audit")
	c.mu.Lock()
	all := slices.Clone(c.tasks)
	c.mu.Unlock()
	list := []map[string]any{}
	for _, t := range slices.Backward(all) {
		shown := t.apiStatus()
		source, running := c.form.Get("source"), shown["status"] == "running"
		switch {
		case t.user != c.token.name() && !audit,
			c.form.Get("vmid") != "" && c.form.Get("vmid") != t.id,
			c.form.Get("typefilter") != "" && c.form.Get("typefilter") != t.kind,
			source == "active" && !running, (source == "" || source == "archive") && running:
			continue
		}
		shown["status"] = shown["exitstatus"]
		delete(shown, "exitstatus")
		list = append(list, shown)
	}
	return list, nil
}

// stopTask interrupts a task and does not wait for its end.
func stopTask(c *call) (any, error) {
	t, err := c.findTask(c.args[0])
	if err != nil {
		return nil, err
	}
	t.cancel()
	return nil, nil
}
