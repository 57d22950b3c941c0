package proxmox

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// poll is the interval between queries of a task.
const poll = time.Second

// upid identifies a task: UPID:NODE:PID:PSTART:START:TYPE:ID:USER:.
type upid string

// nodeName returns the node on which the task runs. For an upload it is the node that received the
// request.
func (u upid) nodeName() (string, error) {
	parts := strings.SplitN(string(u), ":", 4)
	if len(parts) < 4 || parts[0] != "UPID" || !isName(parts[1]) || len(u) > 1000 {
		return "", fault.New(fault.Corrupt, "%q is not a UPID", fault.Line(string(u)))
	}
	return parts[1], nil
}

// taskType returns the type of the task, such as qmstart, or "".
func (u upid) taskType() string {
	parts := strings.Split(string(u), ":")
	if len(parts) < 6 {
		return ""
	}
	return parts[5]
}

// apiPath returns the path of the task in the API.
func (u upid) apiPath() (string, error) {
	node, err := u.nodeName()
	return "/nodes/" + node + "/tasks/" + url.PathEscape(string(u)), err
}

// awaitTask waits until a task has ended, and returns its error. warned reports whether its log
// contains warnings. If ctx
// ends first, the task continues on the node.
func (c *client) awaitTask(ctx context.Context, task upid) (warned bool, err error) {
	path, err := task.apiPath()
	if err != nil {
		return false, err
	}
	for {
		state, err := c.readState(ctx, path)
		if err != nil {
			return false, err
		}
		if state.Status == "stopped" {
			return strings.HasPrefix(state.Exit, "WARNINGS"), c.taskError(ctx, path, state.Exit)
		}
		if err := c.wait(ctx, poll); err != nil {
			return false, err
		}
	}
}

// taskError returns the error of an ended task, with the last line of its log. It returns nil for
// success. The kind
// follows from both texts.
func (c *client) taskError(ctx context.Context, path, exit string) error {
	if exit == "OK" || strings.HasPrefix(exit, "WARNINGS") {
		return nil
	}
	text := fault.Line(exit)
	said, err := c.lastWords(ctx, path)
	switch {
	case err != nil:
		text += fmt.Sprintf(" (its log cannot be read: %v)", err)
	case said != "" && !strings.Contains(text, said):
		text += "; before that: " + said
	}
	return fault.New(kindOfWords(exit+" "+said), "the task on the node failed: %s", text).
		WithHint("its whole log is in the node's task list: %s", strings.TrimPrefix(path[strings.LastIndex(path, "/"):], "/"))
}

// logLines is the maximum number of lines of a log that are read. An import writes one for each
// percent.
const logLines = 1000

// lastWords returns the last line of a task's log that is neither progress nor the result.
func (c *client) lastWords(ctx context.Context, path string) (string, error) {
	log, err := c.readLog(ctx, path)
	last := ""
	for _, l := range log {
		if text := fault.Line(l); text != "" && !strings.HasPrefix(text, "TASK ") && !strings.HasPrefix(text, "transferred ") {
			last = text
		}
	}
	return last, err
}

// readLog returns the lines of a task's log.
func (c *client) readLog(ctx context.Context, path string) (lines []string, err error) {
	var log []struct {
		Text string `json:"t"`
	}
	err = c.get(ctx, path+"/log", url.Values{"start": {"0"}, "limit": {fmt.Sprint(logLines)}}, &log)
	for _, l := range log {
		lines = append(lines, l.Text)
	}
	return lines, err
}

// activeTask is a running task.
type activeTask struct {
	UPID upid   `json:"upid"` // identifies the task
	User string `json:"user"` // token or user that started it
}

// activeTasks returns this token's running tasks on a node that match. It modifies match.
func (c *client) activeTasks(ctx context.Context, node string, match url.Values) ([]activeTask, error) {
	match.Set("source", "active")
	var tasks []activeTask
	err := c.get(ctx, "/nodes/"+node+"/tasks", match, &tasks)
	return slices.DeleteFunc(tasks, func(t activeTask) bool { return t.User != c.token.name() }), err // with Sys.Audit, the list contains tasks of all users
}

// awaitTasks waits for this token's running tasks on a node that match, whatever their results.
func (c *client) awaitTasks(ctx context.Context, node string, match url.Values) error {
	return c.awaitTasksIf(ctx, node, match, func(string) bool { return true })
}

// awaitTasksIf is awaitTasks for tasks whose log satisfies such, as long as it does.
func (c *client) awaitTasksIf(ctx context.Context, node string, match url.Values, such func(log string) bool) error {
	tasks, err := c.activeTasks(ctx, node, match)
	if err != nil {
		return err
	}
	for _, t := range tasks {
		path, err := t.UPID.apiPath()
		if err != nil {
			return err
		}
		for {
			over, err := c.isOver(ctx, path, such)
			if err != nil {
				return err
			}
			if over {
				break
			}
			if err := c.wait(ctx, poll); err != nil {
				return err
			}
		}
	}
	return nil
}

// isOver reports whether a task has ended, or its log does not satisfy such.
func (c *client) isOver(ctx context.Context, path string, such func(log string) bool) (bool, error) {
	log, err := c.readLog(ctx, path)
	if err != nil {
		return false, err
	}
	state, err := c.readState(ctx, path)
	return state.Status == "stopped" || !such(strings.Join(log, "\n")), err
}

// state is the state of a task.
type state struct {
	Status string `json:"status"`     // "running" or "stopped"
	Exit   string `json:"exitstatus"` // result of a stopped task: "OK", "WARNINGS: n" or a message
}

// readState returns the state of a task.
func (c *client) readState(ctx context.Context, path string) (s state, err error) {
	err = c.get(ctx, path+"/status", nil, &s)
	return s, err
}

// stopTasks stops this token's running tasks for a guest, and waits for their end.
func (c *client) stopTasks(ctx context.Context, node string, vmid int) error {
	match := url.Values{"vmid": {fmt.Sprint(vmid)}}
	tasks, err := c.activeTasks(ctx, node, match)
	if err != nil {
		return err
	}
	var errs []error
	for _, t := range tasks {
		path, err := t.UPID.apiPath()
		if err != nil {
			return err
		}
		errs = append(errs, c.retryTemporary(ctx, func() error { return c.sendParams(ctx, http.MethodDelete, path, nil, nil) }))
	}
	return errors.Join(append(errs, c.awaitTasks(ctx, node, match))...)
}

// runTask sends a request that starts a task, and waits for the task.
func (c *client) runTask(ctx context.Context, method, path string, params []Param) (warned bool, err error) {
	var task upid
	if err := c.sendParams(ctx, method, path, params, &task); err != nil || task == "" {
		return false, err
	}
	return c.awaitTask(ctx, task)
}
