package mover

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/sched/budget"
	"github.com/decamp/decamp/internal/sleep"
)

// pacer keeps the transfers of this process within the rates of plans and operators:
//
//	fleet:all/rate        all transfers
//	plan:wave-1/rate      one plan: its limits.bandwidth, or an operator's value
//	source:vc1:443/rate   one ESXi or vCenter of a login
//	host:esx1/rate        one ESXi host
//	target:dir:/srv/vm/rate
//	worker:rack2/rate     one machine
//
// If several machines migrate VMs within one rate, each gets the share of its transfers among all.
type pacer struct {
	m       *Mover             // the mover, with plans and database
	worker  string             // name of this worker
	budgets *budget.Budgets    // rates by budget name
	cancel  context.CancelFunc // ends updateLoop
	done    sync.WaitGroup     // waits for updateLoop

	mu      sync.Mutex      // guards the fields below
	moving  []fleetdb.VM    // VMs whose transfers have joined
	wake    chan struct{}   // has a token after a VM has joined
	limited map[string]bool // budgets with a rate at the last update
}

const (
	// updateInterval is the time between updates of the rates while VMs are migrated.
	updateInterval = time.Second

	RateSuffix = "/rate" // RateSuffix is the end of the names of limits that are rates.
)

// newPacer returns a pacer and starts its loop.
func newPacer(m *Mover, worker string) *pacer {
	ctx, end := context.WithCancel(context.Background())
	p := &pacer{m: m, worker: worker, budgets: budget.New(budget.Wall()), cancel: end, wake: make(chan struct{}, 1), limited: map[string]bool{}}
	p.done.Go(func() { p.updateLoop(ctx) })
	return p
}

// close ends the loop and waits for it.
func (p *pacer) close() {
	p.cancel()
	p.done.Wait()
}

// joinFlow adds a VM: its transfers then stay within all rates that apply to them, also the first byte.
// The caller calls leave after the last byte.
func (p *pacer) joinFlow(ctx context.Context, row fleetdb.VM) (flow *budget.Flow, leave func()) {
	p.mu.Lock()
	p.moving = append(p.moving, row)
	p.mu.Unlock()
	p.updateRates(ctx) // before the first byte
	// wake the loop; a token that is still there suffices
	select {
	case p.wake <- struct{}{}:
	default:
	}
	flow = p.budgets.Join(row.Key.String(), 1, namesOf(row, p.worker)...)
	return flow, func() { flow.Leave(); p.leaveFlow(row) }
}

// leaveFlow removes a VM.
func (p *pacer) leaveFlow(row fleetdb.VM) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.moving = slices.DeleteFunc(p.moving, func(vm fleetdb.VM) bool { return vm.Key == row.Key })
}

// namesOf returns the names of the budgets that apply to the transfers of a VM on a worker, sorted.
func namesOf(row fleetdb.VM, worker string) []string {
	names := []string{"fleet:all", "plan:" + row.Plan, "source:" + row.Source, "host:" + row.Host, "worker:" + worker}
	for _, to := range row.To {
		names = append(names, "target:"+to)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// updateLoop updates the rates at intervals while VMs are migrated, until ctx ends.
func (p *pacer) updateLoop(ctx context.Context) {
	for {
		select {
		case <-p.wake:
		case <-ctx.Done():
			return
		}
		for p.isBusy() {
			if sleep.For(ctx, updateInterval) != nil {
				return
			}
			p.updateRates(ctx)
		}
	}
}

// isBusy reports whether a VM has joined.
func (p *pacer) isBusy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.moving) > 0
}

// updateRates sets the current rates of all budgets. If they cannot be read, the old rates stay. A
// budget without a rate any more becomes unlimited.
func (p *pacer) updateRates(ctx context.Context) {
	rates, err := p.currentRates(ctx)
	var parts map[string]float64
	if err == nil && len(rates) > 0 {
		parts, err = p.localShares(ctx)
	}
	if err != nil {
		p.m.a.Log.Debug("rates not read", "err", err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// budgets that had a rate and have none now become unlimited
	for name := range p.limited {
		if _, said := rates[name]; !said {
			rates[name] = budget.Week{Rate: budget.Unlimited}
			delete(p.limited, name)
		}
	}
	for name, week := range rates {
		if week.Rate != budget.Unlimited || len(week.Rules) > 0 {
			p.limited[name] = true
		}
		if err := p.budgets.Set(name, scaleWeek(week, parts[name])); err != nil {
			p.m.a.Log.Warn("rate not set", "limit", name, "err", err)
		}
	}
}

// currentRates returns the rates of plans and operators. The rate of an operator replaces that of a
// plan.
func (p *pacer) currentRates(ctx context.Context) (map[string]budget.Week, error) {
	rates := map[string]budget.Week{}
	p.m.mu.Lock()
	for name, s := range p.m.sources {
		if len(s.file.Limits.Bandwidth) > 0 {
			rates["plan:"+name] = s.file.Limits.Week()
		}
	}
	p.m.mu.Unlock()
	limits, err := p.m.database.Limits.List(ctx)
	for _, l := range limits {
		if name, isRate := strings.CutSuffix(l.Name, RateSuffix); isRate {
			rates[name] = budget.Week{Rate: l.Units}
		}
	}
	return rates, err
}

// localShares returns, for each budget, the share of this process in all transfers of the fleet; 1 if
// this process is alone.
func (p *pacer) localShares(ctx context.Context) (map[string]float64, error) {
	workers, err := p.m.database.Workers.List(ctx)
	if err != nil {
		return nil, err
	}
	var under []fleetdb.VM
	if len(workers) > 1 { // a single worker has all transfers
		if under, err = p.m.database.VMs.List(ctx, fleetdb.Query{States: []fleetdb.State{fleetdb.Running}}); err != nil {
			return nil, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	ours, all := map[string]float64{}, map[string]float64{}
	for _, vm := range p.moving {
		increment(ours, namesOf(vm, p.worker))
	}
	for _, vm := range under {
		if vm.Granted && vm.Worker != p.worker {
			increment(all, namesOf(vm, vm.Worker))
		}
	}
	for name, n := range ours {
		ours[name] = n / (n + all[name])
	}
	return ours, nil
}

// increment adds one to the counter of each name.
func increment(counts map[string]float64, names []string) {
	for _, name := range names {
		counts[name]++
	}
}

// scaleWeek returns w with its rates multiplied by part. A part outside of 0 to 1 leaves w unchanged:
// without local transfers the rate is not used.
func scaleWeek(w budget.Week, part float64) budget.Week {
	if part <= 0 || part >= 1 {
		return w
	}
	scale := func(rate int64) int64 {
		if rate <= 0 { // unlimited, or nothing at all
			return rate
		}
		return max(1, int64(float64(rate)*part))
	}
	w.Rate = scale(w.Rate)
	w.Rules = slices.Clone(w.Rules)
	for i := range w.Rules {
		w.Rules[i].Rate = scale(w.Rules[i].Rate)
	}
	return w
}
