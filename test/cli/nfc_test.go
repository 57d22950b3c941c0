package cli

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/test/lane"
)

func TestMigrateByNFC(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"raw":   {"--format", "raw", "--spot", "1M,2"},
		"qcow2": {"--format", "qcow2", "--nfc-plain", "--nfc-handles", "2", "--nfc-buffer", "64K"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, small()).trusting()
			r.migrate("web01", append(args, "--transport", "nfc")...).ends(0).says("is migrated and published")
			folder := filepath.Join(r.vms(), "web01")
			r.matchesSource(folder, name)
			r.run("verify", folder).ends(0).says("is identical with the copied data")
			if stats := r.lab.Stats().NFC; stats.ReadBytes == 0 || stats.SessionsOpen > 0 {
				t.Errorf("%+v", stats)
			}
		})
	}
}

// decamp prints the host's network for the disks, if it is found by its tag or selected.
func TestNFCNetworkIsShown(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"(vmk2, tagged for backup traffic)": nil,
		"(vmk2, as configured)":             {"--network", "vmk2"},
	} {
		if !lane.Slow && args != nil {
			continue // TestWarmVMotionWithAChosenNetwork selects one
		}
		cfg := small()
		cfg.NFC.Network = "127.0.0.2"
		r := newRig(t, cfg).trusting()
		r.migrate("web01", append(args, "--transport", "nfc")...).ends(0).says("Disks are read over NFC from 127.0.0.2:").says(want)
	}
}

// Killed in the middle, the same command goes on: what is safe is not read again.
func TestKilledNFCMigrationContinues(t *testing.T) {
	t.Parallel()
	const size = slowBytes
	r := newRig(t, lab.Config{
		NFC: lab.NFC{HostRate: slowRate},
		VMs: []lab.VM{{Name: "web01", ChangeTracking: true, Disks: []lab.Disk{{Capacity: size, Fill: 100, Seed: 3}}}},
	}).trusting()
	args := []string{"--transport", "nfc", "--spot", "0"} // a sample that is read again would be counted
	u := r.begin("web01", args...)
	u.untilSafe(r, r.vms())
	u.end(syscall.SIGKILL)
	must(t, r.lab.SetNFC(lab.NFC{}))
	r.lab.ResetStats()
	const safe = 5 // percent
	r.restarted(safe, args...)
	if again := r.lab.Stats().NFC.ReadBytes; again == 0 || again > size*(100-safe)/100 {
		t.Errorf("%d MiB were read by the second run", again>>20)
	}
}
