package dir

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"libvirt.org/go/libvirtxml"

	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/guest/linux"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/namemap"
	"github.com/decamp/decamp/internal/targets"
)

var update = flag.Bool("update", false, "write the golden files of testdata")

const schemaPath = "/usr/share/libvirt/schemas/domain.rng"

// requireTools skips the test if a program or a file is missing.
func requireTools(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err == nil {
			continue
		}
		if _, err := os.Stat(name); err != nil {
			t.Skipf("no %s: run scripts/setup.sh test", name)
		}
	}
}

// domainVMs returns the VMs of the golden files by name.
func domainVMs() map[string]*inventory.VM {
	return map[string]*inventory.VM{
		"bios":       biosVM(),
		"efi":        efiVM(),
		"big":        bigVM(),
		"efi-big":    changedVM(bigVM(), func(vm *inventory.VM) { vm.Firmware = inventory.EFI }),
		"lsilogic":   vmOnBus(inventory.LSILogic),
		"lsisas":     vmOnBus(inventory.LSISAS),
		"nvme":       vmOnBus(inventory.NVMe),
		"ahci":       vmOnBus(inventory.AHCI),
		"ide":        vmOnBus(inventory.IDE),
		"secureboot": changedVM(efiVM(), func(vm *inventory.VM) { vm.SecureBoot, vm.VTPM = true, true }),
		"diskless": changedVM(biosVM(), func(vm *inventory.VM) {
			vm.Disks, vm.Controllers, vm.BootOrder = nil, nil, []string{"net:4000"}
		}),
	}
}

// A converted guest has only virtio devices, and no warnings about devices without a counterpart.
func TestVirtioDomainGolden(t *testing.T) {
	for name, vm := range map[string]*inventory.VM{
		"virtio": biosVM(), "virtio-efi": efiVM(), "virtio-big": bigVM(), "virtio-ide": vmOnBus(inventory.IDE), "virtio-nvme": vmOnBus(inventory.NVMe),
	} {
		t.Run(name, func(t *testing.T) {
			def := newDefinition(vm)
			def.Hardware = targets.Virtio
			xml, warnings, err := Domain(def, DomainOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range warnings {
				if w.Code != "efi-variables" {
					t.Errorf("warning %+v", w)
				}
			}
			if strings.Contains(xml, "vmpvscsi") || strings.Contains(xml, "vmxnet") || strings.Contains(xml, "e1000") || !strings.Contains(xml, `model="virtio-scsi"`) {
				t.Errorf("some devices are not virtio:\n%s", xml)
			}
			compareGolden(t, filepath.Join("testdata", name+".golden"), xml)
			requireTools(t, "xmllint", schemaPath)
			if out, err := validateSchema(xml); err != nil {
				t.Errorf("libvirt's schema: %s", out)
			}
		})
	}
}

// The domain has a channel for the guest agent if the agent is installed or will be, and the guest uses virtio.
func TestGuestAgentChannel(t *testing.T) {
	present := []guest.Report{{Linux: &linux.Guest{GuestAgent: true}}}
	for name, c := range map[string]struct {
		guest     []guest.Report
		converted *convert.Result
		hardware  targets.Hardware
		want      bool
	}{
		"installed":       {present, nil, targets.Virtio, true},
		"Windows":         {[]guest.Report{{Windows: &guest.Windows{GuestAgent: true}}}, nil, targets.VirtioBlk, true},
		"to be installed": {nil, &convert.Result{GuestAgent: true}, targets.Virtio, true},
		"no driver":       {present, nil, targets.Compat, false},
		"not installed":   {nil, &convert.Result{}, targets.Virtio, false},
	} {
		def := newDefinition(biosVM())
		def.Guest, def.Converted, def.Hardware = c.guest, c.converted, c.hardware
		xml, _, err := Domain(def, DomainOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(xml, `<target type="virtio" name="org.qemu.guest_agent.0">`); got != c.want {
			t.Errorf("%s: channel: got %v, want %v:\n%s", name, got, c.want, xml)
		}
		if out, err := validateSchema(xml); err != nil {
			t.Errorf("%s: libvirt's schema: %s", name, out)
		}
	}
}

// The disks of a guest that names them vda use virtio-blk, one device for each disk.
func TestVirtioBlkDomainGolden(t *testing.T) {
	def := newDefinition(efiVM())
	def.Hardware = targets.VirtioBlk
	xml, _, err := Domain(def, DomainOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(xml, `type="scsi"`) || !strings.Contains(xml, `<target dev="vda" bus="virtio">`) || !strings.Contains(xml, `<model type="virtio">`) {
		t.Errorf("some devices are not virtio:\n%s", xml)
	}
	compareGolden(t, filepath.Join("testdata", "virtio-blk.golden"), xml)
	requireTools(t, "xmllint", schemaPath)
	if out, err := validateSchema(xml); err != nil {
		t.Errorf("libvirt's schema: %s", out)
	}
	many := efiVM()
	for i := range int32(virtioBlk.slots) {
		d := many.Disks[0]
		d.Key, d.Unit = 3000+i, 20+int(i)
		many.Disks = append(many.Disks, d)
	}
	def = newDefinition(many)
	def.Hardware = targets.VirtioBlk
	if _, _, err := Domain(def, DomainOptions{}); !fault.Is(err, fault.Unsupported) || fault.HintOf(err) == "" {
		t.Errorf("more disks than slots: %v", err)
	}
}

// The domain of a VM with a variables file names the firmware for which the file was written.
func TestDomainWithVariablesGolden(t *testing.T) {
	for name, vm := range map[string]*inventory.VM{"efi": domainVMs()["efi"], "secureboot": domainVMs()["secureboot"]} {
		opts := DomainOptions{nvram: nvram{code: "/usr/share/OVMF/OVMF_CODE_4M.fd", file: "/vm/" + name + "/" + name + nvramSuffix}}
		xml, warnings, err := Domain(newDefinition(vm), opts)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range warnings {
			xml += fmt.Sprintf("warning %s: %s: %s\n", w.Code, w.Text, w.Remedy)
		}
		compareGolden(t, filepath.Join("testdata", name+"-variables.golden"), xml)
		xml, _, _ = strings.Cut(xml, "warning ")
		requireTools(t, "xmllint", schemaPath)
		if out, err := validateSchema(xml); err != nil {
			t.Errorf("%s: libvirt's schema: %s", name, out)
		}
	}
}

// The domain and the warnings of each VM are equal to its golden file.
func TestDomainGolden(t *testing.T) {
	for name, vm := range domainVMs() {
		t.Run(name, func(t *testing.T) {
			xml, warnings, err := Domain(newDefinition(vm), DomainOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var text strings.Builder
			text.WriteString(xml)
			for _, w := range warnings {
				fmt.Fprintf(&text, "warning %s: %s: %s\n", w.Code, w.Text, w.Remedy)
			}
			compareGolden(t, filepath.Join("testdata", name+".golden"), text.String())
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
		t.Errorf("%s differs (go test -update, then review):\n%s", path, got)
	}
}

func TestDomainsSatisfyLibvirtsSchema(t *testing.T) {
	requireTools(t, "xmllint", schemaPath)
	for name, vm := range domainVMs() {
		for _, kind := range []string{"kvm", "qemu"} {
			xml, _, err := Domain(newDefinition(vm), DomainOptions{Type: kind, Network: "prod", Maps: namemap.Map{Networks: map[string]namemap.Network{"VM Network": {To: "bridge:br0"}}}})
			if err != nil {
				t.Fatal(err)
			}
			if out, err := validateSchema(xml); err != nil {
				t.Errorf("%s as %s: %s", name, kind, out)
			}
		}
	}
}

func TestNetworksOfMaps(t *testing.T) {
	vm := biosVM()
	vm.NICs = []inventory.NIC{{Model: "e1000", MAC: "00:50:56:00:00:01", Network: "VM Network"}, {Model: "e1000", MAC: "00:50:56:00:00:02", Network: "dmz"}, {Model: "e1000", MAC: "00:50:56:00:00:03", Network: "lab"}}
	xml, _, err := Domain(newDefinition(vm), DomainOptions{Maps: namemap.Map{Networks: map[string]namemap.Network{"VM Network": {To: "bridge:br0"}, "dmz": {To: "outside"}}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`<source bridge="br0">`, `<source network="outside">`, `<source network="default">`} {
		if !strings.Contains(xml, want) {
			t.Errorf("no %s in\n%s", want, xml)
		}
	}
}

// The schema test would prove nothing if the schema accepted every domain.
func TestSchemaRejectsInvalidDomain(t *testing.T) {
	requireTools(t, "xmllint", schemaPath)
	xml, _, err := Domain(newDefinition(biosVM()), DomainOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := validateSchema(strings.Replace(xml, "vmpvscsi", "no such model", 1)); err == nil {
		t.Error("libvirt's schema accepts an unknown controller model")
	}
}

// validateSchema validates a domain by libvirt's schema and returns the output of xmllint.
func validateSchema(xml string) (string, error) {
	cmd := exec.Command("xmllint", "--noout", "--relaxng", schemaPath, "-")
	cmd.Stdin = strings.NewReader(xml)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestEFIDiskBusByGuest(t *testing.T) {
	unknown := changedVM(efiVM(), func(vm *inventory.VM) { vm.GuestID = "otherGuest64" })
	tests := []struct {
		name    string
		vm      *inventory.VM
		reports []guest.Report
		want    string
	}{
		{"Linux by guest id", efiVM(), nil, "virtio-scsi"},
		{"unknown", unknown, nil, `type="sata"`},
		{"Linux by os-release", unknown, []guest.Report{{OS: guest.OS{ID: "alpine"}}}, "virtio-scsi"},
		{"Windows by its registry", efiVM(), []guest.Report{{}, {OS: guest.OS{ID: guest.WindowsID}}}, `type="sata"`},
		{"Windows", changedVM(efiVM(), func(vm *inventory.VM) { vm.GuestID = "windows11_64Guest" }), nil, `type="sata"`},
	}
	for _, tt := range tests {
		xml, warnings, err := Domain(newDefinition(tt.vm, tt.reports...), DomainOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(xml, tt.want) || strings.Contains(xml, "vmpvscsi") {
			t.Errorf("%s: no %s in\n%s", tt.name, tt.want, xml)
		}
		var codes []string
		for _, w := range warnings {
			codes = append(codes, w.Code)
			if w.Remedy == "" {
				t.Errorf("%s: warning %s has no remedy", tt.name, w.Code)
			}
		}
		if !slices.Equal(codes, []string{"efi-variables", "efi-boot"}) {
			t.Errorf("%s: warnings %v", tt.name, codes)
		}
	}
}

func TestUnknownControllersAreRefusedBeforeTheCopy(t *testing.T) {
	root, err := New(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, bus := range []inventory.Bus{inventory.BusLogic, ""} {
		_, err := root.Plan(t.Context(), vmOnBus(bus))
		if !fault.Is(err, fault.Unsupported) || fault.HintOf(err) == "" {
			t.Errorf("bus %q: got %v, want unsupported with a hint", bus, err)
		}
		if _, _, err := Domain(newDefinition(vmOnBus(bus)), DomainOptions{}); !fault.Is(err, fault.Unsupported) {
			t.Errorf("bus %q: Domain: got %v, want unsupported", bus, err)
		}
	}
}

// Without a format in the domain, QEMU or libvirt would detect it from the first bytes, which the guest controls.
func TestEveryDiskNamesItsFormat(t *testing.T) {
	for _, format := range []targets.Format{targets.Raw, targets.QCOW2} {
		for _, vm := range []*inventory.VM{biosVM(), efiVM()} {
			def := newDefinition(vm)
			for i := range def.Images {
				def.Images[i].Format = format
			}
			xml, _, err := Domain(def, DomainOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var d libvirtxml.Domain
			if err := d.Unmarshal(xml); err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, disk := range d.Devices.Disks {
				if disk.Device != "disk" {
					continue
				}
				if n++; disk.Driver == nil || disk.Driver.Type != string(format) {
					t.Errorf("%s: disk %s has driver %+v, want format %s", vm.Name, disk.Target.Dev, disk.Driver, format)
				}
			}
			if n != len(def.Images) {
				t.Errorf("%s: got %d disks, want %d", vm.Name, n, len(def.Images))
			}
		}
	}
}
