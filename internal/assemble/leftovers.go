package assemble

import (
	"context"
	"net/url"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleet"
	"github.com/decamp/decamp/internal/workflow"
)

// ServerOf returns the name of a server in records of changes: its host:port in lower case.
func ServerOf(u *url.URL) string { return strings.ToLower(fleet.Endpoint(u)) }

// RevertLeftovers reverts the recorded changes of earlier runs on the hosts of a session, and reports them. left
// is true if some could not be reverted; the user is warned, and the command continues.
func (a *Assembler) RevertLeftovers(ctx context.Context, shells *HostShells) (left bool) {
	done, err := RevertChanges(ctx, shells)
	for _, r := range done {
		a.Log.Info("reverted a change of an earlier run", "host", r.HostName(), "what", r.Text)
		a.Notify("An earlier run left %s on host %s; decamp reverted that.", r.Text, r.HostName())
	}
	a.WarnStays(err)
	return err != nil
}

// WarnStays prints an error of reverting changes, with its remedy. A nil err is ignored.
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

// LockState locks the state directory until unlock, so that no other process changes hosts. It returns
// fault.Conflict if another process has it.
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
