package libvirt

import (
	"fmt"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/namemap"
	"github.com/decamp/decamp/internal/targets"
)

// A comparison detects data that differs, data in a hole, and a hole in data.
func TestReadBackDataIsCompared(t *testing.T) {
	t.Parallel()
	const size = 40 << 20
	src := disk.NewSparsePattern(size, 0.5, 7)
	extents, err := src.Extents(t.Context(), disk.Range{Len: size})
	if err != nil {
		t.Fatal(err)
	}
	var reported int64
	c := &comparison{ctx: t.Context(), src: src, progress: func(n int64) { reported += n }}
	for _, e := range extents {
		if e.Kind == disk.Zero {
			if err := c.Zeros(e.Range); err != nil {
				t.Errorf("%v is a hole in both: %v", e.Range, err)
			}
			continue
		}
		p := make([]byte, e.Len)
		if err := src.ReadAt(t.Context(), p, e.Off); err != nil {
			t.Fatal(err)
		}
		if err := c.Data(e.Off, p); err != nil {
			t.Errorf("%v is the same in both: %v", e.Range, err)
		}
		p[len(p)-1] ^= 1
		if err := c.Data(e.Off, p); !fault.Is(err, fault.Corrupt) || fault.HintOf(err) == "" || !strings.HasSuffix(err.Error(), fmt.Sprintf(" byte %d", e.Off)) {
			t.Errorf("a flipped bit at or after byte %d: %v", e.Off, err)
		}
	}
	if reported != size {
		t.Errorf("progress reports %d bytes, want %d", reported, size)
	}
	if err := c.Zeros(disk.Range{Len: size}); !fault.Is(err, fault.Corrupt) {
		t.Errorf("a hole instead of data: %v", err)
	}
}

// The name of a volume depends only on properties that do not change, and two VMs never share one.
func TestVolumeNames(t *testing.T) {
	t.Parallel()
	vm := webVM(1)
	for name, want := range map[string]string{
		"web 01": "web_01-6c61edc1332f1bf4-disk3.raw",
		"größe":  "gr__e-6c61edc1332f1bf4-disk3.raw",
		"../x":   "_x-6c61edc1332f1bf4-disk3.raw",
		"":       "vm-6c61edc1332f1bf4-disk3.raw",
		"a-very-long-name-that-goes-on-and-on-for-the-sake-of-it": "a-very-long-name-that-goes-on-and-on-for-6c61edc1332f1bf4-disk3.raw",
	} {
		vm.Name = name
		if got := volumeName(namemap.Map{}, vm, 3, targets.Raw); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
	for _, change := range []func(*inventory.VM){
		func(vm *inventory.VM) { vm.Ref = "8" },
		func(vm *inventory.VM) { vm.UUID = "564d1234-0000-1111-2222-333344446666" },
		func(vm *inventory.VM) { vm.InstanceUUID = "" },
	} {
		other := webVM(1)
		change(other)
		if sourceID(other) == sourceID(vm) {
			t.Errorf("%+v has the same identity as the original VM", other)
		}
	}
}
