package server

import (
	"context"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"
	"github.com/rogpeppe/go-internal/diff"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleet/admission"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/planfile"
)

// planOut is the response with one plan.
type planOut struct{ Body fleetdb.Plan }

// planAPI serves the plans.
type planAPI struct {
	plans   *fleetdb.Plans   // plans of the fleet database
	workers *fleetdb.Workers // workers, for the folders that they offer
	control Control          // submits plans
	trail   *auditTrail      // records changes and refusals
	orders  *orders          // executes commands
	access  string           // Config.Access
	folder  string           // Config.Folder
}

// registerRoutes implements resource.
func (a *planAPI) registerRoutes(api huma.API) {
	register(api, route{method: http.MethodGet, path: "/v1/plans", id: "listPlans", what: "list the plans", role: View,
		details: "Without their texts."}, a.list)
	register(api, route{method: http.MethodPost, path: "/v1/plans", id: "submitPlan", what: "submit a plan", role: Operate,
		status: http.StatusCreated, body: planBytes,
		details: "The body is a plan file. The same text again changes nothing. A plan names credentials and places that an administrator configured, and folders that a worker offers. Paths, secrets and commands require the role admin."}, a.submit)
	register(api, route{method: http.MethodPost, path: "/v1/plan-checks", id: "checkPlan", what: "check a plan", role: Operate, body: planBytes,
		details: "The body is a plan file. It is checked as by submitPlan, with the same errors, and not submitted. Another text of a submitted plan is no error: the response contains the differences."}, a.check)
	register(api, route{method: http.MethodGet, path: "/v1/plans/{plan}", id: "getPlan", what: "see a plan", role: View,
		details: "With its text."}, a.get)
	register(api, route{method: http.MethodDelete, path: "/v1/plans/{plan}", id: "dropPlan", what: "drop a plan", role: Admin,
		status: http.StatusNoContent, details: "The plan must have ended. Its rows are removed; migrated VMs are kept."}, a.drop)
	register(api, route{method: http.MethodPost, path: "/v1/plans/{plan}/commands", id: "commandPlan", what: "send a command to a plan", role: Operate,
		status: http.StatusNoContent, details: "The command applies to all VMs of the plan until the next one. Retry and rollback are executed once."}, a.order)
}

// list returns all plans without their texts.
func (a *planAPI) list(ctx context.Context, _ *struct{}) (*listOut[fleetdb.Plan], error) {
	plans, err := a.plans.List(ctx)
	for i := range plans {
		plans[i] = withCounts(plans[i])
	}
	return listOf(plans), err
}

// get returns one plan with its text.
func (a *planAPI) get(ctx context.Context, in *PlanPath) (*planOut, error) {
	p, err := a.plans.Get(ctx, in.Plan)
	return &planOut{withCounts(p)}, err
}

// planText is the request of submitPlan.
type planText struct {
	RawBody []byte `contentType:"application/yaml" required:"true"`
}

// submit checks a plan file against the role of the user, and submits it.
func (a *planAPI) submit(ctx context.Context, in *planText) (*planOut, error) {
	what, who := "submit a plan", whoIn(ctx)
	f, privileged, err := a.parsePermitted(ctx, in, what)
	if err != nil {
		return nil, err
	}
	if len(privileged) > 0 {
		what += " that sets " + planfile.Enumerate(privileged)
	}
	var p fleetdb.Plan
	err = a.trail.recordChange(ctx, what, string(f.Name), func() (err error) {
		p, err = a.control.Submit(ctx, Submission{Text: string(in.RawBody), Folder: a.folder, By: who.Name, Role: who.Role})
		return err
	})
	p.Text = "" // the client has the text
	return &planOut{withCounts(p)}, err
}

// parsePermitted parses a plan file, and checks it against the role of the user. It returns the keys that only the
// role admin may set. It records a refusal to do what.
func (a *planAPI) parsePermitted(ctx context.Context, in *planText, what string) (*planfile.File, []planfile.Privileged, error) {
	who := whoIn(ctx)
	f, err := parsePlan(string(in.RawBody))
	if err != nil {
		return nil, nil, err
	}
	privileged, err := a.checkPermissions(ctx, f, who.Role)
	if err != nil {
		a.trail.noteRefusal(ctx, who, what, string(f.Name), err)
	}
	return f, privileged, err
}

// planCheck is the result of the check of a plan file without mistakes.
type planCheck struct {
	Name  string            `json:"name" doc:"name of the plan"`
	State fleetdb.PlanState `json:"state,omitempty" doc:"state of the submitted plan with this name; missing if no plan has it"`
	Diff  string            `json:"diff" doc:"unified diff from the text of that plan to the checked text; empty if they are equal"`
}

// checkOut is the response of checkPlan.
type checkOut struct{ Body planCheck }

// check checks a plan file as submit does, and compares it with the submitted plan of its name.
func (a *planAPI) check(ctx context.Context, in *planText) (*checkOut, error) {
	f, _, err := a.parsePermitted(ctx, in, "check a plan")
	if err != nil {
		return nil, err
	}
	result := planCheck{Name: string(f.Name)}
	p, err := a.plans.Get(ctx, result.Name)
	switch {
	case fault.Is(err, fault.NotFound):
	case err != nil:
		return nil, err
	default:
		result.State, result.Diff = p.State, string(diff.Diff("submitted", []byte(p.Text), "checked", in.RawBody))
	}
	return &checkOut{result}, nil
}

// checkPermissions checks a plan against the role of its author and the access file. It returns the
// keys in it that only the role admin may set. The workers check the same again with their own access
// files.
func (a *planAPI) checkPermissions(ctx context.Context, f *planfile.File, role Role) ([]planfile.Privileged, error) {
	access, err := planfile.LoadAccess(a.access)
	if err != nil {
		return nil, err
	}
	if err := access.Permit(f, planfile.Role(role)); err != nil {
		return nil, err
	}
	if role == Admin {
		return f.AdminOnly(), nil
	}
	return nil, a.checkFolders(ctx, f)
}

// checkFolders returns fault.Denied unless a worker offers each folder that the plan names. A stopped
// worker counts: its VMs wait for it.
func (a *planAPI) checkFolders(ctx context.Context, f *planfile.File) error {
	workers, err := a.workers.List(ctx)
	if err != nil {
		return err
	}
	for _, to := range f.Destinations() {
		offers := func(w fleetdb.Worker) bool { return admission.StorageOf(w.Offers, string(to)) != "" }
		if !slices.ContainsFunc(workers, offers) {
			return fault.New(fault.Denied, "plan %s names the folder %s, which no worker offers", f.Name, to.Folder()).
				WithHint("name a folder that a worker offers (decamp serve --offer, decamp worker --offer)")
		}
	}
	return nil
}

// drop removes a plan that has ended.
func (a *planAPI) drop(ctx context.Context, in *PlanPath) (*struct{}, error) {
	return nil, a.trail.recordChange(ctx, "drop a plan", in.Plan, func() error { return a.plans.Drop(ctx, in.Plan) })
}

// order is the body of a command.
type order struct {
	Order string `json:"command" enum:"resume,pause,cutover,cancel,retry,rollback" doc:"pause: begin no transfer; cutover: of warm VMs, switch over now; cancel: stop and undo; retry: of those that failed; rollback: cancel, and the source runs again"`
}

// planCommand is the request of commandPlan.
type planCommand struct {
	PlanPath
	Body order
}

// order gives a command to a plan.
func (a *planAPI) order(ctx context.Context, in *planCommand) (*struct{}, error) {
	return nil, a.orders.commandPlan(ctx, in.Plan, in.Body.Order)
}
