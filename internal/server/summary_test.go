package server

import (
	"testing"

	"github.com/decamp/decamp/internal/bottleneck"
	"github.com/decamp/decamp/internal/fleetdb"
)

func TestDescribeLimits(t *testing.T) {
	moves := func(source, target float64, rate int64) fleetdb.Progress {
		return fleetdb.Progress{Busy: bottleneck.Busy{Source: source, Target: target}, Rate: rate}
	}
	full := Resource{Name: "host:esx3/vms", Capacity: 20, Used: 20, Waiting: 7}
	half := Resource{Name: "link:wan/vms", Capacity: 20, Used: 10, Waiting: 9}
	waiting := []Waiting{{Reason: "no worker offers dir:/srv/vm"}, {Reason: "outside its window"}, {Reason: "no worker offers dir:/srv/vm"}}
	for want, b := range map[string]fleetState{
		"": {},
		"bottleneck: source (75 % busy); next: target, at 1.9 times the rate": {
			progress: []fleetdb.Progress{moves(1, 0.2, 300), moves(0, 1, 100), {Rate: 1000}}},
		"host esx3 vms: 20 of 20 in use, 7 VMs wait": {scheduler: SchedulerState{Resources: []Resource{half, full}, common: commonReason(waiting)}},
		"2 VMs wait: no worker offers dir:/srv/vm":   {scheduler: SchedulerState{common: commonReason(waiting)}},
		"login to vc1:443 was refused":               {scheduler: SchedulerState{Breakers: []Breaker{{Object: "source vc1:443", Reason: "login to vc1:443 was refused"}}, common: commonReason(waiting)}},
		"bottleneck: target (100 % busy); host esx3 vms: 20 of 20 in use, 7 VMs wait": {
			progress: []fleetdb.Progress{moves(0, 1, 1)}, scheduler: SchedulerState{Resources: []Resource{full}}},
	} {
		if got := describeLimits(&b); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestFormatNumbers(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 100 << 30: "100.0 GiB", 1 << 62: "4.0 EiB"} {
		if got := formatBytes(n); got != want {
			t.Errorf("formatBytes(%d) = %s, want %s", n, got, want)
		}
	}
	for n, want := range map[int64]string{0: "", 55_000_000: "55.0 MB/s"} {
		if got := formatRate(n); got != want {
			t.Errorf("formatRate(%d) = %q, want %q", n, got, want)
		}
	}
	for _, p := range [][3]int64{{0, 0, 0}, {1, 3, 33}, {5, 3, 100}} {
		if got := percentOf(p[0], p[1]); got != p[2] {
			t.Errorf("percentOf(%d, %d) = %d, want %d", p[0], p[1], got, p[2])
		}
	}
}
