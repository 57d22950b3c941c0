package advise_test

import (
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/bench"
	"github.com/decamp/decamp/internal/bench/advise"
	"github.com/decamp/decamp/internal/fault"
)

func newAdvisor(t *testing.T) *advise.Advisor {
	t.Helper()
	a, err := advise.New(bench.Seed().Matrix)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func parseSetup(t *testing.T, name string) bench.Setup {
	t.Helper()
	s, err := bench.ParseName(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The first step replaces a synchronous export, which is the mistake of the published guide, even if other parts are
// slow.
func TestFirstStepReplacesASyncExport(t *testing.T) {
	steps, err := newAdvisor(t).Steps(parseSetup(t, "esxi_hdd_nfs_hdd_1g_mtu1500_sync"), advise.Choices())
	if err != nil || len(steps) == 0 || steps[0].String() != "nfs=async" || steps[0].Gain() < 12 {
		t.Fatalf("%+v, %v", steps, err)
	}
	for i := range steps[1:] {
		if steps[i].After != steps[i+1].Before {
			t.Errorf("step %d begins at %.1f, want the end of the step before at %.1f", i+1, steps[i+1].Before, steps[i].After)
		}
	}
}

// An NVMe drive has almost no effect with a link of 1 Gbit/s. The advice is to replace the link first.
func TestSlowLinkIsReplacedBeforeTheDrive(t *testing.T) {
	a := newAdvisor(t)
	s := parseSetup(t, "esxi_ssd_nfs_hdd_1g_mtu1500")
	drive, err := a.WhatIf(s, advise.Change{Variable: advise.To, Value: "nvme"})
	if err != nil || drive.Gain() > 0.07 {
		t.Errorf("%+v, %v", drive, err)
	}
	steps, err := a.Steps(s, advise.Choices())
	if err != nil || len(steps) < 2 || steps[0].Variable != advise.NIC || steps[1].Variable != advise.To {
		t.Errorf("%+v, %v", steps, err)
	}
}

// Advice contains the measured pairs on which it is based, and their rates are within its bounds.
func TestAdviceContainsItsPairs(t *testing.T) {
	a := newAdvisor(t)
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
			t.Errorf("%s of %s is based on %v", c, e.Before.Name(), got.Rests)
		}
		measured := got.Before * e.Factor()
		if measured < got.Least || measured > got.Most {
			t.Errorf("%s of %s: measured %.1f, want %.1f to %.1f", c, e.Before.Name(), measured, got.Least, got.Most)
		}
	}
}

func TestSumOfThePartsIsOne(t *testing.T) {
	a := newAdvisor(t)
	for _, r := range a.Rows {
		p, err := a.Model.Predict(r.Setup)
		if err != nil {
			t.Fatal(err)
		}
		var sum float64
		for _, l := range p.Layers {
			sum += l.Part
			if l.Alone < p.MiBs {
				t.Errorf("%s: the rate of %s alone is %.1f, want at least the total rate %.1f", r.Name(), l.Layer, l.Alone, p.MiBs)
			}
		}
		if sum < 0.999 || sum > 1.001 {
			t.Errorf("%s: the sum of the parts is %.3f, want 1", r.Name(), sum)
		}
	}
}

func TestUnknownValuesAreRefused(t *testing.T) {
	a := newAdvisor(t)
	s := parseSetup(t, "esxi_floppy_nfs_hdd_1g_mtu1500")
	_, err := a.Model.Predict(s)
	if !fault.Is(err, fault.Invalid) || !strings.Contains(fault.HintOf(err), "hdd, ssd") {
		t.Errorf("unknown medium: got %v (hint %q), want Invalid with the known media", err, fault.HintOf(err))
	}
	s.Source = "1.5GiB/s"
	if p, err := a.Model.Predict(s); err != nil || p.MiBs < 80 {
		t.Errorf("%+v, %v", p, err)
	}
	for _, bad := range []string{"nic", "nic=fast", "colour=red", "nfs=maybe", "mtu=big"} {
		if _, err := advise.ParseChange(bad); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: got %v, want Invalid", bad, err)
		}
	}
	if _, err := advise.New(nil); !fault.Is(err, fault.Invalid) {
		t.Errorf("no rows: got %v, want Invalid", err)
	}
}
