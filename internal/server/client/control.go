package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/decamp/decamp/internal/fleet"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/server"
)

var _ server.Control = (*Client)(nil)

// pageSize is how many rows are requested at once: as many as the server returns.
const pageSize = 1000

// list is the body of a collection.
type list[T any] struct {
	Items []T   `json:"items"` // items of this page
	Next  int64 `json:"next"`  // cursor of the next page; 0 on the last page
}

// getList requests a collection.
func getList[T any](ctx context.Context, c *Client, path string, query url.Values) (l list[T], err error) {
	return l, c.doJSON(ctx, http.MethodGet, path, query, nil, &l)
}

// planPath returns the path of a plan, and of an object below it.
func planPath(name string, more ...string) string {
	path := "/v1/plans/" + url.PathEscape(name)
	for _, m := range more {
		path += "/" + url.PathEscape(m)
	}
	return path
}

// Submit implements server.Control. Relative paths in the text start at the server's folder, not at
// that of this process.
func (c *Client) Submit(ctx context.Context, s server.Submission) (p fleetdb.Plan, err error) {
	return p, c.doRaw(ctx, http.MethodPost, "/v1/plans", nil, "application/yaml", []byte(s.Text), &p)
}

// Plans returns all plans, without their texts.
func (c *Client) Plans(ctx context.Context) ([]fleetdb.Plan, error) {
	l, err := getList[fleetdb.Plan](ctx, c, "/v1/plans", nil)
	return l.Items, err
}

// Plan returns a plan with its text.
func (c *Client) Plan(ctx context.Context, name string) (p fleetdb.Plan, err error) {
	return p, c.doJSON(ctx, http.MethodGet, planPath(name), nil, nil, &p)
}

// DropPlan removes a plan that has ended.
func (c *Client) DropPlan(ctx context.Context, name string) error {
	return c.doJSON(ctx, http.MethodDelete, planPath(name), nil, nil, nil)
}

// VMs returns VMs in the plan's order, up to q's limit; all if it is 0. It requests them page by page.
func (c *Client) VMs(ctx context.Context, q fleetdb.Query) ([]fleetdb.VM, error) {
	var all []fleetdb.VM
	for {
		limit := pageSize
		if q.Limit > 0 {
			limit = min(pageSize, q.Limit-len(all))
		}
		l, err := getList[fleetdb.VM](ctx, c, planPath(q.Plan, "vms"), vmQuery(q, limit))
		if err != nil {
			return nil, err
		}
		all = append(all, l.Items...)
		if l.Next == 0 || q.Limit > 0 && len(all) >= q.Limit {
			return all, nil
		}
		q.After = l.Next
	}
}

// vmQuery returns the parameters of a request for VMs.
func vmQuery(q fleetdb.Query, limit int) url.Values {
	values := url.Values{"limit": {strconv.Itoa(limit)}}
	if q.After > 0 {
		values.Set("after", strconv.FormatInt(q.After, 10))
	}
	if q.Worker != "" {
		values.Set("worker", q.Worker)
	}
	states := ""
	for _, state := range q.States {
		states += "," + string(state)
	}
	if states != "" {
		values.Set("state", states[1:])
	}
	return values
}

// VM returns a VM with the options that it is moved with.
func (c *Client) VM(ctx context.Context, k fleetdb.Key) (vm fleetdb.VM, err error) {
	return vm, c.doJSON(ctx, http.MethodGet, planPath(k.Plan, "vms", k.VM), nil, nil, &vm)
}

// Progress returns the progress of a plan, or of all plans if plan is "".
func (c *Client) Progress(ctx context.Context, plan string) ([]fleetdb.Progress, error) {
	values := url.Values{}
	if plan != "" {
		values.Set("plan", plan)
	}
	l, err := getList[fleetdb.Progress](ctx, c, "/v1/progress", values)
	return l.Items, err
}

// order is the body of a command.
type order struct {
	Order string `json:"command"` // the user's word for the command
}

// CommandPlan gives a command to a plan.
func (c *Client) CommandPlan(ctx context.Context, name string, o fleetdb.Command) error {
	return c.doJSON(ctx, http.MethodPost, planPath(name, "commands"), nil, order{o.Word()}, nil)
}

// CommandVM gives a command to a VM.
func (c *Client) CommandVM(ctx context.Context, k fleetdb.Key, o fleetdb.Command) error {
	return c.doJSON(ctx, http.MethodPost, planPath(k.Plan, "vms", k.VM, "commands"), nil, order{o.Word()}, nil)
}

// rehearsal is the body of a request for a rehearsal.
type rehearsal struct {
	// text that shows that the guest is up; "" for the known signs only
	Expect   string        `json:"expect,omitempty"`
	Deadline time.Duration `json:"deadline,omitempty"` // time limit of the guest; 0 for the default
}

// Rehearse requests a boot of a warm VM from its current images.
func (c *Client) Rehearse(ctx context.Context, k fleetdb.Key, ask fleetdb.Rehearsal) error {
	return c.doJSON(ctx, http.MethodPut, planPath(k.Plan, "vms", k.VM, "rehearsals", ask.ID), nil, rehearsal{ask.Expect, ask.Deadline}, nil)
}

// Rehearsals returns the requested rehearsal, and the last one that has a result.
func (c *Client) Rehearsals(ctx context.Context, k fleetdb.Key) ([]fleetdb.Rehearsed, error) {
	l, err := getList[fleetdb.Rehearsed](ctx, c, planPath(k.Plan, "vms", k.VM, "rehearsals"), nil)
	return l.Items, err
}

// TakeBack withdraws the request for a rehearsal.
func (c *Client) TakeBack(ctx context.Context, k fleetdb.Key, rehearsal string) error {
	return c.doJSON(ctx, http.MethodDelete, planPath(k.Plan, "vms", k.VM, "rehearsals", rehearsal), nil, nil, nil)
}

// Limits returns the limits that operators set.
func (c *Client) Limits(ctx context.Context) ([]fleetdb.Limit, error) {
	l, err := getList[fleetdb.Limit](ctx, c, "/v1/limits", nil)
	return l.Items, err
}

// SetLimit sets a limit. Negative units remove it.
func (c *Client) SetLimit(ctx context.Context, name string, units int64) error {
	if err := fleet.CheckLimit(name); err != nil {
		return err // with a remedy; the server's validation has none
	}
	type limit struct {
		Name  string `json:"name"`
		Units int64  `json:"units"`
	}
	return c.doJSON(ctx, http.MethodPut, "/v1/limits", nil, map[string][]limit{"limits": {{name, units}}}, nil)
}

// Workers returns all workers that ever joined.
func (c *Client) Workers(ctx context.Context) ([]fleetdb.Worker, error) {
	l, err := getList[fleetdb.Worker](ctx, c, "/v1/workers", nil)
	return l.Items, err
}

// Notifications counts notifications by receiver and state.
func (c *Client) Notifications(ctx context.Context) ([]fleetdb.NotificationCount, error) {
	l, err := getList[fleetdb.NotificationCount](ctx, c, "/v1/notifications", nil)
	return l.Items, err
}

// Drain stops or resumes assignments to a worker.
func (c *Client) Drain(ctx context.Context, worker string, on bool) error {
	return c.doJSON(ctx, http.MethodPost, "/v1/workers/"+url.PathEscape(worker)+"/drain", nil, map[string]bool{"drain": on}, nil)
}

// SchedulerState returns the last state of the scheduler. It is empty, with a zero time, if none was written.
func (c *Client) SchedulerState(ctx context.Context) (json.RawMessage, time.Time, error) {
	var b struct {
		At    time.Time       `json:"at"`
		State json.RawMessage `json:"state"`
	}
	err := c.doJSON(ctx, http.MethodGet, "/v1/scheduler", nil, nil, &b)
	return b.State, b.At, err
}

// Audit returns entries before the one with that ID, newest first. If before is 0, it begins with the
// newest entry.
func (c *Client) Audit(ctx context.Context, before int64, limit int) ([]fleetdb.Entry, error) {
	values := url.Values{"limit": {strconv.Itoa(min(limit, pageSize))}}
	if before > 0 {
		values.Set("before", strconv.FormatInt(before, 10))
	}
	l, err := getList[fleetdb.Entry](ctx, c, "/v1/audit", values)
	return l.Items, err
}
