package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/fleetkey"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/workflow"
)

const (
	idleEach = 10_000           // number of completed VMs, and of VMs that never started
	idleSpan = 30 * time.Second // duration of the measurement
)

// idleFigures measures an idle server with many records.
func idleFigures(ctx context.Context, b *bench) error {
	d, err := b.newWorkspace(ctx)
	if err != nil {
		return err
	}
	defer d.remove()
	stock := stockJob{State: d.stateDir(), URL: d.databaseURL(), Folder: d.vms}
	for _, name := range []string{"done", "later"} {
		path, err := d.writePlan(unusedHost, "esxi", moveSpec{name: name})
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		stock.Plans = append(stock.Plans, string(text))
	}
	var filled measurement
	if err := runJob(ctx, &filled, "stock", stock); err != nil {
		return err
	}
	p, err := d.startServe(ctx, "--offer", d.vms)
	if err != nil {
		return err
	}
	defer p.stop()
	// The program serves now; it may still read the records.
	up := time.Since(p.began)
	if err := pauseFor(ctx, 10*time.Second); err != nil { // until it has read everything
		return err
	}
	share, err := p.coreShare(ctx, idleSpan)
	if err != nil {
		return err
	}
	now, peak := p.memoryBytes()
	note := fmt.Sprintf("10,000 finished runs with their records, 10,000 VMs of a paused plan; serves %.1f s after its start", up.Seconds())
	b.atMost(150, Row{Figure: "idle server: resident", Value: float64(now) / (1 << 20), Unit: "MiB", Note: fmt.Sprintf("%s; %d MiB at most", note, peak>>20)})
	b.atMost(3, Row{Figure: "idle server: of one core", Value: 100 * share, Unit: "%", Note: fmt.Sprintf("over %v; records made in %.0f s", idleSpan, filled.Seconds)})
	return nil
}

// unusedHost is a host that is never connected to.
var unusedHost = labFacts{Addr: "192.0.2.1:443", User: "root", Fingerprint: strings.TrimSuffix(strings.Repeat("00:", 32), ":")}

// stockJob is the input of childStock.
type stockJob struct {
	State  string   `json:"state"`  // state directory to fill
	URL    string   `json:"url"`    // URL of the fleet database
	Folder string   `json:"folder"` // destination of the VMs
	Plans  []string `json:"plans"`  // texts of the completed plan and of the paused plan
}

// childStock fills a state directory. The rows of the fleet database come from calls of
// a scheduler and a worker, the records from the workflow engine, with the steps of a
// cold run and their results.
func childStock(ctx context.Context, args []string) (measurement, error) {
	var job stockJob
	if err := json.Unmarshal([]byte(args[0]), &job); err != nil {
		return measurement{}, err
	}
	if err := os.MkdirAll(job.State, 0o700); err != nil {
		return measurement{}, err
	}
	return timeWork(func() error {
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() error { return job.addRows(ctx) })
		g.Go(func() error { return job.addRecords(ctx) })
		return g.Wait()
	})
}

// planVMs returns the rows of a plan.
func (job stockJob) planVMs(plan string) []fleetdb.VM {
	vms := make([]fleetdb.VM, idleEach)
	for i := range vms {
		vms[i] = fleetdb.VM{
			Key: fleetdb.Key{Plan: plan, VM: fmt.Sprintf("vm-%d", i)}, Name: fmt.Sprintf("vm%05d", i), Seq: int64(i + 1),
			State: fleetdb.Queued, Requested: fleetdb.First, Source: "192.0.2.1:443", Host: hostOf(i % planHosts), Datastore: "datastore1",
			To: []string{"dir:" + job.Folder}, Runs: []string{stockRun(i)}, Disks: 1, Bytes: 8 << 30,
		}
	}
	return vms
}

// stockRun returns the ID of the run of VM i.
func stockRun(i int) string { return fmt.Sprintf("vm%05d-abcdef", i) }

// stockTTL is the expiry of leases, longer than the setup takes.
const stockTTL = time.Hour

// addRows adds one completed and one paused plan to the fleet database.
func (job stockJob) addRows(ctx context.Context) error {
	keys, err := fleetkey.Ensure(filepath.Join(job.State, fleetkey.FileName))
	if err != nil {
		return err
	}
	r, err := fleetdb.Open(ctx, fleetdb.Config{URL: job.URL, Keys: keys})
	if err != nil {
		return err
	}
	defer r.Close()
	for i, name := range []string{"done", "later"} {
		if _, err := r.Plans.Add(ctx, fleetdb.Plan{Name: name, Text: job.Plans[i], Folder: job.State, Role: "admin"}); err != nil {
			return err
		}
		if err := r.VMs.Add(ctx, job.planVMs(name)); err != nil {
			return err
		}
		if err := r.Plans.SetState(ctx, name, fleetdb.PlanRunning, nil); err != nil {
			return err
		}
	}
	// A paused plan keeps its VMs queued.
	if err := r.Plans.SetCommand(ctx, "later", fleetdb.Pause); err != nil {
		return err
	}
	if err := publishPlan(ctx, r, "done"); err != nil {
		return err
	}
	return r.Plans.SetState(ctx, "done", fleetdb.PlanEnded, nil)
}

// grantAll registers a worker and assigns all VMs of a plan to it. It returns both
// leases.
func grantAll(ctx context.Context, r *fleetdb.Database, plan string) (worker, scheduler fleetdb.Lease, granted []fleetdb.VM, err error) {
	vms, err := r.VMs.List(ctx, fleetdb.Query{Plan: plan})
	if err != nil {
		return worker, scheduler, nil, err
	}
	if worker, err = r.Workers.Join(ctx, fleetdb.Worker{Name: "bench", VMs: len(vms)}, stockTTL); err != nil {
		return worker, scheduler, nil, err
	}
	if scheduler, err = r.Leases.Acquire(ctx, "scheduler", "bench", stockTTL); err != nil {
		return worker, scheduler, nil, err
	}
	// The scheduler's lease authorizes the assignments.
	given := make([]fleetdb.Granted, len(vms))
	for i, vm := range vms {
		given[i] = fleetdb.Granted{Key: vm.Key, Worker: "bench"}
	}
	granted, err = r.Scheduling.Grant(ctx, scheduler, given)
	return worker, scheduler, granted, err
}

// publishPlan records that the VMs of a plan were migrated.
func publishPlan(ctx context.Context, r *fleetdb.Database, plan string) error {
	worker, scheduler, granted, err := grantAll(ctx, r, plan)
	if err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	// Rows of different VMs can be written concurrently.
	g.SetLimit(64)
	for _, vm := range granted {
		g.Go(func() error {
			c := fleetdb.Claim{Key: vm.Key, Worker: vm.Worker, Epoch: vm.Epoch}
			if err := r.Claims.Begin(gctx, c, []string{"storage"}); err != nil {
				return err
			}
			return r.Claims.Finish(gctx, c, fleetdb.End{State: fleetdb.Done})
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if err := r.Workers.Leave(ctx, worker); err != nil {
		return err
	}
	return r.Leases.Free(ctx, scheduler)
}

// stockSteps lists the steps of a cold run.
var stockSteps = []string{"preflight", "copy", "detect", "convert", "verify", "commit"}

// addRecords makes the workflow engine execute runs whose steps do nothing.
func (job stockJob) addRecords(ctx context.Context) error {
	e, err := workflow.Open(ctx, workflow.Config{Dir: job.State})
	if err != nil {
		return err
	}
	for _, name := range stockSteps {
		workflow.RegisterStep(e, name, func(_ context.Context, f migrate.Facts) (migrate.Facts, error) { return f, nil })
	}
	workflow.Register(e, "migrate", func(c *workflow.Context, f migrate.Facts) error {
		for _, name := range stockSteps {
			if err := c.Step(name, f, &f); err != nil {
				return err
			}
		}
		return nil
	})
	if err := e.Launch(); err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for i := range idleEach {
		g.Go(func() error {
			if err := e.Start(gctx, stockRun(i), "migrate", stockFacts(i)); err != nil {
				return err
			}
			return e.Wait(gctx, stockRun(i))
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return e.Close()
}

// stockFacts returns results of the size that the run of a small VM has.
func stockFacts(i int) migrate.Facts {
	vm := &inventory.VM{Ref: inventory.MoRef(fmt.Sprintf("vm-%d", i)), Name: fmt.Sprintf("vm%05d", i), UUID: fmt.Sprintf("42200b7e-5d1c-4c1f-9a55-%012d", i),
		Disks: []inventory.Disk{{Key: 2000, Capacity: 8 << 30}}}
	p := journal.New(&url.URL{Scheme: "esxi", Host: "192.0.2.1"}, vm, "dir:/srv/vm", "raw", "https", time.Now())
	return migrate.Facts{VM: vm, Images: []targets.Image{{Root: fmt.Sprintf("%064d", i)}}, Stages: []journal.StageTime{{}}, Warnings: []inventory.Warning{
		{Code: "note", Text: "a sentence about the VM " + string(p.ID)}}}
}
