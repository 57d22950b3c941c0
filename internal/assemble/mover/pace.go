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
	m       *Mover
	worker  string
	budgets *budget.Budgets
	end     context.CancelFunc
	ended   sync.WaitGroup

	mu     sync.Mutex
	moving []fleetdb.VM  // VMs that have joined
	some   chan struct{} // has a token while there is one
	joined map[string]bool
}

const (
	// lookAgain is how often rates are looked at while something is moved.
	lookAgain = time.Second

	RateSuffix = "/rate"
)

func newPacer(m *Mover, worker string) *pacer {
	ctx, end := context.WithCancel(context.Background())
	p := &pacer{m: m, worker: worker, budgets: budget.New(budget.Wall()), end: end, some: make(chan struct{}, 1), joined: map[string]bool{}}
	p.ended.Go(func() { p.follow(ctx) })
	return p
}

func (p *pacer) close() {
	p.end()
	p.ended.Wait()
}

// join has a VM's transfers keep within all rates that they are of.
func (p *pacer) join(ctx context.Context, row fleetdb.VM) (flow *budget.Flow, leave func()) {
	p.mu.Lock()
	p.moving = append(p.moving, row)
	p.mu.Unlock()
	p.look(ctx) // before the first byte
	select {
	case p.some <- struct{}{}:
	default:
	}
	flow = p.budgets.Join(row.Key.String(), 1, namesOf(row, p.worker)...)
	return flow, func() { flow.Leave(); p.leave(row) }
}

func (p *pacer) leave(row fleetdb.VM) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.moving = slices.DeleteFunc(p.moving, func(vm fleetdb.VM) bool { return vm.Key == row.Key })
}

// namesOf are the budgets that a VM's transfers pass on a worker.
func namesOf(row fleetdb.VM, worker string) []string {
	names := []string{"fleet:all", "plan:" + row.Plan, "source:" + row.Source, "host:" + row.Host, "worker:" + worker}
	for _, to := range row.To {
		names = append(names, "target:"+to)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// follow sets the rates as they change, while something is moved.
func (p *pacer) follow(ctx context.Context) {
	for {
		select {
		case <-p.some:
		case <-ctx.Done():
			return
		}
		for p.busy() {
			if sleep.For(ctx, lookAgain) != nil {
				return
			}
			p.look(ctx)
		}
	}
}

func (p *pacer) busy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.moving) > 0
}

// look updates the rates. If they cannot be read, the old ones stay.
func (p *pacer) look(ctx context.Context) {
	rates, err := p.rates(ctx)
	var parts map[string]float64
	if err == nil && len(rates) > 0 {
		parts, err = p.parts(ctx)
	}
	if err != nil {
		p.m.a.Log.Debug("rates not read", "err", err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for name := range p.joined {
		if _, said := rates[name]; !said {
			rates[name] = budget.Week{Rate: budget.Unlimited}
			delete(p.joined, name)
		}
	}
	for name, week := range rates {
		if week.Rate != budget.Unlimited || len(week.Rules) > 0 {
			p.joined[name] = true
		}
		if err := p.budgets.Set(name, times(week, parts[name])); err != nil {
			p.m.a.Log.Warn("rate not set", "of", name, "err", err)
		}
	}
}

// rates are what plans and operators say now. An operator's word stands above a plan's.
func (p *pacer) rates(ctx context.Context) (map[string]budget.Week, error) {
	rates := map[string]budget.Week{}
	p.m.mu.Lock()
	for name, s := range p.m.sources {
		if len(s.file.Limits.Bandwidth) > 0 {
			rates["plan:"+name] = s.file.Limits.Week()
		}
	}
	p.m.mu.Unlock()
	limits, err := p.m.roster.Limits.List(ctx)
	for _, l := range limits {
		if name, isRate := strings.CutSuffix(l.Name, RateSuffix); isRate {
			rates[name] = budget.Week{Rate: l.Units}
		}
	}
	return rates, err
}

// parts are which part of the transfers within each rate is this process's; all, alone.
func (p *pacer) parts(ctx context.Context) (map[string]float64, error) {
	workers, err := p.m.roster.Workers.List(ctx)
	if err != nil {
		return nil, err
	}
	var under []fleetdb.VM
	if len(workers) > 1 {
		if under, err = p.m.roster.VMs.List(ctx, fleetdb.Query{States: []fleetdb.State{fleetdb.Running}}); err != nil {
			return nil, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	ours, all := map[string]float64{}, map[string]float64{}
	for _, vm := range p.moving {
		count1(ours, namesOf(vm, p.worker))
	}
	for _, vm := range under {
		if vm.Holds && vm.Worker != p.worker {
			count1(all, namesOf(vm, vm.Worker))
		}
	}
	for name, n := range ours {
		ours[name] = n / (n + all[name])
	}
	return ours, nil
}

func count1(counts map[string]float64, names []string) {
	for _, name := range names {
		counts[name]++
	}
}

// times scales a rate. A rate without local transfers stays whole: no transfer uses it.
func times(w budget.Week, part float64) budget.Week {
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
