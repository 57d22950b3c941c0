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
			r := newRig(t, smallLab()).withFingerprint()
			r.migrate("web01", append(args, "--transport", "nfc")...).wantExit(0).wantOutput("is migrated and published")
			folder := filepath.Join(r.vmsDir(), "web01")
			r.compareImages(folder, name)
			r.run("verify", folder).wantExit(0).wantOutput("is identical with the copied data")
			if stats := r.lab.Stats().NFC; stats.ReadBytes == 0 || stats.SessionsOpen > 0 {
				t.Errorf("%+v", stats)
			}
		})
	}
}

// decamp prints the network of the host for the disks if it finds the network by its tag or the user selects it.
func TestNFCNetworkIsShown(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"(vmk2, tagged for backup traffic)": nil,
		"(vmk2, as configured)":             {"--network", "vmk2"},
	} {
		if !lane.Slow && args != nil {
			continue // TestWarmVMotionWithAChosenNetwork selects one
		}
		cfg := smallLab()
		cfg.NFC.Network = "127.0.0.2"
		r := newRig(t, cfg).withFingerprint()
		r.migrate("web01", append(args, "--transport", "nfc")...).wantExit(0).wantOutput("Disks are read over NFC from 127.0.0.2:").wantOutput(want)
	}
}

// After decamp is killed during a copy by NFC, the same command continues and does not read the verified data again.
func TestKilledNFCMigrationContinues(t *testing.T) {
	t.Parallel()
	const size = 2 * slowBytes // the reads of the host are some MiB ahead of the copied bytes
	r := newRig(t, lab.Config{
		NFC: lab.NFC{HostRate: slowRate},
		VMs: []lab.VM{{Name: "web01", ChangeTracking: true, Disks: []lab.Disk{{Capacity: size, Fill: 100, Seed: 3}}}},
	}).withFingerprint()
	args := []string{"--transport", "nfc", "--spot", "0"} // a sample that is read again would be counted
	u := r.startMigration("web01", args...)
	u.untilManifestsGrow(r, r.vmsDir())
	u.endWith(syscall.SIGKILL)
	must(t, r.lab.SetNFC(lab.NFC{}))
	r.lab.ResetStats()
	const safe = 5 // percent
	r.checkContinues(safe, args...)
	if again := r.lab.Stats().NFC.ReadBytes; again == 0 || again > size*(100-safe)/100 {
		t.Errorf("the second run read %d MiB, want at most %d", again>>20, size*(100-safe)/100>>20)
	}
}
