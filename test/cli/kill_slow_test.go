//go:build slow

package cli

import (
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/decamp/decamp/internal/lab"
)

// Killed at random bytes of the copy, again and again, then left alone.
func TestKilledAtRandomBytes(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"raw", "qcow2"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			cfg := slow()
			cfg.VMs[0].Disks = append(cfg.VMs[0].Disks, lab.Disk{Capacity: 33<<20 + 512, Fill: 50, Seed: 9})
			r := newRig(t, cfg).trusting().steps()
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			rnd := rand.New(rand.NewPCG(seed, 0))
			for range 4 {
				u := r.begin("web01", "--format", format)
				u.until(1<<20 + rnd.Int64N(30<<20))
				u.end(syscall.SIGKILL)
			}
			r.lab.SetLimits(lab.Limits{})
			r.migrate("web01", "--format", format).ends(0)
			r.matchesSource(filepath.Join(r.vms(), "web01"), format)
			r.run("verify", filepath.Join(r.vms(), "web01")).ends(0)
			r.onlyPublished("web01")
		})
	}
}
