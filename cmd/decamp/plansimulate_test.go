package main

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/decamp/decamp/internal/assemble/mover"
	"github.com/decamp/decamp/internal/bench"
	"github.com/decamp/decamp/internal/planfile"
)

// hardware reads a file of docs/hosts.
func hardware(t *testing.T, name string) *planfile.Hardware {
	t.Helper()
	h, err := planfile.LoadHardware("../../docs/hosts/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// simulatedMTV plays a published run; its VMs have that many GiB on each disk.
func simulatedMTV(t *testing.T, h planfile.Hardware, r bench.MTVRow, gib float64) simulated {
	t.Helper()
	disks := max(r.Disks/r.VMs, 1)
	h.VMs = []planfile.Group{{Count: r.VMs, Hosts: r.Hosts, Disks: disks, Allocated: planfile.Size(gib * float64(disks) * (1 << 30))}}
	if r.Inflight > 0 {
		h.PerHost.VMs = r.Inflight
	}
	s := simulationOf(&h)
	for name, units := range h.PerHost.Capacities("*") {
		s.Capacities[name] = units
	}
	done, err := runSimulation(t.Context(), s, &h)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// within is how far a prediction may be from what was published.
const within = 0.15

func TestPublishedColdRunsArePredicted(t *testing.T) {
	h, mtv, rows := hardware(t, "mtv-cold.yaml"), bench.Seed().MTV, 0
	for _, r := range mtv.Cold {
		if r.Note != "" { // says why it cannot be right
			continue
		}
		rows++
		done := simulatedMTV(t, *h, r, mtv.DiskGiB)
		minutes := done.Makespan.Minutes()
		published := r.Minutes
		if published == 0 {
			published = float64(r.VMs) * mtv.DiskGiB * 1024 / r.MiBs / 60
		}
		t.Logf("%3d VMs on %d hosts: %.0f min, %.0f published: %+.1f %%", r.VMs, r.Hosts, minutes, published, 100*(minutes/published-1))
		if math.Abs(minutes/published-1) > within {
			t.Errorf("%+v: %.1f minutes", r, minutes)
		}
		if done.Least >= done.Makespan || done.Most <= done.Makespan || published < done.Least.Minutes() || published > done.Most.Minutes() {
			t.Errorf("%+v: between %v and %v", r, done.Least, done.Most)
		}
	}
	if rows != 7 {
		t.Errorf("%d rows", rows)
	}
}

func TestPublishedWarmRunsArePredicted(t *testing.T) {
	h, mtv := hardware(t, "mtv-warm.yaml"), bench.Seed().MTV
	for _, r := range mtv.Warm {
		done := simulatedMTV(t, *h, r, mtv.DiskGiB)
		rate := float64(done.Bytes) / bench.MiB / done.Makespan.Seconds()
		t.Logf("%3d disks of %d VMs on %d hosts: %.0f MiB/s, %.0f published: %+.1f %%", r.Disks, r.VMs, r.Hosts, rate, r.MiBs, 100*(rate/r.MiBs-1))
		if math.Abs(rate/r.MiBs-1) > within {
			t.Errorf("%+v: %.1f MiB/s", r, rate)
		}
	}
}

// What the same hardware does with our scheduler: no slot is held by what is not moving, and
// twenty VMs of a host are enough.
func TestOurSchedulingOnTheSameHardware(t *testing.T) {
	h, mtv := hardware(t, "mtv-cold.yaml"), bench.Seed().MTV
	for _, r := range mtv.Cold {
		if r.VMs != 500 {
			continue
		}
		theirs := simulatedMTV(t, *h, r, mtv.DiskGiB)
		h.Hold, r.Inflight = 0, mover.VMsPerHost
		ours := simulatedMTV(t, *h, r, mtv.DiskGiB)
		t.Logf("500 VMs in one plan: %v, %v published and %v simulated with its own", ours.Makespan, r.Minutes, theirs.Makespan)
		if ours.Makespan >= theirs.Makespan*9/10 {
			t.Errorf("%v, theirs %v", ours.Makespan, theirs.Makespan)
		}
	}
}

func TestSimulateWithoutAPlan(t *testing.T) {
	r := newRig(t)
	r.ends(0, "plan", "simulate", "--hosts", "../../docs/hosts/mtv-cold.yaml")
	golden(t, "testdata/simulate.txt", r.out.String())
	r.out.Reset()
	r.ends(0, "plan", "simulate", "--hosts", "../../docs/hosts/mtv-cold.yaml", "--json")
	var got simulated
	if err := json.Unmarshal(r.out.Bytes(), &got); err != nil || len(got.VMs) != 80 || got.Least == 0 {
		t.Errorf("%d VMs, least %v, %v", len(got.VMs), got.Least, err)
	}
	file := t.TempDir() + "/hosts.yaml"
	for text, says := range map[string]string{
		"version: 1":                        "there is no VM to simulate",
		"version: 1\nhots: {}":              "did you mean hosts?",
		"version: 1\nuncertain: 120%":       "below a hundred",
		"version: 1\nvms: [{count: 3}]":     "allocated is missing",
		"version: 1\nhosts: {a: 1M, a: 2M}": "stands there twice",
	} {
		write(t, file, text)
		r := newRig(t)
		r.ends(2, "plan", "simulate", "--hosts", file)
		mustContain(t, r.stderr(), says)
	}
}
