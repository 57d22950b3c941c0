package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/lab"
)

const (
	takeoverVMs   = 20              // number of VMs
	takeoverKills = 3               // number of kills; the time depends on when leases were renewed last
	takeoverRate  = 200e6           // bytes per second of all; with a slow source, restarted VMs wait long for their first byte
	takeoverDisk  = 2 << 30         // size of each VM's disk, all of it zeros that are read: VMs do not end meanwhile, and fill no disk
	takeoverLong  = 3 * time.Minute // limit until all VMs copy
	takeoverPlan  = "taken"         // name of the plan
)

// takeoverFigures kills one of two workers for the same folder, then the worker that
// took over, and so on.
func takeoverFigures(ctx context.Context, b *bench) error {
	db, err := startDatabase()
	if err != nil {
		return err
	}
	defer db.stop()
	cfg := vcenterOf(cappedHosts, vmsOf(takeoverVMs, cappedHosts, lab.VM{Disks: []lab.Disk{{Capacity: takeoverDisk, Thick: true}}}))
	cfg.Limits.DatastoreRate = takeoverRate // all are on one datastore
	s, err := b.newSourceSetup(ctx, cfg)
	if err != nil {
		return err
	}
	defer s.close()
	s.database = db.url
	path, err := s.writePlan(moveSpec{name: takeoverPlan})
	if err != nil {
		return err
	}
	r, err := s.openFleetDB(ctx)
	if err != nil {
		return err
	}
	defer r.Close()
	k := &workerSet{sourceSetup: s, fleetDB: r, workers: map[string]*program{}}
	defer k.stop()
	for _, name := range []string{"first", "second"} { // the first one schedules
		if err := k.startWorker(ctx, name); err != nil {
			return err
		}
	}
	if err := s.runProgram(ctx, "plan", "run", path, "--detach"); err != nil {
		return err
	}
	return takeOverRepeatedly(ctx, b, k)
}

// takeOverRepeatedly kills the workers in turn and adds the row with the longest
// takeover.
func takeOverRepeatedly(ctx context.Context, b *bench, k *workerSet) error {
	moving := time.Now()
	if err := k.waitCopying(ctx, k.workers["first"], time.Time{}, "first", "second"); err != nil {
		return err
	}
	took := time.Since(moving)
	var all []takeover
	// The workers swap their roles after each kill.
	victim, heir := "first", "second"
	for range takeoverKills {
		t, err := k.killWorker(ctx, victim, heir)
		if err != nil {
			return err
		}
		all = append(all, t)
		if err := k.startWorker(ctx, victim); err != nil {
			return err
		}
		victim, heir = heir, victim
	}
	worst := slices.MaxFunc(all, func(a, b takeover) int { return int(a.moved - b.moved) })
	b.atMost(10, Row{Figure: "worker killed, which schedules as well: all of its VMs copied by another, the longest of three", Value: worst.moved.Seconds(), Unit: "s",
		Note: fmt.Sprintf("%v; of %d VMs, which were all copied %.0f s after plan run", all, takeoverVMs, took.Seconds())})
	return nil
}

// takeover is the result of one kill. Times start with the kill.
type takeover struct {
	vms     int           // VMs of the killed worker
	noticed time.Duration // until the first of the VMs was no longer assigned to it
	moved   time.Duration // until another worker had copied data of each of them
}

// String describes the takeover for the note of a row.
func (t takeover) String() string {
	return fmt.Sprintf("%d VMs noticed after %.1f s, copied on after %.1f", t.vms, t.noticed.Seconds(), t.moved.Seconds())
}

// workerSet is a set of workers with one folder, some of which are killed.
type workerSet struct {
	*sourceSetup
	fleetDB *fleetdb.Database   // fleet database
	workers map[string]*program // workers by name
}

// stop ends all workers.
func (k *workerSet) stop() {
	for p := range maps.Values(k.workers) {
		p.stop()
	}
}

// startWorker starts a worker with a separate state directory, and waits until it is
// registered.
func (k *workerSet) startWorker(ctx context.Context, name string) error {
	own := *k.workspace
	// Workers of one machine need separate state directories.
	own.dir = filepath.Join(own.dir, name)
	if err := os.MkdirAll(own.dir, 0o700); err != nil {
		return err
	}
	p, err := own.startProgram(ctx, nil, "worker", "--join", k.database, "--offer", k.vms, "--name", name, "--log-file", filepath.Join(own.dir, "worker.log"))
	if err != nil {
		return err
	}
	k.workers[name] = p
	return p.waitUntil(ctx, time.Minute, name+" joins", func() (bool, error) {
		all, err := k.fleetDB.Workers.List(ctx)
		return slices.ContainsFunc(all, func(w fleetdb.Worker) bool { return w.Name == name && w.Alive }), err
	})
}

// killWorker kills a worker, and waits until another worker copies its VMs.
func (k *workerSet) killWorker(ctx context.Context, victim, heir string) (t takeover, err error) {
	vms, err := k.fleetDB.VMs.List(ctx, fleetdb.Query{Plan: takeoverPlan})
	if err != nil {
		return t, err
	}
	if t.vms = ownedBy(vms, victim); t.vms == 0 {
		return t, fmt.Errorf("%s has no VM; %s", victim, k.describeVMs(ctx))
	}
	// Progress reports have the time of the database, not of this process.
	since, err := k.fleetDB.Now(ctx)
	if err != nil {
		return t, err
	}
	killed := time.Now()
	k.workers[victim].kill()
	err = k.workers[heir].waitUntil(ctx, takeoverLong, heir+" takes over", func() (bool, error) {
		vms, err := k.fleetDB.VMs.List(ctx, fleetdb.Query{Plan: takeoverPlan})
		return ownedBy(vms, victim) < t.vms, err
	})
	t.noticed = time.Since(killed)
	if err == nil {
		err = k.waitCopying(ctx, k.workers[heir], since, heir)
	}
	t.moved = time.Since(killed)
	return t, err
}

// waitCopying waits until one of the workers has copied data of each VM after since. A
// progress report of a VM means that its worker copied data just before.
func (k *workerSet) waitCopying(ctx context.Context, p *program, since time.Time, by ...string) error {
	err := p.waitUntil(ctx, takeoverLong, "all VMs are copied", func() (bool, error) {
		vms, err := k.fleetDB.VMs.List(ctx, fleetdb.Query{Plan: takeoverPlan})
		if err != nil {
			return false, err
		}
		told, err := k.fleetDB.Progress.List(ctx, takeoverPlan)
		if err != nil {
			return false, err
		}
		fresh := map[fleetdb.Key]bool{}
		for _, t := range told {
			fresh[t.Key] = t.At.After(since)
		}
		n := 0
		for _, vm := range vms {
			if slices.Contains(by, vm.Worker) && vm.State == fleetdb.Running && fresh[vm.Key] {
				n++
			}
		}
		return n == takeoverVMs, err
	})
	if err != nil {
		return fmt.Errorf("%w; %s", err, k.describeVMs(ctx))
	}
	return nil
}

// ownedBy returns the number of VMs that are assigned to a worker.
func ownedBy(vms []fleetdb.VM, worker string) (n int) {
	for _, vm := range vms {
		if vm.Worker == worker && (vm.State == fleetdb.Running || vm.State == fleetdb.Assigned) {
			n++
		}
	}
	return n
}

// describeVMs returns the states of the VMs, for errors.
func (k *workerSet) describeVMs(ctx context.Context) string {
	vms, err := k.fleetDB.VMs.List(ctx, fleetdb.Query{Plan: takeoverPlan})
	if err != nil {
		return err.Error()
	}
	count := map[string]int{}
	for _, vm := range vms {
		why := ""
		if vm.Failure != nil {
			why = vm.Failure.Text
		}
		count[strings.Join(strings.Fields(fmt.Sprintln(vm.Worker, vm.State, vm.Step, vm.WaitReason, why)), " ")]++
	}
	return fmt.Sprintf("%d VMs: %v", len(vms), count)
}
