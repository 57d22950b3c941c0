package mover

import (
	"context"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/planfile"
)

// acceptedSource returns a new source for p, as stored in the database. It returns fault.Denied if p
// must not be executed: a process with the fleet key must have submitted it, and the role of its author
// must permit its text. A mover without a database reads only plans of the local user, and accepts all.
func (m *Mover) acceptedSource(p fleetdb.Plan) (*planSource, error) {
	if m.database == nil {
		return m.newPlanSource(p)
	}
	if err := m.database.Plans.Verify(p); err != nil { // before its text is read
		return nil, err
	}
	s, err := m.newPlanSource(p)
	if err != nil {
		return nil, err
	}
	if string(s.file.Name) != p.Name {
		return nil, fault.New(fault.Denied, "plan %s is refused: its text belongs to plan %s", p.Name, s.file.Name).WithHint("submit it again")
	}
	if err := s.checkPermitted(); err != nil {
		return nil, err
	}
	return s, nil
}

// Admit returns an error if this process must not execute p. Hooks of VMs are not checked here, but by
// the workers that execute them. It implements fleet.Mover.
func (m *Mover) Admit(ctx context.Context, p fleetdb.Plan) error {
	s, err := m.sourceOf(ctx, p)
	if err != nil {
		return err
	}
	return m.allowHooks(s, s.file.Hooks)
}

// allowHooks returns fault.Denied if hooks has a command and this process does not run hooks.
func (m *Mover) allowHooks(s *planSource, hooks planfile.Hooks) error {
	if m.Hooks || !hasCommand(hooks) {
		return nil
	}
	return fault.New(fault.Denied, "plan %s runs commands (hooks), which this process does not permit", s.name).
		WithHint("start all servers and workers with --allow-hooks if you trust those who may submit plans as admin; then: decamp retry %s", fault.Quote(s.name))
}

// hasCommand reports whether one of the hooks has a command.
func hasCommand(h planfile.Hooks) bool { return len(h.Pre.Command)+len(h.Post.Command) > 0 }

// roleOf returns the role with which this process executes a plan; empty if none permits it. A command
// of the user executes plans of administrators as Local: with the files and the terminal of the user.
// Servers and workers have submitted plans only.
func (m *Mover) roleOf(p fleetdb.Plan) planfile.Role {
	role := planfile.Role(p.Role)
	switch {
	case m.database == nil, m.Command && role == planfile.Admin:
		return planfile.Local
	case role == planfile.Admin, role == planfile.Operate:
		return role
	}
	return ""
}
