package targettest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/dir"
	"github.com/decamp/decamp/internal/targets/platform"
)

const mib = 1 << 20

// newVM is a VM with two disks, of which the second is empty.
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

func with(vm *inventory.VM, change func(*inventory.VM)) *inventory.VM {
	change(vm)
	return vm
}

// another is a VM of the same name, from elsewhere.
func another() *inventory.VM {
	return with(newVM(), func(vm *inventory.VM) {
		vm.Ref, vm.UUID, vm.InstanceUUID = "8", "564d1234-0000-1111-2222-333344446666", "52aa0000-1111-2222-3333-444455557777"
		vm.NICs[0].MAC, vm.NICs[1].MAC = "00:50:56:ab:cd:03", "00:50:56:ab:cd:04"
	})
}

// content is what the guest of vm has on its n-th disk: data at both ends of the first, with a hole
// between them, and nothing on all others.
func content(vm *inventory.VM, n int) []byte {
	p := make([]byte, vm.Disks[n].Capacity)
	if n > 0 {
		return p
	}
	rnd := rand.NewChaCha8([32]byte([]byte(fmt.Sprintf("%-32.32s", vm.UUID))))
	_, _ = rnd.Read(p[:mib+512]) // it cannot fail
	_, _ = rnd.Read(p[len(p)-4096:])
	return p
}

// staging writes vm's images into a folder of their own, as a run has them when it commits.
func staging(t *testing.T, vm *inventory.VM, format targets.Format) platform.Delivery {
	t.Helper()
	folder, name := t.TempDir(), dir.SafeName(vm.Name)
	def := targets.Definition{VM: vm, Decamp: "v0.0.0-test"}
	for i, d := range vm.Disks {
		path := filepath.Join(folder, fmt.Sprintf("%s-disk%d.%s", name, i, format))
		img := targets.Image{Key: d.Key, Path: path, Final: path, Manifest: path + ".manifest", Format: format, Size: d.Capacity, Root: "aa55"}
		write(t, img, content(vm, i))
		def.Images = append(def.Images, img)
	}
	domain, _, err := dir.Domain(def, dir.DomainOptions{Type: "qemu"})
	if err != nil {
		t.Fatal(err)
	}
	return platform.Delivery{Definition: def, Domain: domain, Open: open}
}

func file(img targets.Image) image.File {
	return image.File{Path: img.Path, Format: img.Format, Size: img.Size}
}

func open(ctx context.Context, img targets.Image) (disk.Source, error) { return file(img).Read(ctx) }

// write writes a disk's bytes, and leaves out the 4 KiB that are zeros.
func write(t *testing.T, img targets.Image, data []byte) {
	t.Helper()
	w, _, err := file(img).Open(t.Context())
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

func allZero(p []byte) bool {
	for _, b := range p {
		if b != 0 {
			return false
		}
	}
	return true
}
