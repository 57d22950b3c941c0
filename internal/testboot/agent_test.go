package testboot_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/testboot"
	"github.com/decamp/decamp/test/guest"
	"github.com/decamp/decamp/test/lane"
)

// withAgent gives a domain the channel of the guest's agent.
func withAgent(xml string) string {
	return strings.Replace(xml, "</devices>", "  <channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>\n</devices>", 1)
}

// QEMU's own agent is asked, in a guest that shows no other sign, and tells who it is and which
// addresses it has. Those that it is to have and has not are missing.
func TestAgentAnswers(t *testing.T) {
	t.Parallel()
	const mac = "00:50:56:ab:cd:01"
	has, lost := netip.MustParseAddr(guest.AgentAddress), netip.MustParseAddr("192.0.2.77")
	image := guest.Image(t, guest.Agent)
	want := []testboot.Static{{MAC: mac, Addresses: []netip.Addr{has, lost}}}
	r := bootWithFallback(t, withAgent(domain("bios", "vmpvscsi", "vmxnet3", image)), testboot.Options{Static: want, Deadline: 10 * time.Minute})
	if !r.Booted() || r.Agent == nil || r.Agent.OS != guest.OSName || r.Agent.HostName != "tiny" || r.Agent.Kernel == "" {
		t.Fatalf("%+v, agent %+v", r, r.Agent)
	}
	if want := "its agent answers: " + guest.OSName + ", kernel " + r.Agent.Kernel + ", host name tiny, " + guest.AgentCard + " " + guest.AgentAddress; r.Reason != want {
		t.Errorf("%q, want %q", r.Reason, want)
	}
	if len(r.Agent.Cards) != 1 || r.Agent.Cards[0].MAC != mac || r.Agent.Cards[0].Name != guest.AgentCard {
		t.Errorf("cards %+v", r.Agent.Cards)
	}
	if want[0].Addresses = want[0].Addresses[1:]; !reflect.DeepEqual(r.Missing, want) {
		t.Errorf("missing %v, want %v", r.Missing, want)
	}
}

// Without its channel an agent has nobody to answer, and a channel makes no agent: guests are judged as ever.
func TestGuestsThatNoAgentAnswersFor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		xml  string
		o    testboot.Options
		want testboot.Verdict
	}{
		"an agent without a channel": {domain("bios", "virtio-scsi", "virtio", guest.Image(t, guest.Agent)), testboot.Options{}, testboot.Stopped},
		"a channel without an agent": {withAgent(domain("bios", "virtio-scsi", "virtio", powerOffSector(t))), testboot.Options{}, testboot.Stopped},
		"its marker":                 {withAgent(domain("bios", "virtio-scsi", "virtio", guest.BootSector(t, 0))), testboot.Options{Expect: marker, Settle: time.Second}, testboot.Booted},
	} {
		if name == "an agent without a channel" && !lane.Slow {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.o.Deadline = 10 * time.Minute
			if r := bootWithFallback(t, c.xml, c.o); r.Verdict != c.want || r.Agent != nil || strings.Contains(r.Reason, "agent") || r.Missing != nil {
				t.Errorf("%+v, want %s", r, c.want)
			}
		})
	}
}

// powerOffSector writes the image of a guest that powers itself off.
func powerOffSector(t *testing.T) string {
	t.Helper()
	disk := make([]byte, 1<<20)
	copy(disk, []byte{
		0xba, 0x04, 0x06, // mov dx, 0x604: the control register of the ACPI of QEMU's pc
		0xb8, 0x00, 0x20, // mov ax, 0x2000: enter the state S5
		0xef, // out dx, ax
		0xf4, // hlt
	})
	disk[510], disk[511] = 0x55, 0xaa
	path := filepath.Join(t.TempDir(), "off.raw")
	if err := os.WriteFile(path, disk, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
