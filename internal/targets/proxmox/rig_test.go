package proxmox

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab/pve"
	"github.com/decamp/decamp/internal/sleep"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/platform"
)

// biosVM has two disks and a network card.
func biosVM() *inventory.VM {
	return &inventory.VM{
		Ref: "vm-7", Name: "web 01", UUID: "564d1234-0000-1111-2222-333344445555",
		InstanceUUID: "52aa0000-1111-2222-3333-444455556666", HostName: "esx1",
		VMX:     inventory.Path{Datastore: "ds1", File: "web 01/web 01.vmx"},
		GuestID: "debian12_64Guest", Annotation: "bill to: R&D\ndecamp-source: no such thing",
		CPUs: 4, CoresPerSocket: 2, MemoryMiB: 256, Firmware: inventory.BIOS,
		Controllers: []inventory.Controller{{Key: 1000, Bus: inventory.PVSCSI}},
		Disks: []inventory.Disk{
			{Key: 2000, Controller: 1000, Capacity: 1 << 20, UUID: "6000C29a-4cbb-f2e9-5b95-000000000001", Thin: true, Used: 1 << 20},
			{Key: 2001, Controller: 1000, Unit: 1, Capacity: 2 << 20},
		},
		NICs: []inventory.NIC{{
			Key: 4000, Model: "vmxnet3", MAC: "00:50:56:ab:cd:01", Network: "VM Network", Connected: true, StartConnected: true,
		}},
		CDROMs: 1,
	}
}

// changedVM applies change to vm and returns it.
func changedVM(vm *inventory.VM, change func(*inventory.VM)) *inventory.VM {
	change(vm)
	return vm
}

// startServer starts a node that stops when the test ends.
func startServer(t *testing.T, c pve.Config) *pve.Server {
	t.Helper()
	c.Dir = t.TempDir()
	s, err := pve.Start(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// newPlatform returns a Platform at the node, with short waits.
func newPlatform(t *testing.T, s *pve.Server, o Options) *Platform {
	t.Helper()
	if o.Token == "" {
		o.Token = Token(s.Token())
	}
	if o.Fingerprint == "" {
		o.Fingerprint = s.Fingerprint()
	}
	o.Wait = func(ctx context.Context, _ time.Duration) error { return sleep.For(ctx, 2*time.Millisecond) }
	p, err := New(s.URL()+"/"+s.Node(), o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// newDelivery returns a delivery of vm. Each word of its images contains its own offset.
func newDelivery(t *testing.T, vm *inventory.VM) platform.Delivery {
	t.Helper()
	d := platform.Delivery{Definition: targets.Definition{VM: vm, Decamp: "v0.0.0-test"}}
	folder := t.TempDir()
	for _, each := range vm.Disks {
		data := make([]byte, each.Capacity)
		if err := disk.NewPattern(each.Capacity).ReadAt(t.Context(), data, 0); err != nil {
			t.Fatal(err)
		}
		data[0] = byte(each.Key) // no two images are equal
		path := filepath.Join(folder, "disk"+string(rune('0'+each.Key%10))+".raw")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		d.Images = append(d.Images, targets.Image{Key: each.Key, Path: path, Format: targets.Raw, Size: each.Capacity, Root: "aa55"})
	}
	return d
}

// guestOf returns the VMID and the options of the only guest that has vm's tag.
func guestOf(t *testing.T, s *pve.Server, vm *inventory.VM) (int, map[string]string) {
	t.Helper()
	found := 0
	for _, vmid := range s.VMIDs() {
		if strings.Contains(s.Guest(vmid)["tags"], ownTag(vm)) {
			if found != 0 {
				t.Fatalf("guests %d and %d both have the tag of VM %s", found, vmid, vm.Name)
			}
			found = vmid
		}
	}
	if found == 0 {
		t.Fatalf("no guest has the tag of VM %s: %v", vm.Name, s.VMIDs())
	}
	return found, s.Guest(found)
}

// checkGone checks that no guests are left except others, and no uploads. Without others it also checks that no
// volumes are left.
func checkGone(t *testing.T, s *pve.Server, others ...int) {
	t.Helper()
	if got := s.VMIDs(); len(got) != len(others) {
		t.Errorf("got guests %v, want %v", got, others)
	}
	for _, vmid := range others {
		if s.Guest(vmid) == nil {
			t.Errorf("foreign guest %d is gone", vmid)
		}
	}
	left := s.Uploads()
	for deadline := time.Now().Add(10 * time.Minute); len(left) > 0 && time.Now().Before(deadline); left = s.Uploads() {
		time.Sleep(10 * time.Millisecond) // the node detects an aborted upload with a delay
	}
	if len(left) > 0 {
		t.Errorf("remaining uploads: %v", left)
	}
	if left := s.Volumes(); len(others) == 0 && len(left) > 0 {
		t.Errorf("remaining volumes: %v", left)
	}
}

// checkDelivered checks that the guest of d is complete, with the data of d's images.
func checkDelivered(t *testing.T, s *pve.Server, d platform.Delivery) {
	t.Helper()
	vmid, config := guestOf(t, s, d.VM)
	if got := parseDescription(config["description"], d.VM, vmid); got != (guestStatus{ours: true, images: imagesHash(d.Images)}) {
		t.Errorf("guest %d has status %+v in its description: %q", vmid, got, config["description"])
	}
	m, err := Config(d.Definition, Options{Storage: "local-lvm", Bridge: "vmbr0", CPU: "x86-64-v2-AES"})
	if err != nil {
		t.Fatal(err)
	}
	if config["boot"] != m.Boot {
		t.Errorf("boot order %q, want %q", config["boot"], m.Boot)
	}
	for _, each := range m.Disks {
		img := d.Images[each.Image]
		if err := s.Compare(t.Context(), config[each.Slot], img.Path, string(img.Format)); err != nil {
			t.Errorf("%s is %q: %v", each.Slot, config[each.Slot], err)
		}
	}
	if left := s.Uploads(); len(left) > 0 {
		t.Errorf("remaining uploads: %v", left)
	}
	if got := len(s.Volumes()); got != len(m.Disks) {
		t.Errorf("%d volumes for %d disks: %v", got, len(m.Disks), s.Volumes())
	}
}
