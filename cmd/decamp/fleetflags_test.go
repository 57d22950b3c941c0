package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/roster"
	"github.com/decamp/decamp/internal/server"
)

// waveOf is a roster with a plan of VMs that nobody drives.
func waveOf(t *testing.T, vms ...roster.VM) server.Control {
	t.Helper()
	r, err := roster.Open(t.Context(), roster.Config{URL: "sqlite:" + filepath.Join(t.TempDir(), "fleet.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	if _, err := r.Plans.Add(t.Context(), roster.Plan{Name: "wave", Text: "version: 1\n"}); err != nil {
		t.Fatal(err)
	}
	for i := range vms {
		vms[i].Plan, vms[i].Seq, vms[i].State, vms[i].Asks = "wave", int64(i+1), roster.Queued, roster.First
	}
	if err := r.VMs.Add(t.Context(), vms); err != nil {
		t.Fatal(err)
	}
	return server.Audited{Local: server.Local{Roster: r}, Who: "tester", LimitText: limitWords}
}

func named(ref, name string) roster.VM {
	return roster.VM{Key: roster.Key{VM: ref}, Name: name, Runs: []string{name + "-1f"}, To: []string{"dir:/srv"}}
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
	var vms []roster.VM
	for range mostWaiting + 5 {
		vms = append(vms, named("vm-"+string(rune('a'+len(vms))), "web"))
	}
	c := waveOf(t, vms...)
	if err := (&statusCommand{out: r.program.out}).statusOfPlan(t.Context(), c, "wave"); err != nil {
		t.Fatal(err)
	}
	mustContain(t, r.out.String(), "Plan wave, listing: 15 VMs (15 queued)", "and 5 more that wait")
	if n := strings.Count(r.out.String(), "queued"); n != mostWaiting+1 {
		t.Errorf("%d VMs are shown in\n%s", n-1, r.out)
	}
}
