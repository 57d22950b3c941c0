package assemble

import (
	"context"
	"net/url"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleet"
	"github.com/decamp/decamp/internal/workflow"
)

// ServerOf returns the name of a server in records of changed hosts.
func ServerOf(u *url.URL) string { return strings.ToLower(fleet.Endpoint(u)) }

// Tidy reverts the changes of an earlier run on the host, and reports that. Failures do not stop the
// command: it tries again at the end.
func (a *Assembler) Tidy(ctx context.Context, shells *HostShells) (left bool) {
	done, err := PutBack(ctx, shells)
	for _, r := range done {
		a.Log.Info("put back what an earlier run left", "host", r.Where(), "what", r.Text)
		a.Tell("An earlier run had left %s on host %s; it is taken off.", r.Text, r.Where())
	}
	a.WarnStays(err)
	return err != nil
}

// WarnStays reports the changes that could not be reverted.
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
