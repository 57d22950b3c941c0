package server

import (
	"context"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleet/admission"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/roster"
)

type planOut struct{ Body roster.Plan }

func (s *Server) planRoutes(api huma.API) {
	register(api, route{method: http.MethodGet, path: "/v1/plans", id: "listPlans", what: "list the plans", role: View,
		tells: "Without their texts."}, s.listPlans)
	register(api, route{method: http.MethodPost, path: "/v1/plans", id: "submitPlan", what: "submit a plan", role: Operate,
		status: http.StatusCreated, body: planBytes,
		tells: "The body is a plan file. The same text again changes nothing. A plan names credentials and places that an administrator configured, and folders that a worker offers. Paths, secrets and commands require the role admin."}, s.submitPlan)
	register(api, route{method: http.MethodGet, path: "/v1/plans/{plan}", id: "getPlan", what: "see a plan", role: View,
		tells: "With its text."}, s.getPlan)
	register(api, route{method: http.MethodDelete, path: "/v1/plans/{plan}", id: "dropPlan", what: "drop a plan", role: Admin,
		status: http.StatusNoContent, tells: "One that ended: it is forgotten. What it moved stays."}, s.dropPlan)
	register(api, route{method: http.MethodPost, path: "/v1/plans/{plan}/orders", id: "orderPlan", what: "give a plan an order", role: Operate,
		status: http.StatusNoContent, tells: "It stands for all of its VMs until the next one; retry and rollback are carried out once."}, s.orderPlan)
}

func (s *Server) listPlans(ctx context.Context, _ *struct{}) (*listOut[roster.Plan], error) {
	plans, err := s.local.Plans(ctx)
	for i := range plans {
		plans[i] = whole(plans[i])
	}
	return listOf(plans), err
}

// whole fills in what JSON shows as null otherwise.
func whole(p roster.Plan) roster.Plan {
	if p.Counts == nil {
		p.Counts = roster.Counts{}
	}
	return p
}

func (s *Server) getPlan(ctx context.Context, in *PlanPath) (*planOut, error) {
	p, err := s.local.Plan(ctx, in.Plan)
	return &planOut{whole(p)}, err
}

type planText struct {
	RawBody []byte `contentType:"application/yaml" required:"true"`
}

func (s *Server) submitPlan(ctx context.Context, in *planText) (*planOut, error) {
	who := whoIn(ctx)
	f, err := parse(string(in.RawBody))
	if err != nil {
		return nil, err
	}
	privileged, err := s.permitPlan(ctx, f, who.Role)
	if err != nil {
		s.noteRefusal(ctx, who, "submit a plan", string(f.Name), err)
		return nil, err
	}
	what := "submit a plan"
	if len(privileged) > 0 {
		what += " that sets " + planfile.Enumerate(privileged)
	}
	var p roster.Plan
	err = s.change(ctx, what, string(f.Name), func() (err error) {
		p, err = s.local.Submit(ctx, Submission{Text: string(in.RawBody), Folder: s.folder, By: who.Name, Role: who.Role})
		return err
	})
	p.Text = "" // whoever sent it has it
	return &planOut{whole(p)}, err
}

// permitPlan checks a plan against the role of its author and against what administrators named, and returns
// the keys that only the role admin may set. The workers check the same again with their own access files.
func (s *Server) permitPlan(ctx context.Context, f *planfile.File, role Role) ([]planfile.Privileged, error) {
	access, err := planfile.LoadAccess(s.config.Access)
	if err != nil {
		return nil, err
	}
	if err := access.Permit(f, planfile.Role(role)); err != nil {
		return nil, err
	}
	if role == Admin {
		return f.AdminOnly(), nil
	}
	return nil, s.offered(ctx, f)
}

// offered is an error unless a worker offers each folder that the plan names. A worker that is stopped
// counts: its VMs wait for it.
func (s *Server) offered(ctx context.Context, f *planfile.File) error {
	workers, err := s.local.Workers(ctx)
	if err != nil {
		return err
	}
	for _, to := range f.Destinations() {
		offers := func(w roster.Worker) bool { return admission.StorageOf(w.Offers, string(to)) != "" }
		if !slices.ContainsFunc(workers, offers) {
			return fault.New(fault.Denied, "plan %s names the folder %s, which no worker offers", f.Name, to.Folder()).
				WithHint("name a folder that a worker offers (decamp serve --offer, decamp worker --offer)")
		}
	}
	return nil
}

func (s *Server) dropPlan(ctx context.Context, in *PlanPath) (*struct{}, error) {
	return nil, s.change(ctx, "drop a plan", in.Plan, func() error { return s.local.DropPlan(ctx, in.Plan) })
}

// order is the body of an order.
type order struct {
	Order string `json:"order" enum:"resume,pause,cutover,cancel,retry,rollback" doc:"pause: begin no transfer; cutover: of warm VMs, switch over now; cancel: stop and undo; retry: of those that failed; rollback: cancel, and the source runs again"`
}

const resume = "resume" // the word for roster.GoOn

func orderOf(word string) roster.Order {
	if word == resume {
		return roster.GoOn
	}
	return roster.Order(word)
}

type planOrder struct {
	PlanPath
	Body order
}

func (s *Server) orderPlan(ctx context.Context, in *planOrder) (*struct{}, error) {
	return nil, s.orderAll(ctx, in.Plan, in.Body.Order)
}

func (s *Server) orderAll(ctx context.Context, plan, word string) error {
	return s.change(ctx, word, plan, func() error { return s.local.OrderPlan(ctx, plan, orderOf(word)) })
}
