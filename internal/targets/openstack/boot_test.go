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

// A started guest is right when it comes up from what Cinder has, on the hardware that Nova makes by the
// volume's metadata. One that is said to have another firmware is the control: it does not come up.
func TestDeliveredGuestsBoot(t *testing.T) {
	for _, v := range []struct {
		name     string
		guest    tinyguest.Name
		firmware inventory.Firmware
		bus      inventory.Bus
		hardware targets.Hardware
		driver   string // none: it does not boot
		cards    int    // that the test guest's kernel has a driver for
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
		vm := with(web(), func(vm *inventory.VM) {
			vm.Disks, vm.Controllers[0].Bus, vm.Firmware = vm.Disks[:1], v.bus, v.firmware
			vm.Disks[0].Capacity = tinyguest.Size
		})
		cloud := serve(t, lab.Config{})
		d := deliveryOf(t, vm)
		d.Hardware, d.Images[0].Path = v.hardware, tinyguest.Image(t, v.guest)
		p := place(t, cloud, "lab")
		deliver(t, p, d)
		startOf(t, p, d)
		domain := nova(t, cloud)
		t.Run(v.name, func(t *testing.T) {
			t.Parallel() // the control waits for nothing to happen
			if v.driver == "" {
				staysDark(t, domain)
				return
			}
			m, err := boot.Domain(t.Context(), domain, boot.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if m.Firmware != string(v.firmware) {
				t.Errorf("it came up by %s", m.Firmware)
			}
			if m.Driver != v.driver || len(m.Cards) != v.cards || v.cards > 0 && m.Cards[0].MAC != vm.NICs[0].MAC {
				t.Errorf("the guest sees %+v", m)
			}
		})
	}
}

// staysDark asserts that a firmware finds nothing to start in a domain. A slow machine makes that no less true.
func staysDark(t *testing.T, domain string) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "serial")
	_, err := boot.Domain(t.Context(), domain, boot.Options{Deadline: time.Minute, Log: log})
	said, readErr := os.ReadFile(log)
	if !errors.Is(err, boot.ErrNoMarker) || readErr != nil || bytes.Contains(said, []byte("Linux")) {
		t.Errorf("%v, %v; it said %q", err, readErr, said)
	}
}

// nova writes the domain that Nova's libvirt driver makes of the server's boot volume and port, as a file.
func nova(t *testing.T, cloud *lab.Cloud) string {
	t.Helper()
	server := onlyServer(t, cloud)
	volume, folder := volumeOf(t, cloud, server.Volumes[0]), t.TempDir()
	image := filepath.Join(folder, "volume")
	write(t, image, volume.Data)
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
	write(t, path, []byte(text))
	return path
}

// volumeOf is the one of an ID.
func volumeOf(t *testing.T, cloud *lab.Cloud, id string) lab.Volume {
	t.Helper()
	all := cloud.Volumes()
	at := slices.IndexFunc(all, func(v lab.Volume) bool { return v.ID == id })
	if at < 0 {
		t.Fatalf("no volume is %s", id)
	}
	return all[at]
}
