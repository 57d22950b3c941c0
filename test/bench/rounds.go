package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/bitmap"
	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/transport"
	"github.com/decamp/decamp/internal/transport/nfc"
)

const (
	fleetHosts = 8    // number of hosts
	fleetRuns  = 3    // rounds of each size, in turn; odd, because the median counts
	fleetSlack = 1.05 // allowed ratio; two runs of the same size may differ by as much
	atOnce     = 4    // disks of one host that are read concurrently; the others wait with their snapshot
)

// hostSet is a set of emulated hosts in separate processes, whose guests write.
type hostSet struct {
	hosts  []*emulated // emulated hosts
	writes int64       // number of writes of each guest in a round
}

// fleetOf starts hosts with this number of VMs each. A VM has one disk of the given
// capacity.
func fleetOf(ctx context.Context, hosts, vms int, capacity lab.Bytes, writes int64) (hostSet, error) {
	f := hostSet{writes: writes}
	var cfg lab.Config
	for i := range vms {
		cfg.VMs = append(cfg.VMs, lab.VM{
			Name: fmt.Sprintf("vm%d", i), PoweredOn: true, ChangeTracking: true,
			Disks: []lab.Disk{{Capacity: capacity}},
			Guest: lab.Guest{Writes: lab.Writes{Seed: uint64(i), Spread: 100}},
		})
	}
	for range hosts {
		e, err := startLabWith(ctx, cfg)
		if err != nil {
			f.stop()
			return hostSet{}, err
		}
		f.hosts = append(f.hosts, e)
	}
	return f, nil
}

// stop ends all hosts.
func (f hostSet) stop() {
	for _, e := range f.hosts {
		e.stop()
	}
}

// runRound performs a precopy round of all VMs at once and discards the data.
func (f hostSet) runRound(ctx context.Context) (t measurement, err error) {
	job := roundsJob{Writes: f.writes}
	for _, e := range f.hosts {
		job.Labs = append(job.Labs, e.facts)
	}
	err = runJob(ctx, &t, "rounds", job)
	return t, err
}

// warmRound measures one precopy round of a disk with 1 % changes.
func warmRound(ctx context.Context, b *bench) error {
	f, err := fleetOf(ctx, 1, 1, 100<<30, (1<<30)/guestWrite)
	if err != nil {
		return err
	}
	defer f.stop()
	t, err := f.runRound(ctx)
	if err != nil {
		return err
	}
	b.atMost(1.05, Row{Figure: "warm round over nfc, 1 % of 100 GiB dirty: bytes read", Value: float64(t.Wire) / float64(t.Bytes), Unit: "x changed",
		Note: fmt.Sprintf("%d MiB by change tracking, in %.1f s, %.2f CPU s", t.Bytes>>20, t.Seconds, t.CPU)})
	return nil
}

// fleetFigures measures precopy rounds of 200 and of 400 disks at once, in turn.
func fleetFigures(ctx context.Context, b *bench) error {
	const vms, writes = 25, 8
	few, err := fleetOf(ctx, fleetHosts, vms, 1<<30, writes)
	if err != nil {
		return err
	}
	defer few.stop()
	many, err := fleetOf(ctx, fleetHosts, 2*vms, 1<<30, writes)
	if err != nil {
		return err
	}
	defer many.stop()
	var ratios []float64
	var one, two measurement
	// Both sizes run in turn, so that a slow phase of the machine affects both.
	for range fleetRuns {
		if one, err = few.runRound(ctx); err != nil {
			return err
		}
		if two, err = many.runRound(ctx); err != nil {
			return err
		}
		// The time per disk: the second set has twice as many disks.
		ratios = append(ratios, two.Seconds/one.Seconds/2)
	}
	b.atMost(fleetSlack, Row{Figure: "400 disks in parallel rounds on 8 hosts: time per disk", Value: median(ratios), Unit: "x that of 200 disks",
		Note: fmt.Sprintf("turns %.2f; in the last %.1f s for 400, %.1f for 200, %.2f and %.2f CPU s; snapshot, changes, %d MiB in all, removal",
			ratios, two.Seconds, one.Seconds, two.CPU, one.CPU, two.Bytes>>20)})
	return nil
}

// roundsJob is the input of childRounds.
type roundsJob struct {
	Labs   []labFacts `json:"labs"`   // labs whose VMs have one disk each
	Writes int64      `json:"writes"` // number of writes of each guest between the two snapshots
}

// childRounds performs one precopy round of all VMs at once and discards the data.
func childRounds(ctx context.Context, args []string) (t measurement, err error) {
	var job roundsJob
	if err := json.Unmarshal([]byte(args[0]), &job); err != nil {
		return t, err
	}
	var all []*roundOf
	var hosts []*roundsHost
	g, gctx := errgroup.WithContext(ctx)
	for _, facts := range job.Labs {
		h, err := dialRounds(ctx, facts)
		if err != nil {
			return t, err
		}
		defer h.close()
		hosts = append(hosts, h)
		vms, err := h.session.VMs(ctx)
		if err != nil {
			return t, err
		}
		for i := range vms {
			r := &roundOf{host: h, vm: &vms[i]}
			all = append(all, r)
			g.Go(func() error { return r.prepareRound(gctx, job.Writes) })
		}
	}
	if err := g.Wait(); err != nil {
		return t, err
	}
	before, err := readOver(ctx, hosts)
	if err != nil {
		return t, err
	}
	t, err = timeWork(func() error {
		g, ctx := errgroup.WithContext(ctx)
		for _, r := range all {
			g.Go(func() error { return r.runRound(ctx) })
		}
		return g.Wait()
	})
	for _, r := range all {
		t.Bytes += r.changed
	}
	after, readErr := readOver(ctx, hosts)
	t.Wire = after - before
	return t, errors.Join(err, readErr)
}

// readOver returns the number of disk bytes that the hosts have sent over NFC.
func readOver(ctx context.Context, hosts []*roundsHost) (n int64, err error) {
	for _, h := range hosts {
		s, err := h.facts.readStats(ctx)
		if err != nil {
			return 0, err
		}
		n += s.NFC.ReadBytes
	}
	return n, nil
}

// roundsHost is a session with an emulated host.
type roundsHost struct {
	facts   labFacts       // address and credentials
	session *esx.Session   // session with the API
	pull    *nfc.Transport // transport for all disks
	slots   chan struct{}  // semaphore of atOnce; never closed
}

// dialRounds logs in to an emulated host.
func dialRounds(ctx context.Context, facts labFacts) (*roundsHost, error) {
	s, err := facts.logIn(ctx, "esxi")
	if err != nil {
		return nil, err
	}
	return &roundsHost{facts: facts, session: s, pull: nfc.New(s, nfc.Options{}), slots: make(chan struct{}, atOnce)}, nil
}

// close closes the transport and the session.
func (h *roundsHost) close() {
	h.pull.Close()
	h.session.Close()
}

// roundOf is one VM whose disk was copied when it was empty, and was written to since.
type roundOf struct {
	host    *roundsHost                  // host of the VM
	vm      *inventory.VM                // VM with one disk
	since   map[int32]inventory.ChangeID // change IDs of the copied state
	changed int64                        // bytes of grains that changed, by change tracking
}

// prepareRound records the change IDs of the empty disk, and makes the guest write.
func (r *roundOf) prepareRound(ctx context.Context, writes int64) error {
	s := r.host.session
	first, err := s.CreateSnapshot(ctx, r.vm.Ref, esx.SnapshotSpec{Name: "first"})
	if err != nil {
		return err
	}
	if r.since, err = s.ChangeIDs(ctx, first); err != nil {
		return err
	}
	if err := s.RemoveSnapshot(ctx, r.vm.Ref, first, nil); err != nil {
		return err
	}
	return r.host.facts.writeGuest(ctx, r.vm.Name, writes)
}

// runRound performs a round like package migrate: create a snapshot, query the changes,
// copy them, and remove the snapshot.
func (r *roundOf) runRound(ctx context.Context) error {
	s, d := r.host.session, &r.vm.Disks[0]
	snapshot, err := s.CreateSnapshot(ctx, r.vm.Ref, esx.SnapshotSpec{Name: "round"})
	if err != nil {
		return err
	}
	grains := bitmap.New(d.Capacity, blockcopy.PatchGrain)
	if err := s.Changed(ctx, r.vm.Ref, snapshot, d.Key, r.since[d.Key], d.Capacity, grains.Set); err != nil {
		return err
	}
	for a := grains.Next(disk.Range{Len: d.Capacity}); !a.Empty(); a = grains.Next(disk.Range{Off: a.End(), Len: d.Capacity - a.End()}) {
		r.changed += a.Len
	}
	ledger, done, err := tempManifest(true, d.Capacity)
	if err != nil {
		return err
	}
	defer done()
	// The manifest of the first copy: the disk was empty.
	if err := ledger.Append(ctx, []manifest.Run{{Zeros: ledger.Chunks()}}); err != nil {
		return err
	}
	// Other disks of the host wait here, with their snapshot.
	r.host.slots <- struct{}{}
	_, err = r.host.pull.Transfer(ctx, transport.Job{
		Disk:   transport.Disk{VM: r.vm, Disk: d, Snapshot: snapshot},
		Target: disk.NewNull(d.Capacity), Manifest: ledger, Changed: grains,
		ReadBack: func(context.Context) (disk.Source, error) { return emptyDisk(d.Capacity), nil },
	})
	<-r.host.slots
	return errors.Join(err, s.RemoveSnapshot(ctx, r.vm.Ref, snapshot, nil))
}

// emptyDisk is a source of zeros; its value is the size in bytes.
type emptyDisk int64

// Size is part of disk.Source.
func (d emptyDisk) Size() int64 { return int64(d) }

// Hints is part of disk.Source.
func (d emptyDisk) Hints() disk.Hints { return disk.Hints{} }

// Close is part of disk.Source.
func (d emptyDisk) Close() error { return nil }

// ReadAt is part of disk.Source.
func (d emptyDisk) ReadAt(_ context.Context, p []byte, _ int64) error {
	clear(p)
	return nil
}

// Extents is part of disk.Source. It returns one zero extent.
func (d emptyDisk) Extents(_ context.Context, r disk.Range) ([]disk.Extent, error) {
	return []disk.Extent{{Range: r, Kind: disk.Zero}}, nil
}
