package bench_test

import (
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/bench"
)

func TestRowNamesRoundTrip(t *testing.T) {
	rows := bench.Seed().Matrix
	if len(rows) != 19 {
		t.Fatalf("%d rows, want 19", len(rows))
	}
	seen := map[string]bool{}
	for _, r := range rows {
		s, err := bench.ParseName(r.Name())
		if err != nil || s != r.Setup || seen[r.Name()] {
			t.Errorf("%s: %+v, %v", r.Name(), s, err)
		}
		seen[r.Name()] = true
		if r.Origin == "" || r.Rate() <= 0 {
			t.Errorf("%s has no origin or no rate: %+v", r.Name(), r)
		}
	}
	for _, bad := range []string{"", "esxi_hdd", "esxi_hdd_nfs_hdd_1g_mtu", "esxi_hdd_nfs_hdd_1g_mtu1500_async"} {
		if s, err := bench.ParseName(bad); err == nil {
			t.Errorf("ParseName(%q) = %+v, want an error", bad, s)
		}
	}
}

// Two published rates contradict their durations. Rate uses the durations.
func TestContradictoryRowsUseDurations(t *testing.T) {
	var names []string
	for _, r := range bench.Seed().Matrix {
		if r.Contradicts() {
			names = append(names, r.Name())
			if r.Rate() > 2 {
				t.Errorf("rate of %s is %.1f MiB/s, want at most 2", r.Name(), r.Rate())
			}
		}
	}
	if got := strings.Join(names, " "); got != "esxi_hdd_nfs_hdd_1g_mtu1500_sync esxi_hdd_nfs_hdd_25g_mtu1500_sync" {
		t.Errorf("rows that contradict themselves are %s", got)
	}
}

func FuzzParseName(f *testing.F) {
	f.Add("esxi_ssd_nfs_nvme_25g_mtu9000_sync")
	f.Fuzz(func(t *testing.T, name string) {
		s, err := bench.ParseName(name)
		if err == nil && s.Name() != name {
			again, err := bench.ParseName(s.Name())
			if err != nil || again != s {
				t.Errorf("%q: the name of %+v is parsed as another setup", name, s)
			}
		}
	})
}
