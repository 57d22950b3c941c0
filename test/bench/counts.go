package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/decamp/decamp/internal/lab"
)

// countFigures migrates large numbers of disks, plans and VMs until they are published.
func countFigures(ctx context.Context, b *bench) error {
	return errors.Join(moveManyDisks(ctx, b), moveManyDisksOfOneVM(ctx, b), moveManyPlans(ctx, b), moveManyWarmVMs(ctx, b))
}

// tinyDisk is a small disk with some data.
var tinyDisk = lab.Disk{Capacity: 1 << 20, Fill: 50}

// disksOf returns n small disks on as many controllers as they need.
func disksOf(n int) (disks []lab.Disk) {
	const perBus = 15 // PVSCSI's units
	for i := range n {
		d := tinyDisk
		d.Bus = int32(i / perBus)
		disks = append(disks, d)
	}
	return disks
}

// countMoved runs decamp with plans for one emulated vCenter, and reports the time
// until all of their VMs are published. steer is called after decamp started; it may be
// nil.
func countMoved(ctx context.Context, b *bench, figure string, cfg lab.Config, plans []moveSpec, steer func(*workspace, *program) error) error {
	s, err := b.newSourceSetup(ctx, cfg)
	if err != nil {
		return err
	}
	defer s.close()
	for _, m := range plans {
		// All plans are submitted before decamp starts, so that they start at the same
		// time.
		path, err := s.writePlan(m)
		if err == nil {
			err = s.runProgram(ctx, "plan", "run", path, "--detach")
		}
		if err != nil {
			return err
		}
	}
	p, err := s.startServe(ctx, "--offer", s.vms)
	if err != nil {
		return err
	}
	defer p.stop()
	if steer != nil {
		if err := steer(s.workspace, p); err != nil {
			return err
		}
	}
	if err := s.waitPlans(ctx, p, len(plans)); err != nil {
		return err
	}
	_, peak := p.memoryBytes()
	b.atMost(endedBy.Seconds(), Row{Figure: figure + ": all published", Value: time.Since(p.began).Seconds(), Unit: "s",
		Note: fmt.Sprintf("%d VMs in %d plans; %.1f CPU s, %d MiB at most", len(cfg.VMs), len(plans), p.cpuSeconds(), peak>>20)})
	return nil
}

// moveManyDisks migrates 100 VMs with 5 disks each.
func moveManyDisks(ctx context.Context, b *bench) error {
	cfg := vcenterOf(cappedHosts, vmsOf(100, cappedHosts, lab.VM{Disks: disksOf(5)}))
	return countMoved(ctx, b, "500 disks of one plan", cfg, []moveSpec{{name: "disks"}}, nil)
}

// moveManyDisksOfOneVM migrates one VM with 50 disks.
func moveManyDisksOfOneVM(ctx context.Context, b *bench) error {
	cfg := vcenterOf(1, vmsOf(1, 1, lab.VM{Disks: disksOf(50)}))
	return countMoved(ctx, b, "50 disks of one VM", cfg, []moveSpec{{name: "one"}}, nil)
}

// moveManyPlans migrates 40 plans of 5 VMs at once.
func moveManyPlans(ctx context.Context, b *bench) error {
	const plans, each = 40, 5
	cfg := vcenterOf(cappedHosts, vmsOf(plans*each, cappedHosts, lab.VM{Disks: disksOf(1)}))
	var specs []moveSpec
	for i := range plans {
		list := "vms:\n"
		for _, vm := range cfg.VMs[i*each : (i+1)*each] {
			list += "  - vm: " + vm.Name + "\n"
		}
		specs = append(specs, moveSpec{name: fmt.Sprintf("plan%02d", i), vms: list})
	}
	return countMoved(ctx, b, "40 plans at once", cfg, specs, nil)
}

// moveManyWarmVMs migrates 100 running VMs with 4 disks each.
func moveManyWarmVMs(ctx context.Context, b *bench) error {
	const vms, disks = 100, 4
	cfg := vcenterOf(cappedHosts, vmsOf(vms, cappedHosts, lab.VM{
		PoweredOn: true, ChangeTracking: true, Disks: disksOf(disks), Guest: lab.Guest{Writes: lab.Writes{Spread: 100}},
	}))
	return countMoved(ctx, b, "400 warm disks", cfg, []moveSpec{{name: "warm", warm: true}}, func(d *workspace, p *program) error {
		// All VMs finish their precopy first, and then cut over at the same time.
		if err := d.allWait(ctx, p, vms); err != nil {
			return err
		}
		return d.runProgram(ctx, "cutover", "warm")
	})
}
