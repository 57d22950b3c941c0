package main

import (
	"time"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/plan"
)

// meter turns the progress of one step on one disk into events, with the rate since its
// beginning.
type meter struct {
	shown progress
	step  string
	began time.Time
}

func (c *conversion) meter(step string) *meter {
	return &meter{shown: c.shown, step: step, began: time.Now()}
}

func (m *meter) copying(p blockcopy.Progress) {
	m.show(plan.Bytes{Total: p.Size, Done: p.Done, Skipped: p.Skipped, Read: p.Read, Zero: max(p.Done-p.Written, 0)})
}

func (m *meter) verifying(done, size int64) { m.show(plan.Bytes{Total: size, Done: done, Read: done}) }

func (m *meter) show(b plan.Bytes) {
	now := time.Now()
	if d := now.Sub(m.began); d > 0 {
		b.Rate = int64(float64(b.Done) / d.Seconds())
	}
	m.shown.event(plan.Event{Time: now, Kind: plan.Progressed, Step: m.step, Bytes: &b})
}
