package cli

import (
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/test/guest"
)

// A dry run prints the channel of the guest agent if the VM gets virtio hardware, and the guest has the agent or gets it.
func TestDryRunPrintsAgentChannel(t *testing.T) {
	t.Parallel()
	const channel = "channel for QEMU's guest agent"
	r := newRig(t, lab.Config{VMs: []lab.VM{
		{Name: "with", Disks: []lab.Disk{{File: guest.Image(t, guest.Agent), Controller: "pvscsi"}}},
		{Name: "without", Disks: []lab.Disk{{File: guest.Image(t, guest.NoVirtio), Controller: "pvscsi"}}},
	}}).withFingerprint()
	for _, c := range []struct {
		vm   string
		more []string
		want bool
	}{
		{"with", []string{"--hardware", "virtio"}, true},
		{"with", nil, false},
		{"without", []string{"--hardware", "virtio"}, false},
		{"without", []string{"--hardware", "virtio", "--guest-agent"}, true},
	} {
		out := r.migrate(c.vm, append(c.more, "--dry-run")...).wantExit(0).stdout
		if strings.Contains(out, channel) != c.want {
			t.Errorf("%s %q: want the channel printed: %v:\n%s", c.vm, c.more, c.want, out)
		}
	}
}
