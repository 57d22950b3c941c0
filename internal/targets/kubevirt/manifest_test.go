package kubevirt

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/namemap"
	"github.com/decamp/decamp/internal/targets"
)

var update = flag.Bool("update", false, "write the golden files of testdata")

type goldenCase struct {
	def  targets.Definition
	opts Options
}

func goldenCases() map[string]goldenCase {
	efi := changedVM(biosVM(), func(vm *inventory.VM) { vm.Firmware = inventory.EFI })
	return map[string]goldenCase{
		"bios":        {newDefinition(biosVM()), Options{}},
		"bios-virtio": {withVirtio(newDefinition(biosVM())), Options{Network: "multus:vms/lan"}},
		"efi":         {newDefinition(efi), Options{StorageClass: "local"}},
		"big":         {newDefinition(bigVM()), bigOptions()},
		"virtio-blk":  {withVirtioBlk(newDefinition(biosVM())), Options{Network: "multus:vms/lan"}},
		"big-virtio":  {withVirtio(newDefinition(bigVM())), bigOptions()},
		"bare": {newDefinition(changedVM(biosVM(), func(vm *inventory.VM) {
			vm.Name, vm.Disks, vm.NICs, vm.UUID = "on", nil, nil, ""
		})), Options{}},
	}
}

// The manifests and warnings of each VM are equal to the golden files. test/kubevirt validates the same files against
// the schemas of KubeVirt and CDI.
func TestManifestsGolden(t *testing.T) {
	for name, g := range goldenCases() {
		t.Run(name, func(t *testing.T) {
			text, warnings, err := Manifests(g.def, g.opts)
			if err != nil {
				t.Fatal(err)
			}
			got := string(text)
			for _, w := range warnings {
				got += fmt.Sprintf("# warning %s: %s: %s\n", w.Code, w.Text, w.Remedy)
			}
			compareGolden(t, filepath.Join("testdata", name+".yaml"), got)
		})
	}
}

func compareGolden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("golden file %s differs; -update rewrites it:\n%s", path, got)
	}
}

// Text that could be parsed as another YAML type is quoted, so that manifests decode to the original values.
func TestManifestsRoundTrip(t *testing.T) {
	for _, name := range []string{"on", "No", "1e3", "0x10", "1:30", "2026-11-22", "null", "~", "a: b", "#", "- x", "it's", "näme\n\t\x00", "\xff", "{}"} {
		def := newDefinition(changedVM(biosVM(), func(vm *inventory.VM) { vm.Name, vm.Annotation, vm.HostName = name, name, name }))
		o, err := newObjects(def, Options{})
		if err != nil {
			t.Fatal(err)
		}
		text, _, err := Manifests(def, Options{})
		if err != nil {
			t.Fatal(err)
		}
		d := yaml.NewDecoder(bytes.NewReader(text))
		for _, want := range []any{o.disks[0], o.vm} {
			if got := decodeYAML(t, d); !reflect.DeepEqual(got, decodeYAML(t, yaml.NewDecoder(bytes.NewReader(asJSON(t, want))))) {
				t.Errorf("name %q: decodes to %v", name, got)
			}
		}
		if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
			t.Errorf("name %q: unexpected document: %v", name, err)
		}
	}
}

func decodeYAML(t *testing.T, d *yaml.Decoder) (v any) {
	t.Helper()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func asJSON(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestManifestsHaveNoStatus(t *testing.T) {
	for name, g := range goldenCases() {
		text, _, err := Manifests(g.def, g.opts)
		if err != nil || bytes.Contains(text, []byte("status:")) || bytes.Contains(text, []byte("creationTimestamp")) {
			t.Errorf("%s: %v:\n%s", name, err, text)
		}
	}
}

// The detected operating system takes precedence over the guest ID of VMware.
func TestClockWarningForWindowsOnly(t *testing.T) {
	windows := changedVM(biosVM(), func(vm *inventory.VM) { vm.GuestID = "windows2019srv_64Guest" })
	found := func(id string) guest.Report { return guest.Report{OS: guest.OS{ID: id}} }
	for _, c := range []struct {
		def  targets.Definition
		want bool
	}{
		{newDefinition(biosVM()), false},
		{newDefinition(windows), true},
		{newDefinition(windows, found("debian")), false},
		{newDefinition(biosVM(), found(""), found(guest.WindowsID)), true},
	} {
		_, warnings, err := Manifests(c.def, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := slices.ContainsFunc(warnings, func(w inventory.Warning) bool { return w.Code == "clock" }); got != c.want {
			t.Errorf("%s, %v: warning %v", c.def.VM.GuestID, c.def.Guest, got)
		}
	}
}

func TestManifestsRefuse(t *testing.T) {
	second := changedVM(biosVM(), func(vm *inventory.VM) {
		vm.NICs = append(vm.NICs, inventory.NIC{Key: 4001, MAC: "00:50:56:00:00:02", Network: "VLAN 20"})
	})
	noImage := newDefinition(biosVM())
	noImage.Images = nil
	for name, c := range map[string]struct {
		def  targets.Definition
		opts Options
		kind fault.Kind
		hint string
	}{
		"two in the pod network": {newDefinition(second), Options{}, fault.Invalid, `{"VLAN 20": "multus:NAMESPACE/NAME"}`},
		"an odd network":         {newDefinition(biosVM()), Options{Maps: namemap.Map{Networks: map[string]namemap.Network{"x": {To: "bridge:br0"}}}}, fault.Invalid, "maps.networks"},
		"an odd default":         {newDefinition(biosVM()), Options{Network: "multus:A/b"}, fault.Invalid, "multus:NAMESPACE/NAME"},
		"a disk without image":   {noImage, Options{}, fault.Internal, ""},
	} {
		_, _, err := Manifests(c.def, c.opts)
		if !fault.Is(err, c.kind) || !strings.Contains(fault.HintOf(err), c.hint) {
			t.Errorf("%s: got %v (%v), hint %q, want %v", name, err, fault.KindOf(err), fault.HintOf(err), c.kind)
		}
	}
	if _, _, err := Manifests(newDefinition(second), Options{Maps: namemap.Map{Networks: map[string]namemap.Network{"VLAN 20": {To: "multus:vlan20"}}}}); err != nil {
		t.Errorf("a network card with a mapped network: %v", err)
	}
}

func TestQuantityIsExact(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0", 512: "512", 1024: "1Ki", 1<<20 + 512: "1049088", 3 << 20: "3Mi", 1 << 30: "1Gi", 62 << 40: "62Ti", 1 << 50: "1024Ti",
	} {
		if got := formatQuantity(n); got != want {
			t.Errorf("formatQuantity(%d) = %s, want %s", n, got, want)
		}
	}
}
