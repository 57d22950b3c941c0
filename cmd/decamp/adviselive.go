package main

import (
	"context"
	"fmt"
	"time"

	"github.com/decamp/decamp/internal/bottleneck"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/roster"
	"github.com/decamp/decamp/internal/server"
)

// liveAdvice is what advise prints of a plan under way.
type liveAdvice struct {
	Plan   string           `json:"plan"`
	Moving int              `json:"moving"` // VMs
	Rate   int64            `json:"rate"`   // bytes a second, of all of them
	Busy   bottleneck.Busy  `json:"busy"`
	Limit  bottleneck.Limit `json:"limit"`
	Do     []string         `json:"do"` // first things first
}

// adviseLive says what limits a plan that is under way, and what to do about it.
func (a *app) adviseLive(ctx context.Context, m meetingFlags, name string) (err error) {
	c, closeControl, err := a.openControl(ctx, m)
	if err != nil {
		return err
	}
	defer closing(&err, closeControl)
	r, err := measuredNow(ctx, c, name)
	if err != nil {
		return err
	}
	if a.json {
		return a.print(r)
	}
	fmt.Fprintf(a.out, "Plan %s: %s, %s\n%s\n\n", r.Plan, count(r.Moving, "VM"), rate(r.Rate, time.Second), r.Limit)
	t := newTable("PART", "BUSY", "WHAT IT IS")
	t.alignRight(1)
	for _, p := range partsOf(r.Busy) {
		t.add(p.name, fmt.Sprintf("%.0f %%", 100*p.busy), p.means)
	}
	t.write(a.out)
	fmt.Fprintln(a.out)
	for _, do := range r.Do {
		fmt.Fprintln(a.out, "- "+do)
	}
	return nil
}

// measuredNow is what a plan's transfers told lately.
func measuredNow(ctx context.Context, c server.Control, name string) (r liveAdvice, err error) {
	if _, err := c.Plan(ctx, name); err != nil {
		return r, err
	}
	progress, err := c.Progress(ctx, name)
	if err != nil {
		return r, err
	}
	r = liveAdvice{Plan: name, Rate: rateOf(progress, name), Busy: roster.BusyOf(progress)}
	for _, p := range progress {
		if p.Rate > 0 {
			r.Moving++
		}
	}
	if r.Limit = r.Busy.Limit(); r.Limit.What == "" {
		return r, fault.New(fault.Conflict, "of plan %s no disk is read at the moment that could be measured", name).
			WithHint("decamp status %s says what its VMs do", fault.Quote(name))
	}
	r.Do = []string{doAbout[r.Limit.What]}
	if r.Limit.Gain > 0 {
		r.Do = append(r.Do, "then: "+doAbout[r.Limit.Next])
	}
	return r, nil
}

type busyPart struct {
	name, means string
	busy        float64
}

func partsOf(b bottleneck.Busy) []busyPart {
	return []busyPart{
		{"source", "datastore, host, and the network from there", b.Source},
		{"target", "what the images lie on", b.Target},
		{"processor", "looking for zeros and hashing, here", b.Processor},
		{"budget", "rates that were said", b.Budget},
	}
}

// doAbout says what to do about each part, the cheapest first.
var doAbout = map[string]string{
	"source":    "source: move VMs of several hosts and datastores at once, read over nfc or have the host write (transport: nfc, landing); then a faster link or datastore: decamp advise --source … --nic … says what each would give",
	"target":    "target: spread the plan over several destinations (to:), or put the images on faster storage: decamp advise --dest … says what it would give",
	"processor": "processor: add a machine (decamp worker --join), or give this one more cores",
	"budget":    "budget: raise the rate (decamp limits lists them, and changes them while it goes on)",
}
