package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/transport"
	"github.com/decamp/decamp/internal/transport/https"
)

const (
	connCap      = 55_000_000  // bytes per second of one connection, as measured on real hosts
	datastoreCap = 300_000_000 // bytes per second of a datastore

	httpsRuns = 3 // number of runs; odd, because the median counts
)

// httpsFigures measures the transport https with an emulated ESXi host: without limits
// to Null, which is the source alone (part writers measures the target alone), with the
// limits of a real host next to other programs, and with a sparse disk.
func httpsFigures(ctx context.Context, b *bench) error {
	return errors.Join(
		httpsUncapped(ctx, b),
		httpsCapped(ctx, b),
		httpsSparse(ctx, b),
	)
}

// pullJob is the input of childPull.
type pullJob struct {
	Lab      labFacts `json:"lab"`      // emulated host
	Path     string   `json:"path"`     // path of the image; empty discards the data
	Format   string   `json:"format"`   // format of the image
	Manifest bool     `json:"manifest"` // write a manifest
}

// pullHTTPS runs childPull and removes the image.
func pullHTTPS(ctx context.Context, e *emulated, job pullJob) (measurement, error) {
	job.Lab = e.facts
	spec, err := json.Marshal(job)
	if err != nil {
		return measurement{}, err
	}
	if job.Path != "" {
		defer os.Remove(job.Path)
	}
	var t measurement
	return t, runChild(ctx, &t, "pull", string(spec))
}

// pullHTTPSRepeatedly repeats a copy and returns the medians of rate and processor
// time.
func pullHTTPSRepeatedly(ctx context.Context, e *emulated, job pullJob) (rate, cpu float64, err error) {
	return repeatMedian(func() (rate, cpu float64, err error) {
		t, err := pullHTTPS(ctx, e, job)
		return t.rate(), t.cpuPerGiB(), err
	})
}

// repeatMedian measures httpsRuns times. It returns the medians of MB/s and of
// processor seconds per GiB.
func repeatMedian(measure func() (rate, cpu float64, err error)) (rate, cpu float64, err error) {
	var rates, cpus []float64
	for range httpsRuns {
		rate, cpu, err := measure()
		if err != nil {
			return 0, 0, err
		}
		rates, cpus = append(rates, rate), append(cpus, cpu)
	}
	return median(rates), median(cpus), nil
}

// httpsUncapped measures the processor time of the client without limits.
func httpsUncapped(ctx context.Context, b *bench) error {
	e, err := startLab(ctx, lab.Disk{Capacity: 4 << 30, Fill: 100, Thick: true}, lab.Limits{})
	if err != nil {
		return err
	}
	defer e.stop()
	note := func(rate float64) string { return fmt.Sprintf("%.0f MB/s with the lab on the same cores", rate) }
	rate, cpu, err := pullHTTPSRepeatedly(ctx, e, pullJob{})
	if err != nil {
		return err
	}
	row := Row{Figure: "https uncapped, to Null: client CPU", Value: cpu, Unit: "CPU s/GiB", Note: note(rate)}
	// The peers run once each, with emulated hosts of their own configuration.
	row.Peers = uncappedPeers(ctx)
	b.atMost(0.75, row)
	image := filepath.Join(b.dir, "pull.raw")
	if rate, cpu, err = pullHTTPSRepeatedly(ctx, e, pullJob{Path: image, Format: "raw", Manifest: true}); err != nil {
		return err
	}
	b.atMost(1.7, Row{Figure: "https with manifest, into a raw file: client CPU", Value: cpu, Unit: "CPU s/GiB", Note: note(rate)})
	image = filepath.Join(b.dir, "pull.qcow2")
	if rate, cpu, err = pullHTTPSRepeatedly(ctx, e, pullJob{Path: image, Format: "qcow2", Manifest: true}); err != nil {
		return err
	}
	b.addRow(Row{Figure: "https with manifest, into a qcow2 file: client CPU", Value: cpu, Unit: "CPU s/GiB", Note: note(rate)})
	return nil
}

// httpsCapped measures the rate and the memory with the limits of a real host.
func httpsCapped(ctx context.Context, b *bench) error {
	limits := lab.Limits{ConnRate: connCap, DatastoreRate: datastoreCap}
	e, err := startLab(ctx, lab.Disk{Capacity: 8 << 30, Fill: 100, Thick: true}, limits)
	if err != nil {
		return err
	}
	defer e.stop()
	t, err := pullHTTPS(ctx, e, pullJob{Path: filepath.Join(b.dir, "capped.raw"), Format: "raw", Manifest: true})
	if err != nil {
		return err
	}
	row := Row{Figure: "https capped at 55 MB/s a connection, 300 MB/s a datastore: share of the cap",
		Value: 100 * t.rate() / (datastoreCap / 1e6), Unit: "%",
		Note: fmt.Sprintf("%.1f MB/s into a raw file with manifest, %.2f CPU s/GiB, %s", t.rate(), t.cpuPerGiB(), t.Note)}
	row.Peers = cappedPeers(ctx, limits)
	b.atLeast(97, row)
	b.atMost(128, Row{Figure: "https at 300 MB/s: peak memory", Value: float64(t.Peak) / (1 << 20), Unit: "MiB"})
	return nil
}

// httpsSparse measures the bytes on the network for a disk with 25 % data.
func httpsSparse(ctx context.Context, b *bench) error {
	e, err := startLab(ctx, lab.Disk{Capacity: 8 << 30, Fill: 25, Seed: 1}, lab.Limits{})
	if err != nil {
		return err
	}
	defer e.stop()
	before, err := e.bytesSent(ctx)
	if err != nil {
		return err
	}
	t, err := pullHTTPS(ctx, e, pullJob{Path: filepath.Join(b.dir, "sparse.raw"), Format: "raw", Manifest: true})
	if err != nil {
		return err
	}
	after, err := e.bytesSent(ctx)
	if err != nil {
		return err
	}
	// A transport without an allocation map would send the provisioned size.
	share := float64(after-before) / float64(e.facts.Allocated)
	b.atMost(1.01, Row{Figure: "https, sparse disk with a map: bytes on the wire", Value: share, Unit: "x allocated",
		Note: fmt.Sprintf("%.2f of %.0f GiB allocated; %.0f MB/s of virtual disk",
			float64(e.facts.Allocated)/(1<<30), float64(e.facts.Size)/(1<<30), float64(e.facts.Size)/1e6/t.Seconds),
		Peers: []Peer{{Name: "curl, aria2c, govc, nbdkit", Value: float64(e.facts.Size) / float64(e.facts.Allocated), Note: "all provisioned bytes: they have no map"}}})
	return nil
}

// childPull copies the emulated host's disk with decamp's code.
func childPull(ctx context.Context, args []string) (measurement, error) {
	var job pullJob
	if err := json.Unmarshal([]byte(args[0]), &job); err != nil {
		return measurement{}, err
	}
	host, err := job.Lab.logIn(ctx, "esxi")
	if err != nil {
		return measurement{}, err
	}
	defer host.Close()
	vm, err := host.VM(ctx, benchVM)
	if err != nil {
		return measurement{}, err
	}
	pull := https.New(host, https.Options{})
	defer pull.Close()
	src, err := pull.Open(ctx, transport.Disk{VM: vm, Disk: &vm.Disks[0]})
	if err != nil {
		return measurement{}, err
	}
	defer src.Close()
	return job.pullInto(ctx, src)
}

// pullInto copies src to the destination of the job.
func (job pullJob) pullInto(ctx context.Context, src *https.Source) (t measurement, err error) {
	var dst disk.Target = disk.NewNull(src.Size())
	if job.Path != "" {
		if dst, err = createImage(job.Format, job.Path, src.Size()); err != nil {
			return measurement{}, err
		}
	}
	defer dst.Close()
	log, done, err := tempManifest(job.Manifest, src.Size())
	if err != nil {
		return measurement{}, err
	}
	defer done()
	t, err = copyTimed(ctx, src, dst, ledgerOf(log))
	t.Wire = src.Report().Body
	t.Note = fmt.Sprintf("%d requests, map %s", src.Report().Requests, src.Report().Map)
	return t, err
}
