package main

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleet"
	"github.com/decamp/decamp/internal/flow"
	"github.com/decamp/decamp/internal/leftover"
)

// serverOf is how records of changed hosts name what was logged in to.
func serverOf(u *url.URL) string { return strings.ToLower(fleet.Endpoint(u)) }

// tidy puts back what an earlier run left on the host, and says so. What stays is no reason
// not to go on: it is tried once more in the end.
func (a *app) tidy(ctx context.Context, shells *hostShells) (left bool) {
	done, err := putBack(ctx, shells)
	for _, r := range done {
		a.log.Info("put back what an earlier run left", "host", r.Where(), "what", r.Text)
		if !a.json {
			fmt.Fprintf(a.err, "An earlier run had left %s on host %s; it is taken off.\n", plain(r.Text), plain(r.Where()))
		}
	}
	a.warnStays(err)
	return err != nil
}

// warnStays tells of what could not be put back.
func (a *app) warnStays(err error) {
	if err == nil {
		return
	}
	text := oneLine(err.Error())
	if remedy := oneLine(fault.HintOf(err)); remedy != "" {
		text += ". Remedy: " + remedy
	}
	a.warn("%s", plain(text))
}

// lockState makes sure that no other decamp changes hosts on behalf of the state directory.
func (a *app) lockState(ctx context.Context, state string) (unlock func() error, err error) {
	engine, err := flow.Open(ctx, flow.Config{Dir: state, Log: a.log})
	if err != nil {
		return nil, err
	}
	return engine.Close, nil
}

// writeLeftovers lists what is still on hosts.
func writeLeftovers(a *app, list []leftover.Record) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(a.out, "\nLeft on hosts; the next migrate from there takes it off, or decamp clean URL:\n\n")
	t := newTable("SERVER", "HOST", "WHAT", "SINCE", "BY HAND")
	for _, r := range list {
		t.add(plain(r.Server), plain(string(r.Host)), plain(r.Text), r.Since.Local().Format(time.DateTime), plain(r.ByHand))
	}
	t.write(a.out)
}
