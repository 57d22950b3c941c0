package main

import (
	"context"
	"net/url"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleet"
)

// serverOf is how records of changed hosts name what was logged in to.
func serverOf(u *url.URL) string { return strings.ToLower(fleet.Endpoint(u)) }

// tidy puts back what an earlier run left on the host, and says so. What stays is no reason
// not to go on: it is tried once more in the end.
func (a *assembler) tidy(ctx context.Context, shells *hostShells) (left bool) {
	done, err := putBack(ctx, shells)
	for _, r := range done {
		a.log.Info("put back what an earlier run left", "host", r.Where(), "what", r.Text)
		a.tell("An earlier run had left %s on host %s; it is taken off.", r.Text, r.Where())
	}
	a.warnStays(err)
	return err != nil
}

// warnStays tells of what could not be put back.
func (a *assembler) warnStays(err error) {
	if err == nil {
		return
	}
	text := fault.OneLine(err.Error())
	if remedy := fault.OneLine(fault.HintOf(err)); remedy != "" {
		text += ". Remedy: " + remedy
	}
	a.warn("%s", text)
}
