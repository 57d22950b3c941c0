package main

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fleet"
	"github.com/decamp/decamp/internal/fleet/admission"
	"github.com/decamp/decamp/internal/fleetdb"
)

// newPlanState returns a plan of n VMs in different states. Host esx3 is paused.
func newPlanState(n int) (p fleetdb.Plan, vms []fleetdb.VM, far []fleetdb.Progress, b admission.Snapshot) {
	at := time.Date(2026, 11, 22, 1, 4, 5, 0, time.UTC)
	p = fleetdb.Plan{Name: "wave-1", State: fleetdb.PlanRunning, Counts: fleetdb.Counts{}}
	lost := "host esx3 is paused, because several VMs failed there in a row; the next VM starts after 01:05:00 UTC: no route to host"
	b.Breakers = []admission.Breaker{{Object: "host esx3", Reason: lost, Until: at.Add(time.Minute)}}
	for i := range n {
		v := fleetdb.VM{
			Key: fleetdb.Key{Plan: p.Name, VM: fmt.Sprintf("vm-%d", 1000+i)}, Name: fmt.Sprintf("web%05d", i), Host: fmt.Sprintf("esx%d", i%4),
			State: fleetdb.Queued, Bytes: 40 << 30, To: []string{"dir:/srv/vm"},
		}
		switch {
		case i < n/10:
			v.State = fleetdb.Done
		case i < n/10+3:
			v.State, v.Step, v.Worker, v.Granted = fleetdb.Running, "copy", "rack1", true
			far = append(far, fleetdb.Progress{Key: v.Key, Total: v.Bytes, Done: v.Bytes / 4, Read: v.Bytes / 8, Rate: 100e6, At: at})
		case i == n/10+3 && n > 4:
			v.State, v.Step, v.Worker, v.Granted = fleetdb.Running, "copy", "rack2", true
			far = append(far, fleetdb.Progress{Key: v.Key, Total: v.Bytes, Done: v.Bytes / 2, Silent: true, At: at})
		case i%7 == 0:
			v.State, v.Failure = fleetdb.Failed, &fleetdb.Failure{Kind: "unsupported", Text: "VM has an encrypted disk"}
		case i%4 == 3:
			b.Waiting = append(b.Waiting, admission.Waiting{Plan: p.Name, VM: v.VM, Reason: lost})
		default:
			b.Waiting = append(b.Waiting, admission.Waiting{Plan: p.Name, VM: v.VM, Reason: "host esx1: 20 of 20 vms; next in about 4 min"})
		}
		p.Counts[v.State]++
		vms = append(vms, v)
	}
	return p, vms, far, b
}

// The output of decamp status fits on a page for any number of VMs.
func TestStatusFitsOnAPage(t *testing.T) {
	var out bytes.Buffer
	for _, n := range []int{1, 10, 10_000} {
		p, vms, far, b := newPlanState(n)
		s := fleet.StatusOf(p, vms, far, b)
		var more []string
		s.VMs, more = selectVMs(s.VMs, maxFailed)
		writeStatus(&output{Writer: &out}, s, more)
		fmt.Fprintln(&out)
	}
	p, vms, far, b := newPlanState(10)
	writeVMStatus(&output{Writer: &out}, fleet.StatusOf(p, vms, far, b).VMs[4])
	golden(t, "testdata/status.txt", out.String())
}
