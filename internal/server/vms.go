package server

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/decamp/decamp/internal/fleetdb"
)

// vmOut is the response with one VM.
type vmOut struct{ Body vmItem }

// pageVMs is how many VMs a page for browsers has.
const pageVMs = 100

// vmQuery are the parameters of listVMs.
type vmQuery struct {
	PlanPath
	State  []fleetdb.State `query:"state" nullable:"false" enum:"queued,assigned,running,stranded,done,failed,canceled" doc:"only VMs in these states, separated by commas"`
	Worker string          `query:"worker" maxLength:"128" pattern:"^[A-Za-z0-9._@-]*$" doc:"only VMs that this worker executes, or executed last"`
	After  int64           `query:"after" minimum:"0" doc:"the seq of the last VM of the page before"`
	Limit  int             `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

// vmAPI serves the VMs.
type vmAPI struct {
	plans  *fleetdb.Plans // plans of the fleet database
	vms    *fleetdb.VMs   // VMs of the fleet database
	cache  *fleetCache    // progress and scheduler state
	orders *orders        // executes commands
}

// registerRoutes implements resource.
func (a *vmAPI) registerRoutes(api huma.API) {
	register(api, route{method: http.MethodGet, path: "/v1/plans/{plan}/vms", id: "listVMs", what: "list the VMs of a plan", role: View,
		details: "In the plan's order, a page at a time: next is the after of the page that follows."}, a.list)
	register(api, route{method: http.MethodGet, path: "/v1/plans/{plan}/vms/{vm}", id: "getVM", what: "see a VM", role: View,
		details: "With the options that it is moved with."}, a.get)
	register(api, route{method: http.MethodGet, path: "/v1/progress", id: "listProgress", what: "see the progress", role: View,
		details: "Of all VMs that were started, from the last reports of their workers."}, a.listProgress)
	register(api, route{method: http.MethodPost, path: "/v1/plans/{plan}/vms/{vm}/commands", id: "commandVM", what: "send a command to a VM", role: Operate,
		status: http.StatusNoContent}, a.order)
}

// progressQuery are the parameters of listProgress.
type progressQuery struct {
	Plan string `query:"plan" maxLength:"128" pattern:"^[A-Za-z0-9._-]*$" doc:"progress of this plan; empty: all plans"`
}

// listProgress returns the last reports on active VMs.
func (a *vmAPI) listProgress(ctx context.Context, in *progressQuery) (*listOut[fleetdb.Progress], error) {
	b, err := a.cache.readState(ctx)
	if err != nil {
		return nil, err
	}
	return listOf(progressOf(b.progress, in.Plan)), nil
}

// list returns a page of VMs in the order of their plan. An unknown plan is fault.NotFound.
func (a *vmAPI) list(ctx context.Context, in *vmQuery) (*listOut[vmItem], error) {
	if _, err := a.plans.Get(ctx, in.Plan); err != nil {
		return nil, err
	}
	items, next, err := readPage(ctx, a.vms, a.cache, fleetdb.Query{Plan: in.Plan, States: in.State, Worker: in.Worker, After: in.After, Limit: in.Limit})
	out := listOf(items)
	out.Body.Next = next
	return out, err
}

// readPage returns a page of VMs with their state, and the start of the next page; 0 on the last page.
func readPage(ctx context.Context, store *fleetdb.VMs, cache *fleetCache, q fleetdb.Query) (items []vmItem, next int64, err error) {
	limit := q.Limit
	q.Limit++ // one more row shows whether another page follows
	vms, err := store.List(ctx, q)
	if err != nil {
		return nil, 0, err
	}
	if len(vms) > limit {
		vms, next = vms[:limit], vms[limit-1].Seq
	}
	state, err := cache.readState(ctx)
	if err != nil {
		return nil, 0, err
	}
	for _, vm := range vms {
		items = append(items, state.itemOf(vm))
	}
	return items, next, nil
}

// get returns one VM with its options and its state.
func (a *vmAPI) get(ctx context.Context, in *VMPath) (*vmOut, error) {
	vm, err := a.vms.Get(ctx, fleetdb.Key{Plan: in.Plan, VM: in.VM})
	if err != nil {
		return nil, err
	}
	state, err := a.cache.readState(ctx)
	return &vmOut{state.itemOf(vm)}, err
}

// vmCommandBody is the body of a command for one VM.
type vmCommandBody struct {
	Order string `json:"command" enum:"resume,pause,cutover,cancel,retry,rollback,withdraw" doc:"as for a plan; withdraw: rollback, also of a published VM, which is removed from its target with all data written to it since; it requires the role admin"`
}

// vmCommandRequest is the request of commandVM.
type vmCommandRequest struct {
	VMPath
	Body vmCommandBody
}

// order gives a command to a VM.
func (a *vmAPI) order(ctx context.Context, in *vmCommandRequest) (*struct{}, error) {
	return nil, a.orders.commandVM(ctx, fleetdb.Key{Plan: in.Plan, VM: in.VM}, in.Body.Order)
}

// states are all states of a VM, in the order of its migration.
var states = []fleetdb.State{fleetdb.Queued, fleetdb.Assigned, fleetdb.Running, fleetdb.Stranded, fleetdb.Done, fleetdb.Failed, fleetdb.Canceled}
