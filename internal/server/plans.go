package server

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/roster"
)

type planOut struct{ Body roster.Plan }

func (s *Server) planRoutes(api huma.API) {
	register(api, route{method: http.MethodGet, path: "/v1/plans", id: "listPlans", what: "list the plans", role: View,
		tells: "Without their texts."}, s.listPlans)
	register(api, route{method: http.MethodPost, path: "/v1/plans", id: "submitPlan", what: "submit a plan", role: Operate,
		status: http.StatusCreated, body: planBytes,
		tells: "The body is a plan file. The same text again changes nothing. One that runs commands (hooks) or names files with secrets takes the role admin."}, s.submitPlan)
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
	if does := dangerous(f); does != "" && !who.Role.May(Admin) {
		err := who.refuse(Admin, "submit a plan that "+does)
		s.noteRefusal(ctx, who, "submit a plan", string(f.Name), err)
		return nil, err
	}
	var p roster.Plan
	err = s.change(ctx, "submit a plan", string(f.Name), func() (err error) {
		p, err = s.local.Submit(ctx, Submission{Text: string(in.RawBody), Folder: s.folder, By: who.Name, Role: who.Role})
		return err
	})
	p.Text = "" // whoever sent it has it
	return &planOut{whole(p)}, err
}

// dangerous says what a plan does that would let its author act as the server: commands run
// as it, and files that it may read would be sent to hosts of the author's choice.
func dangerous(f *planfile.File) string {
	switch {
	case runsCommands(f):
		return "runs commands (hooks)"
	case f.Source.Credentials.File != "" || f.Source.SSH.Credentials.File != "" || f.Source.SSH.Key != "":
		return "names files with secrets (credentials of the server's have names)"
	}
	return ""
}

func runsCommands(f *planfile.File) bool {
	hooks := []planfile.Hooks{f.Hooks, f.Defaults.Hooks}
	for _, vm := range f.VMs {
		hooks = append(hooks, vm.Hooks)
	}
	for _, h := range hooks {
		if len(h.Pre.Command)+len(h.Post.Command) > 0 {
			return true
		}
	}
	return false
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
