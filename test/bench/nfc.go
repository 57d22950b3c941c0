package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/lab"
	wire "github.com/decamp/decamp/internal/nfc"
	"github.com/decamp/decamp/internal/transport"
	"github.com/decamp/decamp/internal/transport/nfc"
)

const (
	handleCap = 142_000_000 // bytes per second of one NFC session; VDDK reaches this with real hosts
	hostCap   = 505_000_000 // bytes per second of ten sessions with one host of 7.0.3

	nfcRuns = 3 // number of runs; odd, because the median counts
)

// nfcFigures measures the transport nfc with an emulated ESXi host: with the limits of
// a real host, without limits to Null in plain text and with TLS, and over a link of 1
// Gbit/s with compressible data.
func nfcFigures(ctx context.Context, b *bench) error {
	return errors.Join(
		nfcCapped(ctx, b),
		nfcUncapped(ctx, b),
		nfcLink(ctx, b),
	)
}

// nfcJob is the input of childNFC.
type nfcJob struct {
	Lab     labFacts `json:"lab"`     // emulated host
	Plain   bool     `json:"plain"`   // no TLS for data
	Handles int      `json:"handles"` // number of NFC sessions; 0 for the default
	Stored  bool     `json:"stored"`  // request no compression
}

// pullNFC copies to Null several times and returns the run with the median rate.
func pullNFC(ctx context.Context, e *emulated, count int, job nfcJob) (measurement, error) {
	job.Lab = e.facts
	var runs []measurement
	var rates []float64
	for range count {
		var t measurement
		if err := runJob(ctx, &t, "nfc", job); err != nil {
			return measurement{}, err
		}
		runs, rates = append(runs, t), append(rates, t.rate())
	}
	// The whole run is returned, so that its note and its memory belong to the rate.
	middle := median(rates)
	for _, t := range runs {
		if t.rate() == middle {
			return t, nil
		}
	}
	return runs[0], nil
}

// nfcLab starts an emulated host whose VM has one disk, with limits for NFC.
func nfcLab(ctx context.Context, d lab.Disk, rules lab.NFC) (*emulated, error) {
	return startLabWith(ctx, lab.Config{VMs: []lab.VM{{Name: benchVM, ChangeTracking: true, Disks: []lab.Disk{d}}}, NFC: rules})
}

// nfcCapped measures the rate with the limits of a real host.
func nfcCapped(ctx context.Context, b *bench) error {
	caps := lab.NFC{SessionRate: handleCap, HostRate: hostCap}
	one, err := pullOneHandle(ctx, caps)
	if err != nil {
		return err
	}
	e, err := nfcLab(ctx, lab.Disk{Capacity: 8 << 30, Fill: 100, Thick: true}, caps)
	if err != nil {
		return err
	}
	defer e.stop()
	four, err := pullNFC(ctx, e, nfcRuns, nfcJob{Plain: true})
	if err != nil {
		return err
	}
	encrypted, err := pullNFC(ctx, e, 1, nfcJob{})
	if err != nil {
		return err
	}
	b.atLeast(95, Row{
		Figure: "nfc, one disk, capped at 142 MB/s a handle and 505 MB/s a host: share of the host's cap",
		Value:  100 * four.rate() / (hostCap / 1e6), Unit: "%",
		Note:  fmt.Sprintf("%.0f MB/s with 4 handles, %.2f CPU s/GiB, %s; over TLS %.0f MB/s", four.rate(), four.cpuPerGiB(), four.Note, encrypted.rate()),
		Peers: []Peer{{Name: "one handle, as VDDK tools have", Value: 100 * one / (hostCap / 1e6), Note: fmt.Sprintf("%.0f MB/s", one)}},
	})
	return nil
}

// pullOneHandle returns the rate of a single session in MB/s.
func pullOneHandle(ctx context.Context, caps lab.NFC) (float64, error) {
	e, err := nfcLab(ctx, lab.Disk{Capacity: 1 << 30, Fill: 100, Thick: true}, caps)
	if err != nil {
		return 0, err
	}
	defer e.stop()
	t, err := pullNFC(ctx, e, 1, nfcJob{Handles: 1, Plain: true, Stored: true})
	return t.rate(), err
}

// nfcUncapped measures the processor time and the memory without limits.
func nfcUncapped(ctx context.Context, b *bench) error {
	e, err := nfcLab(ctx, lab.Disk{Capacity: 4 << 30, Fill: 100, Thick: true}, lab.NFC{})
	if err != nil {
		return err
	}
	defer e.stop()
	for _, f := range []struct {
		figure string
		job    nfcJob
		most   float64
	}{
		{"nfc uncapped, in clear, to Null: client CPU", nfcJob{Plain: true, Stored: true}, 0.6},
		{"nfc uncapped, over TLS, to Null: client CPU", nfcJob{Stored: true}, 1.0},
	} {
		t, err := pullNFC(ctx, e, nfcRuns, f.job)
		if err != nil {
			return err
		}
		b.atMost(f.most, Row{Figure: f.figure, Value: t.cpuPerGiB(), Unit: "CPU s/GiB",
			Note: fmt.Sprintf("%.0f MB/s with the lab on the same cores, %s", t.rate(), t.Note)})
		b.addRow(Row{Figure: f.figure + ", peak memory", Value: float64(t.Peak) / (1 << 20), Unit: "MiB"})
	}
	return nil
}

// linkRate is 1 Gbit/s without the overhead of TCP, in bytes per second.
const linkRate = 117_000_000

// nfcLink measures the gain of compression over a link of 1 Gbit/s.
func nfcLink(ctx context.Context, b *bench) error {
	e, err := nfcLab(ctx, lab.Disk{Capacity: 2 << 30, Fill: 40, Thick: true, Seed: 1}, lab.NFC{LinkRate: linkRate})
	if err != nil {
		return err
	}
	defer e.stop()
	plain, err := pullNFC(ctx, e, 1, nfcJob{Stored: true})
	if err != nil {
		return err
	}
	chosen, err := pullNFC(ctx, e, 1, nfcJob{})
	if err != nil {
		return err
	}
	b.atLeast(1.5, Row{Figure: "nfc over 1 Gbit/s, thick disk 40 % full: compression found by measuring", Value: chosen.rate() / plain.rate(), Unit: "x uncompressed",
		Note: fmt.Sprintf("%.0f against %.0f MB/s; %s", chosen.rate(), plain.rate(), chosen.Note)})
	return nil
}

// childNFC copies the emulated host's disk to Null with decamp's code.
func childNFC(ctx context.Context, args []string) (measurement, error) {
	var job nfcJob
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
	pull := nfc.New(host, job.toOptions())
	defer pull.Close()
	src, err := pull.Open(ctx, transport.Disk{VM: vm, Disk: &vm.Disks[0]})
	if err != nil {
		return measurement{}, err
	}
	defer src.Close()
	t, err := copyTimed(ctx, src, disk.NewNull(src.Size()), nil)
	r := src.Report()
	t.Wire = r.Wire
	t.Note = fmt.Sprintf("%d handles, compression %s (%s), map %s", r.Handles, r.Compression, r.Rates, r.Map)
	return t, err
}

// toOptions returns the options of the transport.
func (job nfcJob) toOptions() nfc.Options {
	o := nfc.Options{Handles: job.Handles}
	if job.Plain {
		o.Wire = wire.Plain
	}
	if job.Stored {
		o.Compressions = []wire.Compression{wire.Stored}
	}
	return o
}
