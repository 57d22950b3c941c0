package openstack

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/inventory"
	lab "github.com/decamp/decamp/internal/lab/openstack"
	"github.com/decamp/decamp/internal/target"
	"github.com/decamp/decamp/test/boot"
	tinyguest "github.com/decamp/decamp/test/guest"
)

// A delivered guest is right when it comes up from what Cinder has, on the hardware that Nova makes by the
// volume's metadata.
func TestDeliveredGuestsBoot(t *testing.T) {
	for _, v := range []struct {
		name     string
		guest    tinyguest.Name
		bus      inventory.Bus
		hardware target.Hardware
		driver   string
		cards    int // that the test guest's kernel has a driver for
	}{
		{"virtio", tinyguest.BIOS, inventory.PVSCSI, target.Virtio, "virtio_scsi", 1},
		{"ide", tinyguest.NoVirtio, inventory.IDE, target.Compat, "ata_piix", 0},
	} {
		t.Run(v.name, func(t *testing.T) {
			vm := with(web(), func(vm *inventory.VM) {
				vm.Disks, vm.Controllers[0].Bus = vm.Disks[:1], v.bus
				vm.Disks[0].Capacity = tinyguest.Size
			})
			cloud := serve(t, lab.Config{})
			d := deliveryOf(t, vm)
			d.Hardware, d.Images[0].Path = v.hardware, tinyguest.Image(t, v.guest)
			deliver(t, place(t, cloud, "lab"), d)
			m, err := boot.Domain(t.Context(), nova(t, cloud), boot.Options{Deadline: 10 * time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			if m.Driver != v.driver || len(m.Cards) != v.cards || v.cards > 0 && m.Cards[0].MAC != vm.NICs[0].MAC {
				t.Errorf("the guest sees %+v", m)
			}
		})
	}
}

// nova writes the domain that Nova's libvirt driver makes of the boot volume and the port, as a file.
func nova(t *testing.T, cloud *lab.Cloud) string {
	t.Helper()
	volume, folder := cloud.Volumes()[0], t.TempDir()
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
	text := fmt.Sprintf(`<domain type='qemu'>
  <name>server</name>
  <uuid>11111111-2222-3333-4444-555555555555</uuid>
  <memory unit='MiB'>256</memory>
  <vcpu>2</vcpu>
  <os><type arch='x86_64' machine='pc'>hvm</type></os>
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
</domain>`, controller, image, disk, hardware["hw_disk_bus"], cloud.Ports()[0].MAC, hardware["hw_vif_model"])
	path := filepath.Join(folder, "server.xml")
	write(t, path, []byte(text))
	return path
}
