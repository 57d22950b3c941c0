package server_test

import (
	"testing"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/server"
	"github.com/decamp/decamp/internal/server/servertest"
)

// The view reports the begin of each VM once, even if it first sees the VM in a later state.
func TestEachVMStartIsReportedOnce(t *testing.T) {
	ctx, f := t.Context(), servertest.Start(t, nil)
	const vms, before, during = 500, 10, 300
	if err := f.Plan(ctx, "wave", vms); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Run(ctx, "wave", 1, before); err != nil {
		t.Fatal(err)
	}
	view, err := server.OpenPlanView(ctx, server.Local{Database: f.Database}, "wave")
	if err != nil {
		t.Fatal(err)
	}
	began := map[fleetdb.Key]int{}
	since := view.Rev()
	apply := func() {
		c, err := f.Database.Feed.Changes(ctx, since)
		if err != nil {
			t.Fatal(err)
		}
		since = c.Rev
		for _, vm := range view.Apply(c) {
			if vm.Begins {
				began[vm.Key]++
			}
		}
	}
	apply()
	claims, err := f.Run(ctx, "wave", before+1, during)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Database.Claims.Finish(ctx, claims[0], fleetdb.End{State: fleetdb.Done}); err != nil {
		t.Fatal(err)
	}
	apply()
	apply()
	for i := 1; i <= vms; i++ {
		if got, want := began[servertest.Key("wave", i)], map[bool]int{true: 1}[i > before && i <= during]; got != want {
			t.Errorf("VM %d began %d times, want %d", i, got, want)
		}
	}
	if err := f.Report(ctx, claims[1:], 50); err != nil {
		t.Fatal(err)
	}
	progress, err := f.Database.Progress.List(ctx, "wave")
	if err != nil {
		t.Fatal(err)
	}
	s := view.Status(progress)
	if s.Plan.Counts[fleetdb.Running] != during-1 || s.Plan.Counts[fleetdb.Done] != 1 || s.Plan.Counts[fleetdb.Queued] != vms-during {
		t.Errorf("counts %v", s.Plan.Counts)
	}
	if left := s.VMs[before+1].Left(); s.Rate != (during-before-1)*100e6 || left.Seconds() < 800 || left.Seconds() > 810 {
		t.Errorf("rate %d, left %v", s.Rate, left)
	}
}
