package server

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/planfile"
)

// maxDocumentVMs is the number of VMs of each plan in Documents.
const maxDocumentVMs = 1000

// Documents adds what support needs to know about a fleet to documents, by file name: plans without
// comments and hooks, VMs, progress, limits, workers and the scheduler's state. A Control with the method
// Metrics also has its metrics. Names and addresses are in them.
func Documents(ctx context.Context, c Control, documents map[string]any) error {
	plans, err := c.Plans(ctx)
	if err != nil {
		return err
	}
	for i, p := range plans {
		if p, err = c.Plan(ctx, p.Name); err != nil {
			return err
		}
		vms, err := c.VMs(ctx, fleetdb.Query{Plan: p.Name, Limit: maxDocumentVMs})
		if err != nil {
			return err
		}
		file, _ := planfile.Parse([]byte(p.Text)) // nil for a plan of another version
		if file != nil {
			dropHooks(file)
		}
		p.Text = ""
		documents[fmt.Sprintf("plans/%d.json", i+1)] = map[string]any{"plan": p, "file": file, "vms": vms}
	}
	progress, progressErr := c.Progress(ctx, "")
	limits, limitsErr := c.Limits(ctx)
	workers, workersErr := c.Workers(ctx)
	state, _, stateErr := c.SchedulerState(ctx)
	documents["fleet.json"] = map[string]any{"progress": progress, "limits": limits, "workers": workers, "scheduler": json.RawMessage(cmp.Or(string(state), "null"))}
	if remote, has := c.(interface {
		Metrics(context.Context) (string, error)
	}); has {
		metrics, err := remote.Metrics(ctx)
		if err != nil {
			return err
		}
		documents["metrics.json"] = map[string]any{"text": strings.Split(metrics, "\n")}
	}
	return cmp.Or(progressErr, limitsErr, workersErr, stateErr)
}

// dropHooks removes the commands of a plan, whose arguments may be secrets.
func dropHooks(f *planfile.File) {
	f.Hooks, f.Defaults.Hooks = planfile.Hooks{}, planfile.Hooks{}
	for i := range f.VMs {
		f.VMs[i].Hooks = planfile.Hooks{}
	}
}
