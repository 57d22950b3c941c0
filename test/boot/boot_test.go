package boot

import (
	"crypto/rand"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tinyguest "github.com/decamp/decamp/test/guest"
	"github.com/decamp/decamp/test/lane"
)

// requireTool skips the test if a tool is missing.
func requireTool(t *testing.T, tool string) {
	t.Helper()
	if _, err := exec.LookPath(tool); err != nil {
		t.Skipf("no %s: run scripts/setup.sh demo", tool)
	}
}

// writeDomain writes the named domain of testdata with image as its disk, and returns its path. replace has pairs of old
// and new text.
func writeDomain(t *testing.T, name, image string, replace ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(replace); i += 2 {
		if !strings.Contains(string(text), replace[i]) {
			t.Fatalf("%s has no %s to replace", name, replace[i])
		}
	}
	xml := strings.NewReplacer(append(replace, "@IMAGE@", image)...).Replace(string(text))
	path := filepath.Join(t.TempDir(), "domain.xml")
	if err := os.WriteFile(path, []byte(xml), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDomain(t *testing.T) {
	t.Parallel()
	requireTool(t, program)
	tests := []struct {
		xml      string
		guest    tinyguest.Name
		driver   string
		card     Card
		uuid     string
		firmware string
	}{
		{"bios-pvscsi.xml", tinyguest.BIOS, "vmw_pvscsi",
			Card{"eth0", "00:50:56:ab:cd:01", "vmxnet3"}, "564d1234-0000-1111-2222-333344445555", "bios"},
		{"bios-pvscsi.xml", tinyguest.NoVirtio, "vmw_pvscsi",
			Card{"eth0", "00:50:56:ab:cd:01", "vmxnet3"}, "564d1234-0000-1111-2222-333344445555", "bios"},
		{"efi-virtio.xml", tinyguest.UEFI, "virtio_scsi",
			Card{"eth0", "00:50:56:ab:cd:02", "virtio_net"}, "564d5678-0000-1111-2222-333344445555", "efi"},
	}
	for _, tt := range tests {
		if tt.guest != tinyguest.UEFI && !lane.Slow {
			continue // make demo boots NoVirtio from its domain and compares the marker
		}
		t.Run(string(tt.guest), func(t *testing.T) {
			t.Parallel()
			image := tinyguest.Image(t, tt.guest)
			m, err := Domain(t.Context(), writeDomain(t, tt.xml, image), Options{})
			if err != nil {
				t.Fatal(err)
			}
			if m.Disk != "sda" || m.Driver != tt.driver || m.UUID != tt.uuid || m.Firmware != tt.firmware {
				t.Errorf("marker %+v", m)
			}
			if len(m.Cards) != 1 || m.Cards[0] != tt.card {
				t.Errorf("network cards %+v, want %+v", m.Cards, tt.card)
			}
			if m.Boots != 1 {
				t.Errorf("boot %d of the disk: an earlier trial boot wrote to it", m.Boots)
			}
		})
	}
}

// Domain returns an error if the VM does not boot.
func TestDomainDoesNotBoot(t *testing.T) {
	t.Parallel()
	requireTool(t, program)
	t.Run("garbage", func(t *testing.T) {
		t.Parallel()
		garbage := filepath.Join(t.TempDir(), "garbage.raw")
		noise := make([]byte, 1<<20)
		_, _ = rand.Read(noise)
		if err := os.WriteFile(garbage, noise, 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := Domain(t.Context(), writeDomain(t, "bios-pvscsi.xml", garbage), Options{Deadline: 5 * time.Second})
		if !errors.Is(err, ErrNoMarker) {
			t.Errorf("got %v, want ErrNoMarker", err)
		}
	})
	t.Run("driver missing", func(t *testing.T) {
		if !lane.Slow {
			return // TestUnbootableGuestsHaveVerdictAndRemedy of package testboot has this guest
		}
		t.Parallel()
		xml := writeDomain(t, "bios-pvscsi.xml", tinyguest.Image(t, tinyguest.NoVirtio),
			"model='vmpvscsi'", "model='virtio-scsi'")
		_, err := Domain(t.Context(), xml, Options{})
		if err == nil || !strings.Contains(err.Error(), "no root device /dev/sda1") {
			t.Errorf("got %v, want the error of the guest", err)
		}
	})
	t.Run("image missing", func(t *testing.T) {
		_, err := Domain(t.Context(), writeDomain(t, "bios-pvscsi.xml", "/nonexistent.raw"), Options{})
		if !errors.Is(err, ErrNoMarker) || !strings.Contains(err.Error(), "/nonexistent.raw") {
			t.Errorf("got %v, want ErrNoMarker and the message of QEMU", err)
		}
	})
}

func TestUnsupportedDomain(t *testing.T) {
	tests := []struct{ name, old, new, want string }{
		{"device", "<memballoon model='none'/>", "<hostdev mode='subsystem'/>", "domain/devices/hostdev"},
		{"attribute", "<clock offset='utc'/>", "<clock offset='utc' basis='x'/>", "attribute basis"},
		{"clock", "offset='utc'", "offset='variable'", "variable"},
		{"machine", "machine='pc'", "machine='microvm'", "microvm"},
		{"domain type", "type='kvm'", "type='xen'", "xen"},
		{"controller", "model='vmpvscsi'", "model='buslogic'", "buslogic"},
		{"controller missing", "<controller type='scsi' index='0' model='vmpvscsi'/>", "", "no scsi controller 0"},
		{"address missing", "<address type='drive' controller='0' bus='0' target='3' unit='0'/>", "", "no drive <address>"},
		{"format", "type='raw'", "type='vdi'", "vdi"},
		{"card", "type='vmxnet3'", "type='rtl8139'", "rtl8139"},
		{"topology", "cores='2'", "cores='4'", "is not 2 vcpus"},
		{"memory", "unit='MiB'", "unit='KiB'", "KiB"},
		{"identity", "name='serial'>VMware-56 4d, with a comma", "name='uuid'>00000000-0000-0000-0000-000000000000", "is not the domain's"},
		{"memballoon", "memballoon model='none'", "memballoon model='virtio'", "memballoon"},
		{"torn", "</domain>", "", "EOF"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Domain(t.Context(), writeDomain(t, "bios-pvscsi.xml", "/dev/null", tt.old, tt.new), Options{})
			if err == nil || errors.Is(err, ErrNoMarker) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error about %q", err, tt.want)
			}
		})
	}
}
