package bench_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/bench"
	"github.com/decamp/decamp/internal/bench/advise"
)

// The effects of the published rows have the same pairs as those of package advise, in the published order.
func TestEffectsOfThePublishedRows(t *testing.T) {
	rows := bench.Seed().Matrix
	effects, known, pairs := bench.Effects(rows), advise.Effects(rows), 0
	var lines []string
	for _, e := range effects {
		pairs += len(e.Pairs)
		lines = append(lines, fmt.Sprintf("%s %s>%s %d x%.2f", e.Variable, e.From, e.To, len(e.Pairs), e.MedianFactor()))
	}
	want := "nfs sync>async 3 x43.19, source hdd>ssd 8 x1.29, nic 1g>25g 9 x1.48, dest hdd>nvme 8 x1.06, mtu 1500>9000 8 x1.04"
	if got := strings.Join(lines, ", "); got != want || pairs != len(known) {
		t.Errorf("effects are %s with %d pairs, want %s with %d", got, pairs, want, len(known))
	}
	for _, k := range known {
		if !hasPair(effects, k.Before, k.After) {
			t.Errorf("the pair %v is missing", k)
		}
	}
}

func hasPair(effects []bench.Effect, before, after bench.Row) bool {
	for _, e := range effects {
		for _, p := range e.Pairs {
			if p.Before.Setup == before.Setup && p.After.Setup == after.Setup {
				return true
			}
		}
	}
	return false
}

func rowOf(t *testing.T, name string, rate float64) bench.Row {
	t.Helper()
	s, err := bench.ParseName(name)
	if err != nil {
		t.Fatal(err)
	}
	return bench.Row{Setup: s, Seconds: 1, Allocated: int64(rate * bench.MiB), Wire: rate}
}

// Rows with a generated source or destination are not compared with others. Rows that differ only in their transport
// are compared.
func TestEffectsAmongOtherRows(t *testing.T) {
	rows := []bench.Row{
		rowOf(t, "esxi_ssd_https_null_10g_mtu1500_x8", 400),
		rowOf(t, "esxi_ssd_https_nvme_10g_mtu1500_x8", 300),
		rowOf(t, "pattern_nvme", 900),
		rowOf(t, "esxi_ssd_https_nvme_10g_mtu1500_sync_x8", 30),
		rowOf(t, "esxi_ssd_landing_nvme_10g_mtu1500", 500),
		rowOf(t, "esxi_ssd_https_nvme_10g_mtu1500", 250),
		rowOf(t, "esxi_ssd_https_tmpfs_10g_mtu1500", 280),
	}
	var lines []string
	for _, e := range bench.Effects(rows) {
		lines = append(lines, fmt.Sprintf("%s %s>%s %d x%.2f", e.Variable, e.From, e.To, len(e.Pairs), e.MedianFactor()))
	}
	want := "nfs sync>as it comes 1 x10.00, dest nvme>tmpfs 1 x1.12, transport https>landing 1 x2.00"
	if got := strings.Join(lines, ", "); got != want {
		t.Errorf("effects are %s, want %s", got, want)
	}
}

func TestCurvesAndTheirPlateaus(t *testing.T) {
	var rows []bench.Row
	for n, rate := range map[int]float64{1: 50, 2: 98, 4: 190, 8: 250, 16: 255} {
		rows = append(rows, rowOf(t, fmt.Sprintf("esxi_ssd_https_null_10g_mtu1500_x%d", n), rate))
	}
	rows = append(rows, rowOf(t, "esxi_hdd_https_null_10g_mtu1500_x1", 1), rowOf(t, "pattern_nvme", 900), rowOf(t, "pattern_nvme_to3", 300))
	curves := bench.Curves(rows)
	if len(curves) != 2 || curves[0].Name != "esxi_ssd_https_null_10g_mtu1500" || len(curves[0].Points) != 5 || curves[0].Plateau() != (bench.Point{Count: 8, MiBs: 250}) {
		t.Fatalf("curves are %+v", curves)
	}
	if got := curves[1].String(); got != "pattern_nvme: 900.0 MiB/s at 1 destination; more is no gain" {
		t.Errorf("second curve is %q", got)
	}
	for _, c := range bench.Seed().Curves() {
		if len(c.Points) < 2 || c.Plateau().MiBs <= c.Points[0].MiBs {
			t.Errorf("published curve without a rise: %+v", c)
		}
	}
}
