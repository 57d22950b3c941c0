package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	rows "github.com/decamp/decamp/internal/bench"
	"github.com/decamp/decamp/internal/bench/advise"
)

// adviseFigures measures the error of the advisor on the published rows. Each row with
// an async export is predicted by a model that was fitted without it. Rows with a sync
// export stay in the fit unless their rate contradicts their duration: the model needs
// them.
func adviseFigures(_ context.Context, b *bench) error {
	matrix := rows.Seed().Matrix
	var async, sync []float64
	for i, r := range matrix {
		known := matrix
		if r.Export == rows.Async || r.Contradicts() { // the advice has no synchronous row to compare with
			known = slices.Delete(slices.Clone(matrix), i, i+1)
		}
		m, err := advise.Fit(known)
		if err != nil {
			return err
		}
		p, err := m.Predict(r.Setup)
		if err != nil {
			return err
		}
		// The error is relative to the measured rate, in percent.
		off := 100 * math.Abs(p.MiBs/r.Rate()-1)
		if r.Export == rows.Async {
			async = append(async, off)
		} else {
			sync = append(sync, off)
		}
	}
	slices.Sort(async)
	note := fmt.Sprintf("%d asynchronous rows, each left out", len(async))
	b.atMost(5, Row{Figure: "advise: median error of a rate", Value: (async[len(async)/2-1] + async[len(async)/2]) / 2, Unit: "%", Note: note})
	b.atMost(15, Row{Figure: "advise: worst error of a rate", Value: slices.Max(async), Unit: "%", Note: note})
	b.atMost(25, Row{Figure: "advise: worst error of a synchronous rate", Value: slices.Max(sync), Unit: "%", Note: "against the durations; two published rates contradict theirs"})
	return nil
}

// manyHosts describes a fleet of 100,000 VMs of several sizes on 2,000 hosts. One link
// limits them.
const manyHosts = `version: 1
hosts: {"*": 327M}
link: 300G
disk: 170M
vms:
  - {count: 50000, hosts: 2000, allocated: 35G}
  - {count: 30000, hosts: 2000, allocated: 61G, disks: 2}
  - {count: 19000, hosts: 2000, allocated: 150G, disks: 3}
  - {count: 1000, hosts: 500, allocated: 2T, disks: 4}
`

// simulateFigures measures time and memory of plan simulate for a fleet larger than any
// known one.
func simulateFigures(ctx context.Context, b *bench) error {
	d, err := b.newWorkspace(ctx)
	if err != nil {
		return err
	}
	defer d.remove()
	file := filepath.Join(d.dir, "hosts.yaml")
	if err := os.WriteFile(file, []byte(manyHosts), 0o600); err != nil {
		return err
	}
	u, err := measureCommand(ctx, d.decamp, "plan", "simulate", "--hosts", file)
	if err != nil {
		return err
	}
	note := fmt.Sprintf("%.0f CPU s", u.CPU.Seconds())
	b.atMost(60, Row{Figure: "plan simulate of 100,000 VMs on 2,000 hosts", Value: u.Wall.Seconds(), Unit: "s", Note: note})
	b.atMost(1024, Row{Figure: "plan simulate of 100,000 VMs: memory", Value: float64(u.Peak >> 20), Unit: "MiB", Note: note})
	return nil
}
