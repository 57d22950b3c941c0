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

// poll is how often a task is asked after.
const poll = time.Second

// A upid names a task: UPID:NODE:PID:PSTART:START:TYPE:ID:USER:.
type upid string

// node is where the task runs: for an upload that is the node that was spoken to, not the one that
// was named.
func (u upid) node() (string, error) {
	parts := strings.SplitN(string(u), ":", 4)
	if len(parts) < 4 || parts[0] != "UPID" || !isName(parts[1]) || len(u) > 1000 {
		return "", fault.New(fault.Corrupt, "%q is not the name of a task", fault.Line(string(u)))
	}
	return parts[1], nil
}

// kind is what it does, such as qmstart; "" if the name does not say.
func (u upid) kind() string {
	parts := strings.Split(string(u), ":")
	if len(parts) < 6 {
		return ""
	}
	return parts[5]
}

// path is the task's in the API.
func (u upid) path() (string, error) {
	node, err := u.node()
	return "/nodes/" + node + "/tasks/" + url.PathEscape(string(u)), err
}

// follow waits until a task has ended, and returns its error. warned says that it ended well, with
// warnings in its log.
func (c *client) follow(ctx context.Context, task upid) (warned bool, err error) {
	path, err := task.path()
	if err != nil {
		return false, err
	}
	for {
		state, err := c.state(ctx, path)
		if err != nil {
			return false, err
		}
		if state.Status == "stopped" {
			return strings.HasPrefix(state.Exit, "WARNINGS"), c.ended(ctx, path, state.Exit)
		}
		if err := c.wait(ctx, poll); err != nil {
			return false, err
		}
	}
}

// ended is the error of a task that ended so, with the last thing it said before.
func (c *client) ended(ctx context.Context, path, exit string) error {
	if exit == "OK" || strings.HasPrefix(exit, "WARNINGS") {
		return nil
	}
	text := fault.Line(exit)
	said, err := c.lastWords(ctx, path)
	switch {
	case err != nil:
		text += fmt.Sprintf(" (and its log cannot be read: %v)", err)
	case said != "" && !strings.Contains(text, said):
		text += "; before that: " + said
	}
	return fault.New(kindOfWords(exit+" "+said), "the task on the node failed: %s", text).
		WithHint("its whole log is in the node's task list, by the name %s", strings.TrimPrefix(path[strings.LastIndex(path, "/"):], "/"))
}

// logLines is how many lines of a log are looked at. An import says one for each hundredth.
const logLines = 1000

// lastWords is the last line of a task's log that is neither its progress nor its end.
func (c *client) lastWords(ctx context.Context, path string) (string, error) {
	log, err := c.log(ctx, path)
	last := ""
	for _, l := range log {
		if text := fault.Line(l); text != "" && !strings.HasPrefix(text, "TASK ") && !strings.HasPrefix(text, "transferred ") {
			last = text
		}
	}
	return last, err
}

func (c *client) log(ctx context.Context, path string) (lines []string, err error) {
	var log []struct {
		Text string `json:"t"`
	}
	err = c.get(ctx, path+"/log", url.Values{"start": {"0"}, "limit": {fmt.Sprint(logLines)}}, &log)
	for _, l := range log {
		lines = append(lines, l.Text)
	}
	return lines, err
}

// An activeTask is one that runs.
type activeTask struct {
	UPID upid   `json:"upid"`
	User string `json:"user"`
}

// active lists our tasks on a node that run and match.
func (c *client) active(ctx context.Context, node string, match url.Values) ([]activeTask, error) {
	match.Set("source", "active")
	var tasks []activeTask
	err := c.get(ctx, "/nodes/"+node+"/tasks", match, &tasks)
	return slices.DeleteFunc(tasks, func(t activeTask) bool { return t.User != c.token.name() }), err // who may audit sees all
}

// settle waits for our tasks on a node that run and match, however they end.
func (c *client) settle(ctx context.Context, node string, match url.Values) error {
	return c.settleIf(ctx, node, match, func(string) bool { return true })
}

// settleIf is settle for those whose logs are such, for as long as they are.
func (c *client) settleIf(ctx context.Context, node string, match url.Values, such func(log string) bool) error {
	tasks, err := c.active(ctx, node, match)
	if err != nil {
		return err
	}
	for _, t := range tasks {
		path, err := t.UPID.path()
		if err != nil {
			return err
		}
		for {
			over, err := c.over(ctx, path, such)
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

// over reports whether a task has ended, or its log is not such.
func (c *client) over(ctx context.Context, path string, such func(log string) bool) (bool, error) {
	log, err := c.log(ctx, path)
	if err != nil {
		return false, err
	}
	state, err := c.state(ctx, path)
	return state.Status == "stopped" || !such(strings.Join(log, "\n")), err
}

// A state is how a task is.
type state struct {
	Status string `json:"status"` // running or stopped
	Exit   string `json:"exitstatus"`
}

func (c *client) state(ctx context.Context, path string) (s state, err error) {
	err = c.get(ctx, path+"/status", nil, &s)
	return s, err
}

// halt stops what was begun for a guest, and waits for the end of it.
func (c *client) halt(ctx context.Context, node string, vmid int) error {
	match := url.Values{"vmid": {fmt.Sprint(vmid)}}
	tasks, err := c.active(ctx, node, match)
	if err != nil {
		return err
	}
	var errs []error
	for _, t := range tasks {
		path, err := t.UPID.path()
		if err != nil {
			return err
		}
		errs = append(errs, c.again(ctx, func() error { return c.change(ctx, http.MethodDelete, path, nil, nil) }))
	}
	return errors.Join(append(errs, c.settle(ctx, node, match))...)
}

// do asks for a change that is a task, and follows it.
func (c *client) do(ctx context.Context, method, path string, params []Param) (warned bool, err error) {
	var task upid
	if err := c.change(ctx, method, path, params, &task); err != nil || task == "" {
		return false, err
	}
	return c.follow(ctx, task)
}
