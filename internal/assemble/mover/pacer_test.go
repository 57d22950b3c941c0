package mover

import (
	"slices"
	"testing"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/sched/budget"
)

func TestScaleWeek(t *testing.T) {
	week := budget.Week{Rate: 1000, Rules: []budget.Rule{{Rate: 400}, {Rate: 0}, {Rate: budget.Unlimited}}}
	half := scaleWeek(week, 0.5)
	if half.Rate != 500 || half.Rules[0].Rate != 200 || half.Rules[1].Rate != 0 || half.Rules[2].Rate != budget.Unlimited {
		t.Errorf("got half of the week %+v", half)
	}
	if week.Rules[0].Rate != 400 {
		t.Error("scaleWeek changed its argument")
	}
	for _, part := range []float64{0, 1} {
		if got := scaleWeek(week, part); got.Rate != 1000 || got.Rules[0].Rate != 400 {
			t.Errorf("scaleWeek by %v: got %+v", part, got)
		}
	}
	if tiny := scaleWeek(budget.Week{Rate: 1}, 0.01); tiny.Rate != 1 {
		t.Errorf("got %+v, want a rate of 1", tiny)
	}
}

func TestBudgetNamesAreUnique(t *testing.T) {
	names := namesOf(fleetdb.VM{
		Key: fleetdb.Key{Plan: "wave", VM: "vm-1"}, Source: "vc1:443", Host: "esx1", To: []string{"dir:/a", "dir:/b", "dir:/a"},
	}, "w1")
	want := []string{"fleet:all", "host:esx1", "plan:wave", "source:vc1:443", "target:dir:/a", "target:dir:/b", "worker:w1"}
	if !slices.Equal(names, want) {
		t.Errorf("got budgets %q, want %q", names, want)
	}
}
