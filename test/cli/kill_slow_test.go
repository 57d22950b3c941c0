//go:build slow

package cli

import (
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/decamp/decamp/internal/lab"
)

// A migration that is killed four times at random positions of the copy continues and publishes a correct image.
func TestKilledAtRandomBytes(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"raw", "qcow2"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			cfg := slowLab()
			cfg.VMs[0].Disks = append(cfg.VMs[0].Disks, lab.Disk{Capacity: 33<<20 + 512, Fill: 50, Seed: 9})
			r := newRig(t, cfg).withFingerprint().withStepwiseEvents()
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			rnd := rand.New(rand.NewPCG(seed, 0))
			for range 4 {
				u := r.startMigration("web01", "--format", format)
				u.untilCopied(1<<20 + rnd.Int64N(30<<20))
				u.endWith(syscall.SIGKILL)
			}
			r.lab.SetLimits(lab.Limits{})
			r.migrate("web01", "--format", format).wantExit(0)
			r.compareImages(filepath.Join(r.vmsDir(), "web01"), format)
			r.run("verify", filepath.Join(r.vmsDir(), "web01")).wantExit(0)
			r.checkOnlyPublished("web01")
		})
	}
}
