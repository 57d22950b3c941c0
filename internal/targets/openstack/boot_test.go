package openstack

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/inventory"
	lab "github.com/decamp/decamp/internal/lab/openstack"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/test/boot"
	tinyguest "github.com/decamp/decamp/test/guest"
	"github.com/decamp/decamp/test/lane"
)

// A started guest boots from its Cinder volume, on the hardware that Nova derives from the volume's metadata. As a
// control, a guest with the wrong firmware type does not boot.
func TestDeliveredGuestsBoot(t *testing.T) {
	for _, v := range []struct {
		name     string
		guest    tinyguest.Name
		firmware inventory.Firmware
		bus      inventory.Bus
		hardware targets.Hardware
		driver   string // empty if the guest must not boot
		cards    int    // number of cards with a driver in the test guest's kernel
		slow     bool
	}{
		{"virtio", tinyguest.BIOS, inventory.BIOS, inventory.PVSCSI, targets.Virtio, "virtio_scsi", 1, true},
		{"ide", tinyguest.NoVirtio, inventory.BIOS, inventory.IDE, targets.Compat, "ata_piix", 0, true},
		{"uefi", tinyguest.UEFI, inventory.EFI, inventory.PVSCSI, targets.Virtio, "virtio_scsi", 1, false},
		{"uefi as bios", tinyguest.UEFI, inventory.BIOS, inventory.PVSCSI, targets.Virtio, "", 0, true},
	} {
		if v.slow && !lane.Slow {
			continue
		}
		vm := changedVM(webVM(), func(vm *inventory.VM) {
			vm.Disks, vm.Controllers[0].Bus, vm.Firmware = vm.Disks[:1], v.bus, v.firmware
			vm.Disks[0].Capacity = tinyguest.Size
		})
		cloud := startCloud(t, lab.Config{})
		d := newTestDelivery(t, vm)
		d.Hardware, d.Images[0].Path = v.hardware, tinyguest.Image(t, v.guest)
		p := newPlatform(t, cloud, "lab")
		mustDeliver(t, p, d)
		mustStart(t, p, d)
		domain := writeNovaDomain(t, cloud)
		t.Run(v.name, func(t *testing.T) {
			t.Parallel() // the control test waits until its deadline
			if v.driver == "" {
				checkDoesNotBoot(t, domain)
				return
			}
			m, err := boot.Domain(t.Context(), domain, boot.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if m.Firmware != string(v.firmware) {
				t.Errorf("the guest booted by %s, want %s", m.Firmware, v.firmware)
			}
			if m.Driver != v.driver || len(m.Cards) != v.cards || v.cards > 0 && m.Cards[0].MAC != vm.NICs[0].MAC {
				t.Errorf("the guest sees %+v", m)
			}
		})
	}
}

// checkDoesNotBoot checks that the firmware of a domain finds no system to boot. A slow machine does not change the result.
func checkDoesNotBoot(t *testing.T, domain string) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "serial")
	_, err := boot.Domain(t.Context(), domain, boot.Options{Deadline: time.Minute, Log: log})
	output, readErr := os.ReadFile(log)
	if !errors.Is(err, boot.ErrNoMarker) || readErr != nil || bytes.Contains(output, []byte("Linux")) {
		t.Errorf("got %v, %v; output %q", err, readErr, output)
	}
}

// writeNovaDomain writes the domain that Nova's libvirt driver creates for the server's boot volume and port. It
// returns the path.
func writeNovaDomain(t *testing.T, cloud *lab.Cloud) string {
	t.Helper()
	server := onlyServer(t, cloud)
	volume, folder := volumeByID(t, cloud, server.Volumes[0]), t.TempDir()
	image := filepath.Join(folder, "volume")
	writeFile(t, image, volume.Data)
	if err := os.Truncate(image, int64(volume.Size)<<30); err != nil {
		t.Fatal(err)
	}
	hardware := volume.ImageMetadata
	controller, disk := "<controller type='ide' index='0'/>", map[string]string{"scsi": "sda", "sata": "sda", "ide": "hda"}[hardware["hw_disk_bus"]]
	if hardware["hw_disk_bus"] == "scsi" {
		controller = fmt.Sprintf("<controller type='scsi' index='0' model='%s'/>", hardware["hw_scsi_model"])
	}
	loader := ""
	if hardware["hw_firmware_type"] == "uefi" {
		loader = fmt.Sprintf("<firmware><feature enabled='%s' name='secure-boot'/></firmware>", map[bool]string{true: "yes", false: "no"}[hardware["os_secure_boot"] == "required"])
	}
	text := fmt.Sprintf(`<domain type='qemu'>
  <name>server</name>
  <uuid>11111111-2222-3333-4444-555555555555</uuid>
  <memory unit='MiB'>256</memory>
  <vcpu>2</vcpu>
  <os firmware='%s'><type arch='x86_64' machine='%s'>hvm</type>%s</os>
  <features><acpi/><apic/></features>
  <devices>
    %s
    <disk type='file' device='disk'>
      <driver name='qemu' type='raw'/>
      <source file='%s'/>
      <target dev='%s' bus='%s'/>
      <boot order='1'/>
      <address type='drive' controller='0' bus='0' target='0' unit='0'/>
    </disk>
    <interface type='network'><source network='default'/><mac address='%s'/><model type='%s'/></interface>
    <serial type='pty'/>
  </devices>
</domain>`, map[string]string{"uefi": "efi", "bios": "bios"}[hardware["hw_firmware_type"]], cmp.Or(hardware["hw_machine_type"], "pc"), loader, controller, image, disk, hardware["hw_disk_bus"], cloud.Ports()[0].MAC, hardware["hw_vif_model"])
	path := filepath.Join(folder, "server.xml")
	writeFile(t, path, []byte(text))
	return path
}

// volumeByID returns the volume with this ID.
func volumeByID(t *testing.T, cloud *lab.Cloud, id string) lab.Volume {
	t.Helper()
	all := cloud.Volumes()
	at := slices.IndexFunc(all, func(v lab.Volume) bool { return v.ID == id })
	if at < 0 {
		t.Fatalf("no volume has ID %s", id)
	}
	return all[at]
}
