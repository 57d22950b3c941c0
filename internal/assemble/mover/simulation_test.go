package mover

import (
	"math"
	"testing"

	"github.com/decamp/decamp/internal/bench"
	"github.com/decamp/decamp/internal/planfile"
)

// loadHardware reads a file of docs/hosts.
func loadHardware(t *testing.T, name string) *planfile.Hardware {
	t.Helper()
	h, err := planfile.LoadHardware("../../../docs/hosts/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// simulatedMTV simulates a published run. The disks of its VMs have gib GiB each.
func simulatedMTV(t *testing.T, h planfile.Hardware, r bench.MTVRow, gib float64) Simulated {
	t.Helper()
	disks := max(r.Disks/r.VMs, 1)
	h.VMs = []planfile.Group{{Count: r.VMs, Hosts: r.Hosts, Disks: disks, Allocated: planfile.Size(gib * float64(disks) * (1 << 30))}}
	if r.Inflight > 0 {
		h.PerHost.VMs = r.Inflight
	}
	s := NewSimulation(&h)
	for name, units := range h.PerHost.Capacities("*") {
		s.Capacities[name] = units
	}
	done, err := Simulate(t.Context(), s, &h)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// tolerance is the maximum relative difference between a prediction and the published value.
const tolerance = 0.15

func TestPublishedColdRunsArePredicted(t *testing.T) {
	h, mtv, rows := loadHardware(t, "mtv-cold.yaml"), bench.Seed().MTV, 0
	for _, r := range mtv.Cold {
		if r.Note != "" { // the note is the reason why the row is excluded
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
		if math.Abs(minutes/published-1) > tolerance {
			t.Errorf("%+v: got %.1f minutes, want about %.1f", r, minutes, published)
		}
		if done.Least >= done.Makespan || done.Most <= done.Makespan || published < done.Least.Minutes() || published > done.Most.Minutes() {
			t.Errorf("%+v: got bounds %v and %v", r, done.Least, done.Most)
		}
	}
	if rows != 7 {
		t.Errorf("got %d rows, want 7", rows)
	}
}

func TestPublishedWarmRunsArePredicted(t *testing.T) {
	h, mtv := loadHardware(t, "mtv-warm.yaml"), bench.Seed().MTV
	for _, r := range mtv.Warm {
		done := simulatedMTV(t, *h, r, mtv.DiskGiB)
		rate := float64(done.Bytes) / bench.MiB / done.Makespan.Seconds()
		t.Logf("%3d disks of %d VMs on %d hosts: %.0f MiB/s, %.0f published: %+.1f %%", r.Disks, r.VMs, r.Hosts, rate, r.MiBs, 100*(rate/r.MiBs-1))
		if math.Abs(rate/r.MiBs-1) > tolerance {
			t.Errorf("%+v: got %.1f MiB/s, want about %.1f", r, rate, r.MiBs)
		}
	}
}

// The scheduler of decamp takes less time on the same hardware: only transfers hold slots, and twenty VMs per host are
// enough.
func TestDecampSchedulerIsFasterOnSameHardware(t *testing.T) {
	h, mtv := loadHardware(t, "mtv-cold.yaml"), bench.Seed().MTV
	for _, r := range mtv.Cold {
		if r.VMs != 500 {
			continue
		}
		theirs := simulatedMTV(t, *h, r, mtv.DiskGiB)
		h.Hold, r.Inflight = 0, VMsPerHost
		ours := simulatedMTV(t, *h, r, mtv.DiskGiB)
		t.Logf("500 VMs in one plan: %v; published: %v min; simulated with the published scheduler: %v", ours.Makespan, r.Minutes, theirs.Makespan)
		if ours.Makespan >= theirs.Makespan*9/10 {
			t.Errorf("got %v, want less than 90 %% of %v", ours.Makespan, theirs.Makespan)
		}
	}
}
