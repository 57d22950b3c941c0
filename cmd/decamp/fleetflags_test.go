package main

import (
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/server"
	"github.com/decamp/decamp/internal/server/servertest"
)

// waveOf returns a fleet with a plan of VMs.
func waveOf(t *testing.T, vms ...fleetdb.VM) server.Control {
	t.Helper()
	return servertest.Wave(t, limitWords, vms...)
}

func TestTheAuditTrailIsListed(t *testing.T) {
	r := newRig(t)
	for _, args := range [][]string{{"limits", "host:esx1/vms", "3"}, {"pause", "nothing/web1"}, {"audit"}} {
		r.out.Reset()
		r.run(t.Context(), append(args, "--state", r.assembler.State))
	}
	mustContain(t, r.out.String(), "TIME", "set limit", "host:esx1/vms 3", localUser(), "local")
}

func TestAPlanIsShownWithoutWhatIsOfNoInterest(t *testing.T) {
	r := newRig(t)
	var vms []fleetdb.VM
	for range maxWaiting + 5 {
		vms = append(vms, servertest.VM("vm-"+string(rune('a'+len(vms))), "web"))
	}
	c := waveOf(t, vms...)
	if err := (&statusCommand{out: r.program.out}).statusOfPlan(t.Context(), c, "wave"); err != nil {
		t.Fatal(err)
	}
	mustContain(t, r.out.String(), "Plan wave, listing: 15 VMs (15 queued)", "and 5 more that wait")
	if n := strings.Count(r.out.String(), "queued"); n != maxWaiting+1 {
		t.Errorf("%d VMs are shown in\n%s", n-1, r.out)
	}
}
