package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/bitmap"
	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/plan"
	"github.com/decamp/decamp/internal/transport"
	"github.com/decamp/decamp/internal/transport/nfc"
)

const (
	guestWrite = 33 * 4 << 10 // bytes of a write of the lab's guest, on average

	fleetHosts = 8
	fleetRuns  = 3    // of each size, in turns; odd: the median counts
	fleetSlack = 1.05 // two runs of the same size differ by as much
	atOnce     = 4    // disks of one host that are read at the same time: the rest wait, frozen
)

// warmFigures measures a round of a warm migration without storage, and the outage of a whole
// one.
func warmFigures(ctx context.Context, b *bench) error {
	return errors.Join(b.warmRound(ctx), b.warmOutage(ctx, image.Raw), b.warmOutage(ctx, image.QCOW2))
}

// warmRound is one round of a disk of which 1 % changed.
func (b *bench) warmRound(ctx context.Context) error {
	var t taken
	if err := runJob(ctx, &t, "rounds", roundsJob{Hosts: 1, VMs: 1, Capacity: 100 << 30, Writes: (1 << 30) / guestWrite}); err != nil {
		return err
	}
	b.atMost(1.05, Row{Figure: "warm round over nfc, 1 % of 100 GiB dirty: bytes read", Value: float64(t.Wire) / float64(t.Bytes), Unit: "x changed",
		Note: fmt.Sprintf("%d MiB by change tracking, in %.1f s, %.2f CPU s with the lab in the same process", t.Bytes>>20, t.Seconds, t.CPU)})
	return nil
}

// fleetFigures does rounds of 200 and of 400 disks at once, in turns.
func fleetFigures(ctx context.Context, b *bench) error {
	var ratios []float64
	var few, many taken
	for range fleetRuns {
		job := roundsJob{Hosts: fleetHosts, VMs: 25, Capacity: 1 << 30, Writes: 8}
		if err := runJob(ctx, &few, "rounds", job); err != nil {
			return err
		}
		job.VMs *= 2
		if err := runJob(ctx, &many, "rounds", job); err != nil {
			return err
		}
		ratios = append(ratios, many.Seconds/few.Seconds/2)
	}
	b.atMost(fleetSlack, Row{Figure: "400 disks in parallel rounds on 8 hosts: time per disk", Value: median(ratios), Unit: "x that of 200 disks",
		Note: fmt.Sprintf("%.1f s for 400, %.1f for 200 in the last of %d turns; snapshot, changes, %d MiB in all, removal", many.Seconds, few.Seconds, fleetRuns, many.Bytes>>20)})
	return nil
}

// roundsJob is what childRounds is told.
type roundsJob struct {
	Hosts    int   `json:"hosts"`
	VMs      int   `json:"vms"` // on each host, of one disk
	Capacity int64 `json:"capacity"`
	Writes   int   `json:"writes"` // of the guest, between the two snapshots
}

// childRounds does one round of every VM at the same time, into nothing. The hosts are in
// this process: only they can say what their guests are to write.
func childRounds(ctx context.Context, args []string) (t taken, err error) {
	var job roundsJob
	if err := json.Unmarshal([]byte(args[0]), &job); err != nil {
		return t, err
	}
	log.SetOutput(io.Discard) // the simulator tells of every snapshot file that is there already
	all := make([]*roundOf, job.Hosts*job.VMs)
	var hosts []*roundsHost
	g, gctx := errgroup.WithContext(ctx)
	for range job.Hosts {
		h, err := startRounds(ctx, job)
		if err != nil {
			return t, err
		}
		defer h.close()
		for i := range job.VMs {
			at := len(hosts)*job.VMs + i
			g.Go(func() (err error) { all[at], err = h.prepare(gctx, fmt.Sprintf("vm%d", i), job.Writes); return err })
		}
		hosts = append(hosts, h)
	}
	if err := g.Wait(); err != nil {
		return t, err
	}
	for _, h := range hosts {
		h.lab.ResetStats()
	}
	t, err = timed(func() error {
		g, ctx := errgroup.WithContext(ctx)
		for _, r := range all {
			g.Go(func() error { return r.run(ctx) })
		}
		return g.Wait()
	})
	for _, r := range all {
		t.Bytes += r.changed
	}
	for _, h := range hosts {
		t.Wire += h.lab.Stats().NFC.ReadBytes
	}
	return t, err
}

// roundsHost is an emulated host and our session there.
type roundsHost struct {
	lab     *lab.Lab
	session *esx.Session
	pull    *nfc.Transport
	slots   chan struct{} // never closed
}

func startRounds(ctx context.Context, job roundsJob) (*roundsHost, error) {
	cfg := lab.Config{}
	for i := range job.VMs {
		cfg.VMs = append(cfg.VMs, lab.VM{
			Name: fmt.Sprintf("vm%d", i), PoweredOn: true, ChangeTracking: true,
			Disks: []lab.Disk{{Capacity: lab.Bytes(job.Capacity)}},
			Guest: lab.Guest{Writes: lab.Writes{Seed: uint64(i), Spread: 100}},
		})
	}
	l, err := lab.Start(ctx, cfg)
	if err != nil {
		return nil, err
	}
	h := &roundsHost{lab: l, slots: make(chan struct{}, atOnce)}
	h.session, err = labFacts{Addr: l.Addr(), User: l.User(), Password: l.Password(), Fingerprint: l.Fingerprint()}.dial(ctx, "esxi")
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	h.pull = nfc.New(h.session, nfc.Options{})
	return h, nil
}

func (h *roundsHost) close() {
	h.pull.Close()
	h.session.Close()
	h.lab.Close()
}

// roundOf is one VM whose disk was copied at a moment, when it was empty, and was written to
// since.
type roundOf struct {
	host    *roundsHost
	vm      *inventory.VM
	since   map[int32]inventory.ChangeID
	changed int64 // bytes of grains that changed, by change tracking
}

func (h *roundsHost) prepare(ctx context.Context, name string, writes int) (*roundOf, error) {
	vm, err := h.session.VM(ctx, name)
	if err != nil {
		return nil, err
	}
	first, err := h.session.CreateSnapshot(ctx, vm.Ref, esx.SnapshotSpec{Name: "first"})
	if err != nil {
		return nil, err
	}
	r := &roundOf{host: h, vm: vm}
	if r.since, err = h.session.ChangeIDs(ctx, first); err != nil {
		return nil, err
	}
	if err := h.session.RemoveSnapshot(ctx, vm.Ref, first, nil); err != nil {
		return nil, err
	}
	return r, h.lab.GuestWrites(name, writes)
}

// run is a round as package migrate does it: freeze, ask what changed, copy that, thaw.
func (r *roundOf) run(ctx context.Context) error {
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
	if err := ledger.Append(ctx, []manifest.Run{{Zeros: ledger.Chunks()}}); err != nil {
		return err
	}
	r.host.slots <- struct{}{}
	_, err = r.host.pull.Transfer(ctx, transport.Job{
		Disk:   transport.Disk{VM: r.vm, Disk: d, Snapshot: snapshot},
		Target: disk.NewNull(d.Capacity), Manifest: ledger, Changed: grains,
		ReadBack: func(context.Context) (disk.Source, error) { return emptyDisk(d.Capacity), nil },
	})
	<-r.host.slots
	return errors.Join(err, s.RemoveSnapshot(ctx, r.vm.Ref, snapshot, nil))
}

// emptyDisk reads as zeros.
type emptyDisk int64

func (d emptyDisk) Size() int64       { return int64(d) }
func (d emptyDisk) Hints() disk.Hints { return disk.Hints{} }
func (d emptyDisk) Close() error      { return nil }

func (d emptyDisk) ReadAt(_ context.Context, p []byte, _ int64) error {
	clear(p)
	return nil
}

func (d emptyDisk) Extents(_ context.Context, r disk.Range) ([]disk.Extent, error) {
	return []disk.Extent{{Range: r, Kind: disk.Zero}}, nil
}

// lastDelta is what the guest wrote since the last round when it is cut over.
const lastDelta = 256 << 20

// warmOutage migrates a VM warm with the real program, and measures from the moment at which
// its power-off is asked for until it is published. Starting it is the user's.
func (b *bench) warmOutage(ctx context.Context, format image.Format) error {
	dir, err := os.MkdirTemp(b.dir, "warm")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	l, err := lab.Start(ctx, lab.Config{VMs: []lab.VM{{
		Name: benchVM, PoweredOn: true, ChangeTracking: true,
		Disks: []lab.Disk{{Capacity: 16 << 30, Fill: 12, Seed: 1}},
		Guest: lab.Guest{Writes: lab.Writes{Seed: 1, Spread: 100}},
	}}})
	if err != nil {
		return err
	}
	defer l.Close()
	m := &warmRun{lab: l, dir: dir, format: format, decamp: filepath.Join(dir, "decamp")}
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", m.decamp, "./cmd/decamp").CombinedOutput(); err != nil {
		return fmt.Errorf("build decamp: %w: %s", err, lastLine(string(out)))
	}
	stages, err := m.outage(ctx)
	if err != nil {
		return err
	}
	b.atMost(10, Row{Figure: fmt.Sprintf("warm migration, 16 GiB disk, %s, last delta of 256 MiB: outage", format), Value: m.ended.Sub(m.off).Seconds(), Unit: "s + shutdown and boot",
		Note: "from power-off asked to published: " + stages})
	return nil
}

// warmRun is a migration by the real program.
type warmRun struct {
	lab    *lab.Lab
	dir    string
	format image.Format
	decamp string

	off, ended time.Time
}

func (m *warmRun) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, m.decamp, append(args, "--state", filepath.Join(m.dir, "state"))...)
	cmd.Env = append(os.Environ(), "DECAMP_PASSWORD_FILE="+filepath.Join(m.dir, "password"))
	cmd.Stderr = os.Stderr
	return cmd
}

// outage runs it, and says what took how long while the VM was off.
func (m *warmRun) outage(ctx context.Context) (stages string, err error) {
	vms := filepath.Join(m.dir, "vms")
	if err := errors.Join(os.Mkdir(vms, 0o755), os.WriteFile(filepath.Join(m.dir, "password"), []byte(m.lab.Password()+"\n"), 0o600)); err != nil {
		return "", err
	}
	cmd := m.command(ctx, "migrate", "esxi://"+m.lab.User()+"@"+m.lab.Addr(), benchVM, "--to", "dir:"+vms,
		"--warm", "--transport", "nfc", "--format", string(m.format), "--json", "--fingerprint", m.lab.Fingerprint())
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	events := bufio.NewScanner(out)
	events.Buffer(nil, 1<<20)
	for events.Scan() {
		var o struct{ Event plan.Event }
		if err := json.Unmarshal(events.Bytes(), &o); err != nil {
			return "", err
		}
		if err := m.follow(ctx, o.Event, &stages); err != nil {
			return "", errors.Join(err, cmd.Process.Kill(), cmd.Wait())
		}
	}
	if err := cmd.Wait(); err != nil {
		return "", fmt.Errorf("decamp migrate: %w", err)
	}
	return stages, nil
}

// follow has the guest write and the run cut over once it waits, and takes the times.
func (m *warmRun) follow(ctx context.Context, e plan.Event, stages *string) error {
	switch {
	case e.Kind == plan.StepBegan && e.Step == "wait":
		if err := m.lab.GuestWrites(benchVM, lastDelta/guestWrite); err != nil {
			return err
		}
		return m.command(ctx, "cutover", string(e.Run)).Run()
	case e.Kind == plan.StepBegan && e.Step == "power off":
		m.off, m.ended = e.Time, e.Time
	case e.Kind == plan.StepDone && !m.off.IsZero():
		*stages += fmt.Sprintf("%s %.1f s, ", e.Step, e.Time.Sub(m.ended).Seconds())
		m.ended = e.Time
	}
	return nil
}
