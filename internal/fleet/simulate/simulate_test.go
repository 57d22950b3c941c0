package simulate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/sched"
)

const mb = 1_000_000

func needsHost(vm fleetdb.VM, _ fleetdb.TransferKind) ([]sched.Need, time.Duration) {
	return []sched.Need{{Resource: "host:" + vm.Host + "/vms", Weight: 1}}, time.Duration(vm.Bytes/(100*mb)) * time.Second
}

// newVMs returns n VMs of the given size, spread over the given number of hosts.
func newVMs(n, hosts int, bytes int64) []fleetdb.VM {
	vms := make([]fleetdb.VM, n)
	for i := range vms {
		vms[i] = fleetdb.VM{
			Key: fleetdb.Key{Plan: "wave", VM: fmt.Sprintf("vm-%d", i+1)}, Name: fmt.Sprintf("web%d", i+1), Source: "vc1:443",
			Host: fmt.Sprintf("esx%d", i%hosts+1), To: []string{"dir:/srv/vm"}, Disks: 1, Bytes: bytes,
		}
	}
	return vms
}

func run(t *testing.T, s Config) Result {
	t.Helper()
	if s.Needs == nil {
		s.Needs = needsHost
	}
	got, err := Run(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// 80 VMs of 3 GB are on 8 hosts of 300 MB/s: each host sends 30 GB in 100 s.
func TestSimulationIsBoundByRates(t *testing.T) {
	s := Config{VMs: newVMs(80, 8, 3000*mb), Capacities: map[string]int64{"host:*/vms": 5}, Rates: map[string]int64{"host:*/rate": 300 * mb}}
	got := run(t, s)
	if got.Makespan.Round(time.Second) != 100*time.Second || got.Bytes != 80*3000*mb || len(got.VMs) != 80 {
		t.Errorf("%v for %d bytes of %d VMs, want 100 s for 80 VMs", got.Makespan, got.Bytes, len(got.VMs))
	}
	for _, l := range got.Loads[:8] {
		if l.VMs != 10 || l.Peak != 5 || l.Busy.Round(time.Second) != 100*time.Second || l.Limit != 300*mb {
			t.Errorf("the load of a host is %+v", l)
		}
	}
	s.Rates["link:all/rate"] = 600 * mb
	if got := run(t, s).Makespan.Round(time.Second); got != 400*time.Second {
		t.Errorf("over a link of 600 MB/s: %v, want 400 s", got)
	}
	s.Rates["vm:*/rate"] = 10 * mb
	if got := run(t, s).Makespan.Round(time.Second); got != 600*time.Second {
		t.Errorf("with 10 MB/s for one VM: %v, want 600 s in two rounds", got)
	}
}

// A transfer without a rate limit takes as long as Needs expects.
func TestSimulationWithoutRates(t *testing.T) {
	got := run(t, Config{VMs: newVMs(6, 1, 1000*mb), Capacities: map[string]int64{"host:esx1/vms": 2}})
	if got.Makespan != 30*time.Second {
		t.Errorf("%v, want three rounds of 10 s", got.Makespan)
	}
	waited := 0
	for _, v := range got.VMs {
		if v.Began > 0 {
			waited++
			if !strings.HasPrefix(v.WaitReason, "host esx1: 2 of 2 vms") {
				t.Errorf("the wait reason of %s is %q", v.Name, v.WaitReason)
			}
		}
	}
	if waited != 4 {
		t.Errorf("%d VMs waited, want 4", waited)
	}
}

func TestSimulationReportsVMsThatNeverStart(t *testing.T) {
	vms := newVMs(2, 1, mb)
	vms[1].To = []string{"dir:/elsewhere"}
	got := run(t, Config{VMs: vms, Workers: []fleetdb.Worker{{Name: "w1", Offers: map[string]string{"/srv": "d"}, VMs: 4}}})
	if len(got.VMs) != 1 || len(got.NeverStarted) != 1 || got.NeverStarted[0].Reason != "no worker offers dir:/elsewhere" {
		t.Errorf("got %+v, want one VM that never starts", got)
	}
}

func TestSharesAreFair(t *testing.T) {
	host1, host2, link := &limit{units: 100}, &limit{units: 1000}, &limit{units: 500}
	two, one := &stream{flows: make(flowHeap, 2)}, &stream{flows: make(flowHeap, 1)}
	for s, of := range map[*stream][]*limit{two: {host1, link}, one: {host2, link}} {
		for _, l := range of {
			s.addLimit(l)
		}
	}
	computeRates(areaOf(two))
	if two.rate != 50 || one.rate != 400 {
		t.Errorf("rates are %v of each flow of two, and %v of one; want 50 and 400", two.rate, one.rate)
	}
	link.crowd = 0.5 // 500 / (1 + 0.5 * 2)
	computeRates(areaOf(one))
	if two.rate != 50 || one.rate != 150 {
		t.Errorf("rates in a crowd are %v of each flow of two, and %v of one; want 50 and 150", two.rate, one.rate)
	}
}

// One plan is as fast as eight plans with the same VMs. In MTV, 500 VMs in one plan took 5 h 10 min, and 800 VMs
// in eight plans took 57 min.
func TestOnePlanIsAsFastAsEight(t *testing.T) {
	makespan := func(plans int) time.Duration {
		vms := newVMs(800, 8, 3000*mb)
		for i := range vms {
			vms[i].Plan = "p" + string(rune('a'+i%plans))
			vms[i].Bytes += int64(i*7919%800) * 10 * mb
		}
		return run(t, Config{VMs: vms, Capacities: map[string]int64{"host:*/vms": 20}, Rates: map[string]int64{"host:*/rate": 300 * mb}}).Makespan
	}
	if one, eight := makespan(1), makespan(8); one > eight*103/100 {
		t.Errorf("one plan takes %v, eight plans take %v", one, eight)
	}
}

// BenchmarkRun100000 simulates 100,000 VMs of four sizes on 2,000 hosts behind one link.
func BenchmarkRun100000(b *testing.B) {
	vms := newVMs(100_000, 2000, 0)
	for i := range vms {
		vms[i].Disks = 1 + i/2000%4
		vms[i].Bytes = int64(vms[i].Disks*(10+i/2000%25)) << 30
	}
	for b.Loop() {
		_, err := Run(b.Context(), Config{VMs: vms, Needs: needsHost, Capacities: map[string]int64{"host:*/vms": 20},
			Rates: map[string]int64{"disk:*/rate": 170 * mb, "host:*/rate": 327 * mb, "link:all/rate": 300_000 * mb}})
		if err != nil {
			b.Fatal(err)
		}
	}
}
