package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/lab"
)

const (
	planVMs   = 10_000 // number of VMs in the plan
	planHosts = 20     // number of their hosts

	overheadVMs = 1000 // number of VMs for the overhead per VM
)

// planFigures measures the time until a large plan copies. Its disks are slow, so that
// the preparation dominates. The vCenter uses the same processors; the note contains
// its share.
func planFigures(ctx context.Context, b *bench) error {
	cfg := vcenterOf(planHosts, vmsOf(planVMs, planHosts, lab.VM{Disks: []lab.Disk{{Capacity: 64 << 20, Fill: 100}}}))
	cfg.Limits.DatastoreRate = 1 << 20
	e, err := startLabWith(ctx, cfg)
	if err != nil {
		return err
	}
	defer e.stop()
	if err := listAlone(ctx, b, e); err != nil {
		return err
	}
	return errors.Join(
		beginningFigures(ctx, b, e, "an expression chooses", moveSpec{name: "chosen"}),
		beginningFigures(ctx, b, e, "each is named", moveSpec{name: "named", vms: namedVMs(cfg.VMs)}))
}

// listAlone measures the time until a minimal client has read all VMs, which is the
// limit of the source.
func listAlone(ctx context.Context, b *bench, e *emulated) error {
	c, err := newRawClient(e.facts)
	if err != nil {
		return err
	}
	cpu := processCPU(e.cmd.Process.Pid)
	first, last, vms, err := c.listVMs(ctx, e.facts)
	if err == nil && vms != planVMs {
		err = fmt.Errorf("the emulated vCenter lists %d VMs", vms)
	}
	if err != nil {
		return err
	}
	b.addRow(Row{Figure: "plan of 10,000 VMs: the emulated vCenter alone lists them, into nothing", Value: last, Unit: "s",
		Note: fmt.Sprintf("the first page of 500 after %.2f s; %.1f CPU s of the vCenter", first, processCPU(e.cmd.Process.Pid)-cpu)})
	return nil
}

// namedVMs returns the part of a plan file that lists the VMs by name.
func namedVMs(vms []lab.VM) string {
	text := "vms:\n"
	for _, vm := range vms {
		text += "  - vm: " + vm.Name + "\n"
	}
	return text
}

// beginningFigures measures the time until a plan of all VMs copies the first, and
// until it has queued all.
func beginningFigures(ctx context.Context, b *bench, e *emulated, how string, spec moveSpec) error {
	d, err := b.newWorkspace(ctx)
	if err != nil {
		return err
	}
	defer d.remove()
	path, err := d.writePlan(e.facts, "vcenter", spec)
	if err != nil {
		return err
	}
	// The vCenter has used processor time for earlier figures.
	t := &planStart{seen: map[fleetdb.Key]bool{}, vcenter: e.cmd.Process.Pid, before: processCPU(e.cmd.Process.Pid)}
	p, err := d.startProgram(ctx, vmLines(t.addVM), "plan", "run", path, "--json")
	if err != nil {
		return err
	}
	defer p.stop()
	t.readOutput(p)
	if err := p.waitUntil(ctx, time.Minute, "all VMs are queued", t.isComplete); err != nil {
		return fmt.Errorf("%w (%d VMs)", err, t.countListed())
	}
	_, peak := p.memoryBytes()
	b.atMost(2, Row{Figure: "plan of 10,000 VMs, " + how + ": from plan run to the first transfer", Value: t.first.at.Sub(p.began).Seconds(), Unit: "s",
		Note: t.first.String()})
	b.atMost(10, Row{Figure: "plan of 10,000 VMs, " + how + ": from plan run to all of them queued", Value: t.last.at.Sub(p.began).Seconds(), Unit: "s",
		Note: fmt.Sprintf("times of its output; %s; decamp took %d MiB at most", t.last, peak>>20)})
	return nil
}

// planStart collects the output of plan run until all VMs are listed.
type planStart struct {
	vcenter int     // process ID of the emulated vCenter
	before  float64 // processor seconds that the vCenter had used at the start

	mu          sync.Mutex           // protects the fields below
	decamp      *program             // process of decamp; nil before readOutput
	seen        map[fleetdb.Key]bool // VMs in the output so far
	first, last cpuSpent             // first VM that copies, and last VM that is queued
}

// cpuSpent is a time with the processor seconds that both processes have used until
// then.
type cpuSpent struct {
	at              time.Time // time of the event; zero if it did not occur yet
	decamp, vcenter float64   // processor seconds of both processes
}

// String returns the processor times for the note of a row.
func (s cpuSpent) String() string {
	return fmt.Sprintf("until then %.1f CPU s of decamp, %.1f of the emulated vCenter", s.decamp, s.vcenter)
}

// readOutput sets the process whose processor time counts.
func (t *planStart) readOutput(p *program) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.decamp = p
}

// measureNow returns the current time and usage. mu must be held.
func (t *planStart) measureNow() cpuSpent {
	s := cpuSpent{at: time.Now(), vcenter: processCPU(t.vcenter) - t.before}
	if t.decamp != nil {
		s.decamp = t.decamp.cpuSeconds()
	}
	return s
}

// addVM processes a VM of the output.
func (t *planStart) addVM(vm fleetdb.VM) {
	t.mu.Lock()
	defer t.mu.Unlock()
	// The first VM in the step copy is the first transfer.
	if vm.Step == "copy" && t.first.at.IsZero() {
		t.first = t.measureNow()
	}
	if t.seen[vm.Key] {
		return
	}
	t.seen[vm.Key] = true
	if len(t.seen) == planVMs {
		t.last = t.measureNow()
	}
}

// isComplete reports whether a VM copies and all VMs are queued.
func (t *planStart) isComplete() (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.first.at.IsZero() && !t.last.at.IsZero(), nil
}

// countListed returns the number of VMs in the output so far.
func (t *planStart) countListed() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.seen)
}

// overheadFigures measures the time per VM in addition to its bytes. decamp runs on one
// core.
func overheadFigures(ctx context.Context, b *bench) error {
	const hosts = 8
	e, err := startLabWith(ctx, vcenterOf(hosts, vmsOf(overheadVMs, hosts, lab.VM{Disks: []lab.Disk{{Capacity: 1 << 20}}})))
	if err != nil {
		return err
	}
	defer e.stop()
	d, err := b.newWorkspace(ctx)
	if err != nil {
		return err
	}
	defer d.remove()
	// decamp runs on the last core. The emulated vCenter may use all cores.
	d.wrapped = []string{"taskset", "-c", fmt.Sprint(runtime.NumCPU() - 1)}
	path, err := d.writePlan(e.facts, "vcenter", moveSpec{name: "small"})
	if err != nil {
		return err
	}
	p, err := d.startProgram(ctx, nil, "plan", "run", path)
	if err != nil {
		return err
	}
	defer p.stop()
	if err := p.wait(); err != nil {
		return err
	}
	wall := time.Since(p.began)
	usage := p.cmd.ProcessState
	cpu := usage.UserTime() + usage.SystemTime()
	b.atMost(50, Row{Figure: "1,000 cold VMs of 1 MiB, empty, on one core: wall for each", Value: float64(wall.Milliseconds()) / overheadVMs, Unit: "ms",
		Note: fmt.Sprintf("whole pipeline, taskset to one core; %.0f ms of it processor time", float64(cpu.Milliseconds())/overheadVMs)})
	return nil
}
