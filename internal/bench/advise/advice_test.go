package advise_test

import (
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/bench"
	"github.com/decamp/decamp/internal/bench/advise"
	"github.com/decamp/decamp/internal/fault"
)

func advisor(t *testing.T) *advise.Advisor {
	t.Helper()
	a, err := advise.New(bench.Seed().Matrix)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func setup(t *testing.T, name string) bench.Setup {
	t.Helper()
	s, err := bench.ParseName(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The guide's mistake comes first, whatever else is slow.
func TestSyncIsMendedFirst(t *testing.T) {
	steps, err := advisor(t).Steps(setup(t, "esxi_hdd_nfs_hdd_1g_mtu1500_sync"), advise.Choices())
	if err != nil || len(steps) == 0 || steps[0].String() != "nfs=async" || steps[0].Gain() < 12 {
		t.Fatalf("%+v, %v", steps, err)
	}
	for i := range steps[1:] {
		if steps[i].After != steps[i+1].Before {
			t.Errorf("step %d begins at %.1f, the one before ended at %.1f", i+1, steps[i+1].Before, steps[i].After)
		}
	}
}

// An NVMe drive behind a link of 1 Gbit/s gives nothing, and the advice says so: it is no step
// before the link is.
func TestDriveBehindASlowLinkIsNoStep(t *testing.T) {
	a := advisor(t)
	s := setup(t, "esxi_ssd_nfs_hdd_1g_mtu1500")
	drive, err := a.WhatIf(s, advise.Change{Variable: advise.To, Value: "nvme"})
	if err != nil || drive.Gain() > 0.07 {
		t.Errorf("%+v, %v", drive, err)
	}
	steps, err := a.Steps(s, advise.Choices())
	if err != nil || len(steps) < 2 || steps[0].Variable != advise.NIC || steps[1].Variable != advise.To {
		t.Errorf("%+v, %v", steps, err)
	}
}

// Advice cites the measured pairs it rests on, and what was measured is within its bounds.
func TestAdviceRestsOnPairs(t *testing.T) {
	a := advisor(t)
	for _, e := range advise.Effects(a.Rows) {
		c := advise.Change{Variable: e.Variable}
		for _, choice := range advise.Choices() {
			if choice.Variable == e.Variable {
				c = choice
			}
		}
		got, err := a.WhatIf(e.Before.Setup, c)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Rests) == 0 || got.Rests[0].Before.Name() != e.Before.Name() {
			t.Errorf("%s of %s rests on %v", c, e.Before.Name(), got.Rests)
		}
		measured := got.Before * e.Factor()
		if measured < got.Least || measured > got.Most {
			t.Errorf("%s of %s: %.1f measured, %.1f to %.1f said", c, e.Before.Name(), measured, got.Least, got.Most)
		}
	}
}

func TestPartsOfARateAreOne(t *testing.T) {
	a := advisor(t)
	for _, r := range a.Rows {
		p, err := a.Model.Predict(r.Setup)
		if err != nil {
			t.Fatal(err)
		}
		var sum float64
		for _, l := range p.Layers {
			sum += l.Part
			if l.Alone < p.MiBs {
				t.Errorf("%s: %s alone gives %.1f, all together %.1f", r.Name(), l.Layer, l.Alone, p.MiBs)
			}
		}
		if sum < 0.999 || sum > 1.001 {
			t.Errorf("%s: parts are %.3f", r.Name(), sum)
		}
	}
}

func TestWhatIsNotKnownIsSaid(t *testing.T) {
	a := advisor(t)
	s := setup(t, "esxi_floppy_nfs_hdd_1g_mtu1500")
	_, err := a.Model.Predict(s)
	if !fault.Is(err, fault.Invalid) || !strings.Contains(fault.HintOf(err), "hdd, ssd") {
		t.Errorf("%v (%s)", err, fault.HintOf(err))
	}
	s.Source = "1.5GiB/s"
	if p, err := a.Model.Predict(s); err != nil || p.MiBs < 80 {
		t.Errorf("%+v, %v", p, err)
	}
	for _, bad := range []string{"nic", "nic=fast", "colour=red", "nfs=maybe", "mtu=big"} {
		if _, err := advise.ParseChange(bad); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if _, err := advise.New(nil); !fault.Is(err, fault.Invalid) {
		t.Errorf("no rows: %v", err)
	}
}
