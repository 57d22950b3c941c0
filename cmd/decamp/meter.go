package main

import (
	"time"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/plan"
)

// meter turns the progress of one step on one disk into events, with the rate since its
// beginning.
type meter struct {
	shown progress
	step  string
	disk  int32 // device key; 0: there is one disk
	now   func() time.Time
	began time.Time
}

func newMeter(shown progress, step string) *meter {
	return &meter{shown: shown, step: step, now: time.Now, began: time.Now()}
}

func (c *conversion) meter(step string) *meter { return newMeter(c.shown, step) }

// shortestRate is the time that a rate is over at least.
const shortestRate = time.Second

func (m *meter) copying(p blockcopy.Progress) {
	m.show(plan.Bytes{Total: p.Size, Done: p.Done, Skipped: p.Skipped, Read: p.Read, Zero: max(p.Done-p.Written, 0)})
}

func (m *meter) verifying(p manifest.Progress) {
	m.show(plan.Bytes{Total: p.Size, Done: p.Done, Read: p.Read})
}

func (m *meter) show(b plan.Bytes) {
	now := m.now()
	d := now.Sub(m.began)
	b.Rate = int64(float64(b.Read) / max(d, shortestRate).Seconds())
	if b.Done > 0 {
		b.Left = time.Duration(float64(b.Total-b.Done-b.Skipped) / float64(b.Done) * float64(d))
	}
	m.shown.event(plan.Event{Time: now, Kind: plan.Progressed, Step: m.step, Disk: m.disk, Bytes: &b})
}
