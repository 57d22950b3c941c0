package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/transport"
	"github.com/decamp/decamp/internal/transport/https"
)

const (
	cappedHosts = 8  // number of hosts
	cappedVMs   = 10 // number of VMs per host
	// Eight hosts of 300 MB/s are more than two cores can encrypt, decrypt and hash.
	// Rates and disks (1.2 GB) are divided by 75. The disks are small, so the fixed
	// cost of a VM and a plan weighs more than with disks of 60 GB.
	hostRate = 4e6      // bytes per second of each host
	hostDisk = 16 << 20 // size of each VM's disk, all of it data

	lookPause = 50 * time.Millisecond // interval of queries for the sent bytes
)

// hostFigures migrates ten VMs of each of eight hosts at once with decamp serve, and
// then the VMs of one host.
func hostFigures(ctx context.Context, b *bench) error {
	return errors.Join(hostsFigure(ctx, b, cappedHosts, 0.95), hostsFigure(ctx, b, 1, 0.97))
}

// hostsFigure measures n hosts. least is the required share of the sum of their rates.
func hostsFigure(ctx context.Context, b *bench, n int, least float64) error {
	hosts, err := cappedLabs(ctx, n)
	if err != nil {
		return err
	}
	defer hosts.stop()
	alone, err := hosts.intoNothing(ctx)
	if err != nil {
		return err
	}
	// The sum of the hosts' limits is the best possible rate.
	caps := float64(n) * hostRate
	b.addRow(Row{
		Figure: fmt.Sprintf("%d emulated hosts of %.0f MB/s, %d VMs each: read alone, into nothing", n, hostRate/1e6, cappedVMs),
		Value:  alone.rate() / caps, Unit: "x the sum of the caps",
		Note: fmt.Sprintf("%.0f MB/s, %.2f CPU s/GiB: below 1 this machine is the bound, and no pipeline can do better", alone.rate()/1e6, alone.cpu/(float64(alone.bytes)/(1<<30)))})
	moved, verified, err := moveByServe(ctx, b, hosts)
	if err != nil {
		return err
	}
	b.atLeast(least, Row{
		Figure: fmt.Sprintf("%d emulated hosts of %.0f MB/s, %d VMs each, whole pipeline: from the first byte to the last", n, hostRate/1e6, cappedVMs),
		Value:  moved.rate() / caps, Unit: "x the sum of the caps",
		Note: fmt.Sprintf("%.0f MB/s, %.0f ms of CPU for each VM; all verified and published %.1f s after the last byte; %.3f of the rate of reading alone",
			moved.rate()/1e6, 1000*moved.cpu/float64(n*cappedVMs), verified, moved.rate()/alone.rate())})
	return nil
}

// cappedLabs starts n hosts whose datastores send at most hostRate.
func cappedLabs(ctx context.Context, n int) (hostSet, error) {
	cfg := lab.Config{
		VMs:    vmsOf(cappedVMs, 0, lab.VM{Disks: []lab.Disk{{Capacity: hostDisk, Fill: 100, Thick: true}}}),
		Limits: lab.Limits{DatastoreRate: hostRate},
	}
	var f hostSet
	for i := range n {
		// VMs need different names.
		for k := range cfg.VMs { // all VMs go to one folder
			cfg.VMs[k].Name = fmt.Sprintf("host%d-vm%02d", i, k)
		}
		e, err := startLabWith(ctx, cfg)
		if err != nil {
			f.stop()
			return hostSet{}, err
		}
		f.hosts = append(f.hosts, e)
	}
	return f, nil
}

// sendRecord contains what a set of hosts sent during an operation.
type sendRecord struct {
	bytes       int64     // bytes sent
	first, last time.Time // times of the first and of the last byte
	cpu         float64   // processor seconds of the measured process
}

// rate returns bytes per second.
func (s sendRecord) rate() float64 { return float64(s.bytes) / s.last.Sub(s.first).Seconds() }

// followSending records what the hosts send until done is closed. Earlier bytes do not
// count.
func (f hostSet) followSending(ctx context.Context, done <-chan struct{}) (s sendRecord, err error) {
	before, err := f.bytesSent(ctx)
	if err != nil {
		return s, err
	}
	for {
		now, err := f.bytesSent(ctx)
		if err != nil {
			return s, err
		}
		at := time.Now()
		switch n := now - before; {
		case n == 0:
			s.first = at
		case n > s.bytes:
			s.bytes, s.last = n, at
		}
		select {
		case <-done:
			return s, nil
		case <-time.After(lookPause):
		}
	}
}

// bytesSent returns the number of disk bytes that the hosts have sent since their
// start.
func (f hostSet) bytesSent(ctx context.Context) (n int64, err error) {
	for _, e := range f.hosts {
		sent, err := e.bytesSent(ctx)
		if err != nil {
			return 0, err
		}
		n += sent
	}
	return n, nil
}

// followDuring records what the hosts send while do runs.
func (f hostSet) followDuring(ctx context.Context, do func() error) (s sendRecord, err error) {
	done := make(chan struct{})
	var following sync.WaitGroup
	var followErr error
	following.Go(func() { s, followErr = f.followSending(ctx, done) })
	err = do()
	close(done)
	following.Wait()
	return s, errors.Join(err, followErr)
}

// intoNothing reads all disks of all hosts at once and discards the data. This is the
// limit of the source.
func (f hostSet) intoNothing(ctx context.Context) (sendRecord, error) {
	var job roundsJob
	for _, e := range f.hosts {
		job.Labs = append(job.Labs, e.facts)
	}
	var t measurement
	s, err := f.followDuring(ctx, func() error { return runJob(ctx, &t, "drain", job) })
	s.cpu = t.CPU
	return s, err
}

// moveByServe migrates all VMs of the hosts with decamp serve. It returns what the
// hosts sent, and the seconds from the last byte until all VMs are published.
func moveByServe(ctx context.Context, b *bench, f hostSet) (s sendRecord, after float64, err error) {
	d, err := b.newWorkspace(ctx)
	if err != nil {
		return s, 0, err
	}
	defer d.remove()
	for i, e := range f.hosts {
		path, err := d.writePlan(e.facts, "esxi", moveSpec{name: fmt.Sprintf("host%d", i)})
		if err != nil {
			return s, 0, err
		}
		if err := d.runProgram(ctx, "plan", "run", path, "--detach"); err != nil {
			return s, 0, err
		}
	}
	var published time.Time
	var cpu float64
	s, err = f.followDuring(ctx, func() error {
		p, err := d.startServe(ctx, "--offer", d.vms)
		if err != nil {
			return err
		}
		defer p.stop()
		// The time and the usage are read before the program is stopped.
		err = d.waitPlans(ctx, p, len(f.hosts))
		published, cpu = time.Now(), p.cpuSeconds()
		return err
	})
	s.cpu = cpu
	return s, published.Sub(s.last).Seconds(), err
}

// childDrain reads all disks of all hosts and discards the data, ten disks of a host at
// once.
func childDrain(ctx context.Context, args []string) (measurement, error) {
	var job roundsJob
	if err := json.Unmarshal([]byte(args[0]), &job); err != nil {
		return measurement{}, err
	}
	return timeWork(func() error {
		g, ctx := errgroup.WithContext(ctx)
		for _, facts := range job.Labs {
			g.Go(func() error { return drainHost(ctx, facts) })
		}
		return g.Wait()
	})
}

// drainHost reads all disks of one host concurrently.
func drainHost(ctx context.Context, facts labFacts) error {
	host, err := facts.logIn(ctx, "esxi")
	if err != nil {
		return err
	}
	defer host.Close()
	vms, err := host.VMs(ctx)
	if err != nil {
		return err
	}
	pull := https.New(host, https.Options{})
	defer pull.Close()
	g, gctx := errgroup.WithContext(ctx)
	for i := range vms {
		g.Go(func() error {
			src, err := pull.Open(gctx, transport.Disk{VM: &vms[i], Disk: &vms[i].Disks[0]})
			if err != nil {
				return err
			}
			defer src.Close()
			_, err = copyTimed(gctx, src, disk.NewNull(src.Size()), nil)
			return err
		})
	}
	return g.Wait()
}
