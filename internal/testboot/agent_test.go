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

// withAgent adds the channel of the guest agent to a domain.
func withAgent(xml string) string {
	return strings.Replace(xml, "</devices>", "  <channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>\n</devices>", 1)
}

// The QEMU guest agent reports the operating system and the addresses of a guest that shows no other sign of success.
// Expected addresses that it does not report are missing.
func TestAgentAnswers(t *testing.T) {
	t.Parallel()
	const mac = "00:50:56:ab:cd:01"
	present, missing := netip.MustParseAddr(guest.AgentAddress), netip.MustParseAddr("192.0.2.77")
	image := guest.Image(t, guest.Agent)
	want := []testboot.Static{{MAC: mac, Addresses: []netip.Addr{present, missing}}}
	r := bootEmulated(t, withAgent(domainXML("bios", "vmpvscsi", "vmxnet3", image)), testboot.Options{Static: want, Deadline: 30 * time.Minute})
	if !r.Booted() || r.Agent == nil || r.Agent.OS != guest.OSName || r.Agent.HostName != "tiny" || r.Agent.Kernel == "" {
		t.Fatalf("%+v, agent %+v", r, r.Agent)
	}
	if want := "its agent answers: " + guest.OSName + ", kernel " + r.Agent.Kernel + ", host name tiny, " + guest.AgentCard + " " + guest.AgentAddress; r.Reason != want {
		t.Errorf("reason %q, want %q", r.Reason, want)
	}
	if len(r.Agent.Cards) != 1 || r.Agent.Cards[0].MAC != mac || r.Agent.Cards[0].Name != guest.AgentCard {
		t.Errorf("cards %+v", r.Agent.Cards)
	}
	if want[0].Addresses = want[0].Addresses[1:]; !reflect.DeepEqual(r.Missing, want) {
		t.Errorf("missing %v, want %v", r.Missing, want)
	}
}

// An agent without a channel and a channel without an agent do not change the verdict.
func TestTrialsWithoutAgentResponse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		xml  string
		o    testboot.Options
		want testboot.Verdict
	}{
		"an agent without a channel": {domainXML("bios", "virtio-scsi", "virtio", guest.Image(t, guest.Agent)), testboot.Options{}, testboot.Stopped},
		"a channel without an agent": {withAgent(domainXML("bios", "virtio-scsi", "virtio", powerOffSector(t))), testboot.Options{}, testboot.Stopped},
		"a marker":                   {withAgent(domainXML("bios", "virtio-scsi", "virtio", guest.BootSector(t, 0))), testboot.Options{Expect: marker, Settle: time.Second}, testboot.Booted},
	} {
		if name == "an agent without a channel" && !lane.Slow {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.o.Deadline = 30 * time.Minute
			if r := bootEmulated(t, c.xml, c.o); r.Verdict != c.want || r.Agent != nil || strings.Contains(r.Reason, "agent") || r.Missing != nil {
				t.Errorf("%+v, want %s", r, c.want)
			}
		})
	}
}

// powerOffSector writes an image of a guest that powers itself off.
func powerOffSector(t *testing.T) string {
	t.Helper()
	disk := make([]byte, 1<<20)
	copy(disk, []byte{
		0xba, 0x04, 0x06, // mov dx, 0x604: ACPI control register of the machine pc
		0xb8, 0x00, 0x20, // mov ax, 0x2000: enter state S5
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
