package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/nfs"
	"github.com/decamp/decamp/internal/sched/budget"
	"github.com/decamp/decamp/internal/sleep"
	"github.com/decamp/decamp/internal/transport"
	"github.com/decamp/decamp/internal/transport/https"
	"github.com/decamp/decamp/internal/transport/landing"
	"github.com/decamp/decamp/internal/transport/nfc"
)

const (
	budgetVMs   = 4               // number of VMs, with one disk each
	budgetSize  = 8 << 30         // size of each disk in bytes: more than is copied in the time; 4 s of it run without a budget
	budgetSpan  = 6 * time.Second // duration of each measurement
	budgetStart = 2 * time.Second // time for opening all connections
	budgetTurn  = time.Second     // time until a change must be in effect
	budgetFree  = 2 * time.Second // duration of the measurement without a budget
	budgetName  = "link:bench"    // name of the budget

	narrowBudget = 50e6  // first and last budget in bytes per second
	wideBudget   = 300e6 // second budget in bytes per second; this machine copies twice that without a budget
	budgetStep   = 10e6  // unit of a reduced second budget in bytes per second
)

// budgetFigures copies four VMs under one budget with each transport, and changes the
// budget meanwhile.
func budgetFigures(ctx context.Context, b *bench) error {
	var errs []error
	for _, by := range []string{"https", "nfc", "landing"} {
		errs = append(errs, budgetFigure(ctx, b, by))
	}
	return errors.Join(errs...)
}

// budgetJob is the input of childBudget.
type budgetJob struct {
	Lab     labFacts `json:"lab"`     // emulated host
	By      string   `json:"by"`      // name of the transport
	VMs     []string `json:"vms"`     // names of the VMs
	Dir     string   `json:"dir"`     // folder for the landing
	Portmap string   `json:"portmap"` // address of the landing's port mapper
}

// budgetResult contains rate and fairness for each budget.
type budgetResult struct {
	measurement
	Free  float64   `json:"free"`  // bytes per second of all VMs without a budget
	Set   []int64   `json:"set"`   // budgets in their order, in bytes per second
	Rates []float64 `json:"rates"` // bytes per second of all VMs, by budget
	Fair  []float64 `json:"fair"`  // bytes of the slowest VM divided by those of the fastest, by budget
	Whole float64   `json:"whole"` // the same ratio over the whole time
}

// budgetFigure starts an emulated host and measures one transport.
func budgetFigure(ctx context.Context, b *bench, by string) error {
	dir, err := os.MkdirTemp(b.dir, "budget")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	// The landing's port mapper must have the address that the emulated host is
	// configured with.
	portmap, err := freeAddr(ctx)
	if err != nil {
		return err
	}
	cfg := lab.Config{NFS: lab.NFS{Portmap: portmap}}
	job := budgetJob{By: by, Dir: dir, Portmap: portmap}
	for i := range budgetVMs {
		name := benchVM + strconv.Itoa(i)
		job.VMs = append(job.VMs, name)
		cfg.VMs = append(cfg.VMs, lab.VM{Name: name, Disks: []lab.Disk{{Capacity: budgetSize, Fill: 100, Thick: true, Seed: uint64(i + 1)}}})
	}
	e, err := startLabWith(ctx, cfg)
	if err != nil {
		return err
	}
	defer e.stop()
	job.Lab = e.facts
	var r budgetResult
	if err := runJob(ctx, &r, "budget", job); err != nil {
		return err
	}
	budgetRows(b, by, r)
	return nil
}

// budgetRows adds the rows of one transport.
func budgetRows(b *bench, by string, r budgetResult) {
	worst, note := 0.0, ""
	for i, want := range r.Set {
		// A rate above the budget is as wrong as one below it.
		worst = max(worst, 100*math.Abs(r.Rates[i]/float64(want)-1))
		note += fmt.Sprintf("%.1f of %d MB/s, shared %.2f; ", r.Rates[i]/1e6, want/1e6, r.Fair[i])
	}
	b.atMost(5, Row{Figure: by + ", 4 VMs under one budget, changed live: worst deviation of their rate", Value: worst, Unit: "%",
		Note: note + fmt.Sprintf("each over %v, from %v after the change; %.0f MB/s without a budget", budgetSpan, budgetTurn, r.Free/1e6)})
	b.atLeast(0.8, Row{Figure: by + ", 4 VMs under one budget: slowest divided by fastest", Value: r.Whole, Unit: "x"})
}

// childBudget copies the first disk of each VM, discards the data, and changes the
// budget meanwhile.
func childBudget(ctx context.Context, args []string) error {
	var job budgetJob
	if err := json.Unmarshal([]byte(args[0]), &job); err != nil {
		return err
	}
	host, err := job.Lab.logIn(ctx, "esxi")
	if err != nil {
		return err
	}
	defer host.Close()
	p := &budgetRun{budgets: budget.New(budget.Wall()), came: make([]atomic.Int64, len(job.VMs))}
	t := job.newTransport(host)
	err = p.runAll(ctx, host, t, job.VMs)
	if err := errors.Join(err, t.Close()); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(p.done)
}

// newTransport returns the transport of the job.
func (job budgetJob) newTransport(host *esx.Session) transport.Transport {
	switch job.By {
	case "nfc":
		return nfc.New(host, nfcJob{Plain: true, Stored: true}.toOptions())
	case "landing":
		return landing.New(host, landing.Options{Dir: filepath.Join(job.Dir, "names"), Ports: nfs.Ports{NFS: "127.0.0.1:0", Portmap: job.Portmap}})
	}
	return https.New(host, https.Options{})
}

// budgetRun is a set of transfers under one budget.
type budgetRun struct {
	budgets *budget.Budgets // budgets of the run
	came    []atomic.Int64  // bytes written, by VM
	done    budgetResult    // result so far
}

// setBudget changes the rate of the budget, in bytes per second.
func (p *budgetRun) setBudget(rate int64) error {
	return p.budgets.Set(budgetName, budget.Week{Rate: rate, Zone: time.UTC})
}

// runAll starts the transfers, measures all rates, and stops the transfers. It fails if
// a transfer ends before.
func (p *budgetRun) runAll(ctx context.Context, host *esx.Session, t transport.Transport, vms []string) error {
	// The transfers would run for much longer than the measurements.
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var moving errgroup.Group
	for i, name := range vms {
		vm, err := host.VM(ctx, name)
		if err != nil {
			return err
		}
		moving.Go(func() error { return p.copyDisk(ctx, t, i, vm) })
	}
	var err error
	p.done.measurement, err = timeWork(func() error { return p.measureBudgets(ctx) })
	stop()
	stopped := moving.Wait()
	switch {
	case err != nil || errors.Is(stopped, context.Canceled):
	// A transfer that ended early leaves the budget to the others, which spoils the
	// rates.
	case stopped == nil:
		err = errors.New("the disks were moved before all budgets were measured: they are too small")
	default:
		err = stopped
	}
	return err
}

// copyDisk copies the first disk of VM i until ctx ends.
func (p *budgetRun) copyDisk(ctx context.Context, t transport.Transport, i int, vm *inventory.VM) error {
	d := &vm.Disks[0]
	// All VMs have the same weight.
	flow := p.budgets.Join(vm.Name, 1, budgetName)
	defer flow.Leave()
	_, err := t.Transfer(ctx, transport.Job{
		Disk: transport.Disk{VM: vm, Disk: d}, Target: countingNull{disk.NewNull(d.Capacity), &p.came[i]}, Pace: flow.Wait,
		ReadBack: func(context.Context) (disk.Source, error) { return disk.NewPattern(d.Capacity), nil }, // the result is not used
	})
	return err
}

// countingNull discards data and counts its bytes.
type countingNull struct {
	disk.Null
	came *atomic.Int64 // counter of the VM
}

// WriteAt is part of disk.Target.
func (n countingNull) WriteAt(ctx context.Context, b []byte, off int64) error {
	n.came.Add(int64(len(b)))
	return n.Null.WriteAt(ctx, b, off)
}

// measureBudgets measures the rate without a budget, then under each budget in turn. A
// budget above the rate of the machine is left out: the row would not show an effect of
// the budget.
func (p *budgetRun) measureBudgets(ctx context.Context) error {
	if err := sleep.For(ctx, budgetStart); err != nil {
		return err
	}
	_, free, err := p.measureFor(ctx, budgetFree)
	if err != nil {
		return err
	}
	p.done.Free = free
	// The wide budget must limit the transfers, so it is at most half of the free rate.
	wide := min(wideBudget, int64(free/2/budgetStep)*budgetStep)
	p.done.Set = []int64{narrowBudget, max(wide, 2*narrowBudget), narrowBudget}
	first := p.countBytes()
	for _, rate := range p.done.Set {
		if err := p.setBudget(rate); err != nil {
			return err
		}
		// The new rate must be in effect before the measurement starts.
		if err := sleep.For(ctx, budgetTurn); err != nil {
			return err
		}
		fair, came, err := p.measureFor(ctx, budgetSpan)
		if err != nil {
			return err
		}
		p.done.Rates = append(p.done.Rates, came)
		p.done.Fair = append(p.done.Fair, fair)
	}
	p.done.Whole, _ = fairShare(first, p.countBytes())
	return nil
}

// fairShare returns the smallest growth of a counter divided by the largest, and the
// sum of all.
func fairShare(before, after []int64) (fair float64, all int64) {
	came := slices.Clone(after)
	for i := range came {
		came[i] -= before[i]
		all += came[i]
	}
	return float64(slices.Min(came)) / float64(slices.Max(came)), all
}

// measureFor measures for a time. It returns the fairness between VMs and the total
// rate in bytes per second.
func (p *budgetRun) measureFor(ctx context.Context, span time.Duration) (fair, rate float64, err error) {
	before, began := p.countBytes(), time.Now()
	if err := sleep.For(ctx, span); err != nil {
		return 0, 0, err
	}
	took := time.Since(began).Seconds()
	fair, all := fairShare(before, p.countBytes())
	p.done.Bytes += all
	return fair, float64(all) / took, nil
}

// countBytes returns the current counters of all VMs.
func (p *budgetRun) countBytes() []int64 {
	list := make([]int64, len(p.came))
	for i := range p.came {
		list[i] = p.came[i].Load()
	}
	return list
}
