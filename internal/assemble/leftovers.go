package assemble

import (
	"context"
	"net/url"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleet"
	"github.com/decamp/decamp/internal/workflow"
)

// ServerOf is how records of changed hosts name what was logged in to.
func ServerOf(u *url.URL) string { return strings.ToLower(fleet.Endpoint(u)) }

// Tidy puts back what an earlier run left on the host, and says so. What stays is no reason
// not to go on: it is tried once more in the end.
func (a *Assembler) Tidy(ctx context.Context, shells *HostShells) (left bool) {
	done, err := PutBack(ctx, shells)
	for _, r := range done {
		a.Log.Info("put back what an earlier run left", "host", r.Where(), "what", r.Text)
		a.Tell("An earlier run had left %s on host %s; it is taken off.", r.Text, r.Where())
	}
	a.WarnStays(err)
	return err != nil
}

// WarnStays tells of what could not be put back.
func (p *Prompts) WarnStays(err error) {
	if err == nil {
		return
	}
	text := fault.OneLine(err.Error())
	if remedy := fault.OneLine(fault.HintOf(err)); remedy != "" {
		text += ". Remedy: " + remedy
	}
	p.Warn("%s", text)
}

// LockState makes sure that no other decamp changes hosts on behalf of the state directory, until unlock.
func (a *Assembler) LockState(ctx context.Context) (unlock func() error, err error) {
	state, err := a.StateDir()
	if err != nil {
		return nil, err
	}
	engine, err := workflow.Open(ctx, workflow.Config{Dir: state, Log: a.Log})
	if err != nil {
		return nil, err
	}
	return engine.Close, nil
}
