package main

import (
	"context"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/roster"
	"github.com/decamp/decamp/internal/server"
)

// acceptedSource returns a new source of p, as the database has it. It returns fault.Denied if p may
// not be carried out: a process with the fleet's key must have submitted it, and the role of its
// author must permit what its text asks for. A mover without a database only reads plans of the
// user's own, and accepts all.
func (m *mover) acceptedSource(p roster.Plan) (*planSource, error) {
	if m.roster == nil {
		return m.newPlanSource(p)
	}
	if err := m.roster.VerifyPlan(p); err != nil { // before its text is read
		return nil, err
	}
	s, err := m.newPlanSource(p)
	if err != nil {
		return nil, err
	}
	if string(s.file.Name) != p.Name {
		return nil, fault.New(fault.Denied, "plan %s is refused: its text is that of plan %s", p.Name, s.file.Name).WithHint("submit it again")
	}
	if err := permitted(s.file, server.Role(p.Role)); err != nil {
		return nil, err
	}
	return s, nil
}

// permitted returns fault.Denied if a plan that was submitted with role does more than the role
// permits. The server checks the same when a plan is submitted; a worker does not rely on that. All
// that depends on the role belongs here.
func permitted(f *planfile.File, role server.Role) error {
	if runsCommands(f) && !role.May(server.Admin) {
		return fault.New(fault.Denied, "plan %s runs commands (hooks), and was submitted with the role %q", f.Name, role).
			WithHint("have an administrator submit it")
	}
	return nil
}

// Admit is part of fleet.Mover. The hooks of VMs are checked by the workers that drive them.
func (m *mover) Admit(ctx context.Context, p roster.Plan) error {
	s, err := m.sourceOf(ctx, p)
	if err != nil {
		return err
	}
	return m.allow(s, s.file.Hooks)
}

// allow returns fault.Denied if hooks has a command and this process does not run hooks.
func (m *mover) allow(s *planSource, hooks planfile.Hooks) error {
	if m.hooks || !hasCommand(hooks) {
		return nil
	}
	return fault.New(fault.Denied, "plan %s runs commands (hooks), which this process does not", s.name).
		WithHint("start all servers and workers with --allow-hooks if you trust those who may submit plans as admin; then: decamp retry %s", fault.Quote(s.name))
}

// runsCommands reports whether a plan has a hook.
func runsCommands(f *planfile.File) bool {
	all := []planfile.Hooks{f.Hooks, f.Defaults.Hooks}
	for i := range f.VMs {
		all = append(all, f.VMs[i].Hooks)
	}
	for _, hooks := range all {
		if hasCommand(hooks) {
			return true
		}
	}
	return false
}

func hasCommand(h planfile.Hooks) bool { return len(h.Pre.Command)+len(h.Post.Command) > 0 }
