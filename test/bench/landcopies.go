package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"

	"github.com/decamp/decamp/internal/lab"
)

const (
	thinFill = 59       // percent of data on the published benchmark's disk: 19 of 32 GiB
	thinSize = 8 << 30  // size of the thin disk in bytes
	fullThin = 32 << 30 // size of the published benchmark's disk in bytes

	// fullEnv is the environment variable that selects the published size.
	fullEnv = "DECAMP_BENCH_FULL"

	eightHosts = 4       // number of hosts
	eightDisks = 8       // number of disks
	eightSize  = 1 << 30 // size of each disk in bytes

	// landCeiling is the limit of docs/architecture.md for a landing, in MiB: the
	// landing's memory, package nfs, and a quarter of both for the garbage collector.
	landCeiling = 1.25 * (1024 + 100)
)

// landThin copies a thin disk from an emulated host to the landing, and counts the
// bytes written.
func landThin(ctx context.Context, b *bench) error {
	size := int64(thinSize)
	if os.Getenv(fullEnv) != "" {
		size = fullThin
	}
	cfg := lab.Config{VMs: []lab.VM{{Name: benchVM, Disks: []lab.Disk{{Capacity: lab.Bytes(size), Fill: thinFill, Seed: 1}}}}}
	l, e, err := landVMs(ctx, b.dir, cfg, "esxi", benchVM)
	if err != nil {
		return err
	}
	// Zeros that occupy blocks count as written.
	written := max(l.Written, l.Blocks)
	b.atMost(1.01, Row{Figure: "thin clone by an emulated host: bytes written", Value: float64(written) / float64(e.Allocated), Unit: "x allocated",
		Note: fmt.Sprintf("%.2f of %d GiB allocated (%s=1: 32 GiB); %.2f GiB written, %.2f occupied; %.0f MB/s of virtual disk with the lab on the same cores; %.2f CPU s/GiB written",
			toGiB(e.Allocated), size>>30, fullEnv, toGiB(l.Written), toGiB(l.Blocks), l.rate(), l.CPU/toGiB(l.Written))})
	return nil
}

// toGiB converts bytes to GiB.
func toGiB(n int64) float64 { return float64(n) / (1 << 30) }

// landEight copies two disks from each of four emulated hosts at once.
func landEight(ctx context.Context, b *bench) error {
	cfg := lab.Config{VCenter: true, Datacenters: []lab.Datacenter{{Name: "dc"}}}
	for i := range eightHosts {
		cfg.Datacenters[0].Hosts = append(cfg.Datacenters[0].Hosts, "esx"+strconv.Itoa(i))
	}
	var names []string
	for i := range eightDisks {
		name := benchVM
		if i > 0 {
			name += strconv.Itoa(i)
		}
		names = append(names, name)
		cfg.VMs = append(cfg.VMs, lab.VM{Name: name, Host: "esx" + strconv.Itoa(i%eightHosts),
			Disks: []lab.Disk{{Capacity: eightSize, Fill: 100, Seed: uint64(i + 1)}}})
	}
	l, _, err := landVMs(ctx, b.dir, cfg, "vcenter", names...)
	if err != nil {
		return err
	}
	b.atMost(landCeiling, Row{Figure: "8 copies at once: peak memory", Value: float64(l.Peak) / (1 << 20), Unit: "MiB",
		Note: "1 GiB held, 100 MiB of package nfs, a quarter for the collector; docs/architecture.md"})
	if l.Together == 0 {
		return fmt.Errorf("compare the progress of %d copies: at no time were all in progress; increase eightSize in test/bench", eightDisks)
	}
	b.atLeast(0.9, Row{Figure: "8 copies at once from 4 emulated hosts: slowest divided by fastest", Value: l.Fair, Unit: "x",
		Note: fmt.Sprintf("over the %.1f s when all ran; together %.0f MB/s with the lab on the same cores, %.2f CPU s/GiB", l.Together, l.rate(), l.cpuPerGiB())})
	return nil
}

// landVMs starts an emulator and copies the first disk of each VM to a landing, all at
// once.
func landVMs(ctx context.Context, parent string, cfg lab.Config, scheme string, vms ...string) (l landedDisks, facts labFacts, err error) {
	dir, err := os.MkdirTemp(parent, "landing")
	if err != nil {
		return l, facts, err
	}
	defer os.RemoveAll(dir)
	portmap, err := freeAddr(ctx)
	if err != nil {
		return l, facts, err
	}
	cfg.NFS.Portmap = portmap
	e, err := startLabWith(ctx, cfg)
	if err != nil {
		return l, facts, err
	}
	defer e.stop()
	return l, e.facts, runJob(ctx, &l, "land", landJob{Lab: e.facts, Scheme: scheme, VMs: vms, Dir: dir, Portmap: portmap})
}

// freeAddr returns an unused address. The emulator needs the address of the port mapper
// before it starts.
func freeAddr(ctx context.Context) (string, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// A sample is the progress of a copy at one time.
type sample struct {
	at  float64 // seconds
	got float64 // bytes
}

// fairnessOf compares the progress of copies in the time in which all of them ran: the
// smallest divided by the largest. seconds is the length of that time, or 0 if there
// was none.
func fairnessOf(copies [][]sample) (share, seconds float64) {
	var from, to float64
	for i, c := range copies {
		if len(c) == 0 {
			return 0, 0
		}
		// All copies run from the latest start to the earliest end.
		from = max(from, c[0].at)
		if last := c[len(c)-1].at; i == 0 || last < to {
			to = last
		}
	}
	if to <= from {
		return 0, 0
	}
	var came []float64
	for _, c := range copies {
		came = append(came, bytesAt(c, to)-bytesAt(c, from))
	}
	return slices.Min(came) / slices.Max(came), to - from
}

// bytesAt returns the progress of a copy at a time, interpolated between two samples.
func bytesAt(c []sample, t float64) float64 {
	i := slices.IndexFunc(c, func(s sample) bool { return s.at >= t })
	switch i {
	case -1:
		return c[len(c)-1].got
	case 0:
		return c[0].got
	}
	a, b := c[i-1], c[i]
	return a.got + (b.got-a.got)*(t-a.at)/(b.at-a.at)
}
