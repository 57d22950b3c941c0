package main

import (
	"context"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/plan"
	"github.com/decamp/decamp/internal/roster"
)

// heard is a driver that keeps what it was told last.
type heard struct {
	last      roster.Progress
	rehearsed roster.Rehearsed
}

func (h *heard) Turn(context.Context, roster.Stage, time.Duration) (func(), error) { return nil, nil }
func (h *heard) Step(string, string)                                               {}
func (h *heard) Progress(p roster.Progress)                                        { h.last = p }
func (h *heard) Storage([]string) error                                            { return nil }
func (h *heard) Rehearsed(done roster.Rehearsed)                                   { h.rehearsed = done }
func (h *heard) Epoch() int64                                                      { return 1 }

// What moved in one step does not move in the next, until that says so.
func TestRateEndsWithItsStep(t *testing.T) {
	var to heard
	dr := newDrive(roster.VM{Bytes: 100}, &to)
	dr.event(plan.Event{Kind: plan.StepBegan, Step: "round"})
	dr.event(plan.Event{Kind: plan.Progressed, Step: "round", Disk: 2000, Bytes: &plan.Bytes{Total: 100, Done: 40, Rate: 7}})
	if to.last.Rate != 7 || to.last.Done != 40 {
		t.Fatalf("told %+v", to.last)
	}
	dr.event(plan.Event{Kind: plan.StepBegan, Step: "wait"})
	if to.last.Rate != 0 || to.last.Done != 40 {
		t.Errorf("told %+v", to.last)
	}
	dr.event(plan.Event{Kind: plan.Projected, Step: "wait", Outlook: &plan.Outlook{Outage: time.Minute}})
	if to.last.Rate != 0 || to.last.Outage != time.Minute {
		t.Errorf("told %+v", to.last)
	}
}
