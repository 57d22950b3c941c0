package targettest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/dir"
	"github.com/decamp/decamp/internal/targets/platform"
)

const mib = 1 << 20

// newVM returns a VM with two disks; the second is empty.
func newVM() *inventory.VM {
	return &inventory.VM{
		Ref: "7", Name: "web01", UUID: "564d1234-0000-1111-2222-333344445555",
		InstanceUUID: "52aa0000-1111-2222-3333-444455556666", HostName: "esx1",
		VMX:     inventory.Path{Datastore: "ds1", File: "web01/web01.vmx"},
		GuestID: "debian12_64Guest", HardwareVersion: 19,
		CPUs: 2, CoresPerSocket: 2, MemoryMiB: 256, Firmware: inventory.BIOS,
		Controllers: []inventory.Controller{{Key: 1000, Bus: inventory.PVSCSI}},
		Disks: []inventory.Disk{
			{Key: 2000, Controller: 1000, Capacity: 3 * mib, UUID: "6000C29a-4cbb-f2e9-5b95-000000000001"},
			{Key: 2001, Controller: 1000, Unit: 1, Capacity: 2 * mib, UUID: "6000C29a-4cbb-f2e9-5b95-000000000002"},
		},
		NICs: []inventory.NIC{
			{Key: 4000, Model: "vmxnet3", MAC: "00:50:56:ab:cd:01", Network: "VM Network", Connected: true, StartConnected: true},
			{Key: 4001, Model: "e1000", MAC: "00:50:56:ab:cd:02", Network: "dmz"},
		},
	}
}

// changeVM applies change to vm and returns vm.
func changeVM(vm *inventory.VM, change func(*inventory.VM)) *inventory.VM {
	change(vm)
	return vm
}

// newNamesake returns a VM with the name of newVM, but with another reference, other UUIDs and other
// MACs.
func newNamesake() *inventory.VM {
	return changeVM(newVM(), func(vm *inventory.VM) {
		vm.Ref, vm.UUID, vm.InstanceUUID = "8", "564d1234-0000-1111-2222-333344446666", "52aa0000-1111-2222-3333-444455557777"
		vm.NICs[0].MAC, vm.NICs[1].MAC = "00:50:56:ab:cd:03", "00:50:56:ab:cd:04"
	})
}

// diskContent returns the content of vm's n-th disk. The first disk has data at both ends and zeros
// between them.
// The data depends on vm's UUID. All other disks contain zeros. The result is shared: callers must not change it.
func diskContent(vm *inventory.VM, n int) []byte {
	key := fmt.Sprint(n, vm.UUID, vm.Disks[n].Capacity)
	if p, ok := contents.Load(key); ok {
		return p.([]byte)
	}
	p := make([]byte, vm.Disks[n].Capacity)
	if n == 0 {
		rnd := rand.NewChaCha8([32]byte([]byte(fmt.Sprintf("%-32.32s", vm.UUID))))
		_, _ = rnd.Read(p[:mib+512]) // Read never fails
		_, _ = rnd.Read(p[len(p)-4096:])
	}
	contents.Store(key, p)
	return p
}

// contents are the results of diskContent: a suite delivers few VMs hundreds of times.
var contents sync.Map

// stageVM writes vm's images to a new temporary folder, and returns the delivery of a run at its commit
// step.
func stageVM(t *testing.T, vm *inventory.VM, format targets.Format) platform.Delivery {
	t.Helper()
	folder, name := t.TempDir(), dir.SafeName(vm.Name)
	def := targets.Definition{VM: vm, Decamp: "v0.0.0-test"}
	for i, d := range vm.Disks {
		path := filepath.Join(folder, fmt.Sprintf("%s-disk%d.%s", name, i, format))
		img := targets.Image{Key: d.Key, Path: path, Final: path, Manifest: path + ".manifest", Format: format, Size: d.Capacity, Root: "aa55"}
		writeImage(t, img, diskContent(vm, i))
		def.Images = append(def.Images, img)
	}
	domain, _, err := dir.Domain(def, dir.DomainOptions{Type: "qemu"})
	if err != nil {
		t.Fatal(err)
	}
	return platform.Delivery{Definition: def, Domain: domain, Open: openImage}
}

// imageFile returns the file of a staged image.
func imageFile(img targets.Image) image.File {
	return image.File{Path: img.Path, Format: img.Format, Size: img.Size}
}

// openImage is the Open function of the deliveries.
func openImage(ctx context.Context, img targets.Image) (disk.Source, error) {
	return imageFile(img).Read(ctx)
}

// writeImage writes data to a new image, without blocks of 4 KiB that contain only zeros.
func writeImage(t *testing.T, img targets.Image, data []byte) {
	t.Helper()
	w, _, err := imageFile(img).Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	const step = 4096
	for off := 0; off < len(data); {
		end := off
		for end < len(data) && !allZero(data[end:min(end+step, len(data))]) {
			end = min(end+step, len(data))
		}
		if end == off {
			off += step
			continue
		}
		if err := w.WriteAt(t.Context(), data[off:end], int64(off)); err != nil {
			t.Fatal(err)
		}
		off = end
	}
	if err := w.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// allZero reports whether p contains only zeros.
func allZero(p []byte) bool {
	for _, b := range p {
		if b != 0 {
			return false
		}
	}
	return true
}
