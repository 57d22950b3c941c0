//go:build slow

package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/test/guest"
)

// A guest whose configuration names a missing network card boots without its address. The trial boot finds that with
// the guest agent and reports it before publication.
func TestTrialReportsLostAddress(t *testing.T) {
	t.Parallel()
	image, err := os.ReadFile(guest.Image(t, guest.Agent))
	must(t, err)
	lost := filepath.Join(t.TempDir(), "lost.raw")
	must(t, os.WriteFile(lost, bytes.ReplaceAll(image, []byte("iface eth0 inet"), []byte("iface eth9 inet")), 0o600))
	const mac = "00:50:56:ab:cd:01"
	r := newRig(t, lab.Config{VMs: []lab.VM{{Name: "web01", MemoryMB: 256, NICs: []lab.NIC{{Model: "vmxnet3", MAC: mac, AddressType: "manual"}},
		Disks: []lab.Disk{{File: lost, Controller: "pvscsi"}}}}}).withFingerprint()
	r.migrate("web01", "--hardware", "virtio", "--trial").wantExit(0).wantOutput("trial boot: it boots", "its agent answers: "+guest.OSName, "host name tiny",
		"address-missing", "network card "+mac+" has not got "+guest.AgentAddress)
	domain, err := os.ReadFile(filepath.Join(r.vmsDir(), "web01", "domain.xml"))
	must(t, err)
	if !strings.Contains(string(domain), "org.qemu.guest_agent.0") {
		t.Error("domain.xml has no channel for the agent")
	}
}
