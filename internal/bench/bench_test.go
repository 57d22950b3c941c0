package bench_test

import (
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/bench"
)

func TestNamesAreReadBack(t *testing.T) {
	rows := bench.Seed().Matrix
	if len(rows) != 19 {
		t.Fatalf("%d rows", len(rows))
	}
	seen := map[string]bool{}
	for _, r := range rows {
		s, err := bench.ParseName(r.Name())
		if err != nil || s != r.Setup || seen[r.Name()] {
			t.Errorf("%s: %+v, %v", r.Name(), s, err)
		}
		seen[r.Name()] = true
		if r.Origin == "" || r.Rate() <= 0 {
			t.Errorf("%s: %+v", r.Name(), r)
		}
	}
	for _, bad := range []string{"", "esxi_hdd", "esxi_hdd_nfs_hdd_1g_mtu", "esxi_hdd_nfs_hdd_1g_mtu1500_async"} {
		if s, err := bench.ParseName(bad); err == nil {
			t.Errorf("%q is %+v", bad, s)
		}
	}
}

// Two published rates cannot be those of their durations; the durations are used.
func TestRowsThatContradictThemselves(t *testing.T) {
	var names []string
	for _, r := range bench.Seed().Matrix {
		if r.Contradicts() {
			names = append(names, r.Name())
			if r.Rate() > 2 {
				t.Errorf("%s: %.1f MiB/s", r.Name(), r.Rate())
			}
		}
	}
	if got := strings.Join(names, " "); got != "esxi_hdd_nfs_hdd_1g_mtu1500_sync esxi_hdd_nfs_hdd_25g_mtu1500_sync" {
		t.Error(got)
	}
}

func FuzzParseName(f *testing.F) {
	f.Add("esxi_ssd_nfs_nvme_25g_mtu9000_sync")
	f.Fuzz(func(t *testing.T, name string) {
		s, err := bench.ParseName(name)
		if err == nil && s.Name() != name {
			again, err := bench.ParseName(s.Name())
			if err != nil || again != s {
				t.Errorf("%q: %+v", name, s)
			}
		}
	})
}
