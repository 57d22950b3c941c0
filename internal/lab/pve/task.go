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

// A task is what the node does on, after it answered.
type task struct {
	upid   string
	kind   string
	id     string
	user   string // user with the token's name
	start  time.Time
	cancel context.CancelFunc
	broken error // error of Faults.Tasks; nil to succeed

	mu   sync.Mutex
	log  []string
	exit string // "" while it runs
	over chan struct{}
}

// logf adds a line to the log.
func (t *task) logf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.log = append(t.log, fmt.Sprintf(format, args...))
}

// errStopped is the cause if a user stopped the task.
var errStopped = errors.New("interrupted by signal")

// startTask runs work as a task and returns its UPID.
func (c *call) startTask(kind, id string, work func(ctx context.Context, t *task) error) string {
	ctx, cancel := context.WithCancel(c.alive)
	now := time.Now()
	c.mu.Lock()
	number := len(c.tasks) + 1
	t := &task{kind: kind, id: id, user: c.token.name(), start: now, cancel: cancel, over: make(chan struct{})}
	t.upid = fmt.Sprintf("UPID:%s:%08X:%08X:%08X:%s:%s:%s:", c.config.Node, 4000+number, number, now.Unix(), kind, id, t.user)
	c.tasks = append(c.tasks, t)
	c.mu.Unlock()
	c.work.Go(func() {
		defer cancel()
		t.end(c.runTask(ctx, t, work))
	})
	return t.upid
}

func (s *Server) runTask(ctx context.Context, t *task, work func(context.Context, *task) error) error {
	text, hold := s.taskFault(t.kind)
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

func (t *task) end(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.exit = "OK"
	if err != nil {
		t.exit = strings.TrimSpace(err.Error())
	}
	if err != nil {
		t.log = append(t.log, "TASK ERROR: "+t.exit)
	} else {
		t.log = append(t.log, "TASK OK")
	}
	close(t.over)
}

// Settle waits until no task goes on that there is now, or ctx ends, whose error it returns.
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

// findTask returns the task, if the caller may see it: one's own, or with Sys.Audit all.
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

func (t *task) apiStatus() map[string]any {
	t.mu.Lock()
	defer t.mu.Unlock()
	shown := map[string]any{"upid": t.upid, "type": t.kind, "id": t.id, "user": t.user, "starttime": t.start.Unix(), "status": "running"}
	if t.exit != "" {
		shown["status"], shown["exitstatus"] = "stopped", t.exit
	}
	return shown
}

func taskStatus(c *call) (any, error) {
	t, err := c.findTask(c.args[0])
	if err != nil {
		return nil, err
	}
	return t.apiStatus(), nil
}

// taskLog returns lines as {n, t}, 50 by default.
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

// listTasks lists the tasks that the caller may see, the last first. Lists name the result "status", a
// single task's status names it "exitstatus".
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

func stopTask(c *call) (any, error) {
	t, err := c.findTask(c.args[0])
	if err != nil {
		return nil, err
	}
	t.cancel()
	return nil, nil
}
