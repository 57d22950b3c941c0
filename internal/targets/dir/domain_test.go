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

const schema = "/usr/share/libvirt/schemas/domain.rng"

// requires skips the test where a tool or a file is missing.
func requires(t *testing.T, what ...string) {
	t.Helper()
	for _, w := range what {
		if _, err := exec.LookPath(w); err == nil {
			continue
		}
		if _, err := os.Stat(w); err != nil {
			t.Skipf("no %s: run scripts/setup.sh test", w)
		}
	}
}

func domains() map[string]*inventory.VM {
	return map[string]*inventory.VM{
		"bios":       biosVM(),
		"efi":        efiVM(),
		"big":        bigVM(),
		"efi-big":    with(bigVM(), func(vm *inventory.VM) { vm.Firmware = inventory.EFI }),
		"lsilogic":   onBus(inventory.LSILogic),
		"lsisas":     onBus(inventory.LSISAS),
		"nvme":       onBus(inventory.NVMe),
		"ahci":       onBus(inventory.AHCI),
		"ide":        onBus(inventory.IDE),
		"secureboot": with(efiVM(), func(vm *inventory.VM) { vm.SecureBoot, vm.VTPM = true, true }),
		"diskless": with(biosVM(), func(vm *inventory.VM) {
			vm.Disks, vm.Controllers, vm.BootOrder = nil, nil, []string{"net:4000"}
		}),
	}
}

// A guest that was converted has everything on virtio, and nothing to be warned of for it: also
// where there was no counterpart.
func TestVirtioDomainGolden(t *testing.T) {
	for name, vm := range map[string]*inventory.VM{
		"virtio": biosVM(), "virtio-efi": efiVM(), "virtio-big": bigVM(), "virtio-ide": onBus(inventory.IDE), "virtio-nvme": onBus(inventory.NVMe),
	} {
		t.Run(name, func(t *testing.T) {
			def := definition(vm)
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
				t.Errorf("not all of it is virtio:\n%s", xml)
			}
			golden(t, filepath.Join("testdata", name+".golden"), xml)
			requires(t, "xmllint", schema)
			if out, err := validate(xml); err != nil {
				t.Errorf("libvirt's schema: %s", out)
			}
		})
	}
}

// The agent has its channel where it is in the guest, or will be, and the guest is on virtio.
func TestGuestAgentHasItsChannel(t *testing.T) {
	present := []guest.Report{{Linux: &linux.Guest{GuestAgent: true}}}
	for name, c := range map[string]struct {
		guest     []guest.Report
		converted *convert.Result
		hardware  targets.Hardware
		want      bool
	}{
		"installed":   {present, nil, targets.Virtio, true},
		"of Windows":  {[]guest.Report{{Windows: &guest.Windows{GuestAgent: true}}}, nil, targets.VirtioBlk, true},
		"to come":     {nil, &convert.Result{GuestAgent: true}, targets.Virtio, true},
		"no driver":   {present, nil, targets.Compat, false},
		"not in mind": {nil, &convert.Result{}, targets.Virtio, false},
	} {
		def := definition(biosVM())
		def.Guest, def.Converted, def.Hardware = c.guest, c.converted, c.hardware
		xml, _, err := Domain(def, DomainOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(xml, `<target type="virtio" name="org.qemu.guest_agent.0">`); got != c.want {
			t.Errorf("%s: a channel is %v, want %v:\n%s", name, got, c.want, xml)
		}
		if out, err := validate(xml); err != nil {
			t.Errorf("%s: libvirt's schema: %s", name, out)
		}
	}
}

// A guest that calls its disks vda has them on virtio-blk, each a device of its own.
func TestVirtioBlkDomainGolden(t *testing.T) {
	def := definition(efiVM())
	def.Hardware = targets.VirtioBlk
	xml, _, err := Domain(def, DomainOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(xml, `type="scsi"`) || !strings.Contains(xml, `<target dev="vda" bus="virtio">`) || !strings.Contains(xml, `<model type="virtio">`) {
		t.Errorf("not all of it is virtio:\n%s", xml)
	}
	golden(t, filepath.Join("testdata", "virtio-blk.golden"), xml)
	requires(t, "xmllint", schema)
	if out, err := validate(xml); err != nil {
		t.Errorf("libvirt's schema: %s", out)
	}
	many := efiVM()
	for i := range int32(virtioBlk.slots) {
		d := many.Disks[0]
		d.Key, d.Unit = 3000+i, 20+int(i)
		many.Disks = append(many.Disks, d)
	}
	def = definition(many)
	def.Hardware = targets.VirtioBlk
	if _, _, err := Domain(def, DomainOptions{}); !fault.Is(err, fault.Unsupported) || fault.HintOf(err) == "" {
		t.Errorf("more disks than a machine has places: %v", err)
	}
}

// With boot entries that go with it a VM has the firmware that they were written for.
func TestDomainWithVariablesGolden(t *testing.T) {
	for name, vm := range map[string]*inventory.VM{"efi": domains()["efi"], "secureboot": domains()["secureboot"]} {
		opts := DomainOptions{nvram: nvram{code: "/usr/share/OVMF/OVMF_CODE_4M.fd", file: "/vm/" + name + "/" + name + nvramSuffix}}
		xml, warnings, err := Domain(definition(vm), opts)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range warnings {
			xml += fmt.Sprintf("warning %s: %s: %s\n", w.Code, w.Text, w.Remedy)
		}
		golden(t, filepath.Join("testdata", name+"-variables.golden"), xml)
		xml, _, _ = strings.Cut(xml, "warning ")
		requires(t, "xmllint", schema)
		if out, err := validate(xml); err != nil {
			t.Errorf("%s: libvirt's schema: %s", name, out)
		}
	}
}

// TestDomainGolden compares each domain, and its warnings, with the reviewed text.
func TestDomainGolden(t *testing.T) {
	for name, vm := range domains() {
		t.Run(name, func(t *testing.T) {
			xml, warnings, err := Domain(definition(vm), DomainOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var text strings.Builder
			text.WriteString(xml)
			for _, w := range warnings {
				fmt.Fprintf(&text, "warning %s: %s: %s\n", w.Code, w.Text, w.Remedy)
			}
			golden(t, filepath.Join("testdata", name+".golden"), text.String())
		})
	}
}

func golden(t *testing.T, path, got string) {
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
	requires(t, "xmllint", schema)
	for name, vm := range domains() {
		for _, kind := range []string{"kvm", "qemu"} {
			xml, _, err := Domain(definition(vm), DomainOptions{Type: kind, Network: "prod", Maps: namemap.Map{Networks: map[string]namemap.Network{"VM Network": {To: "bridge:br0"}}}})
			if err != nil {
				t.Fatal(err)
			}
			if out, err := validate(xml); err != nil {
				t.Errorf("%s as %s: %s", name, kind, out)
			}
		}
	}
}

func TestCardsJoinWhatTheMapSays(t *testing.T) {
	vm := biosVM()
	vm.NICs = []inventory.NIC{{Model: "e1000", MAC: "00:50:56:00:00:01", Network: "VM Network"}, {Model: "e1000", MAC: "00:50:56:00:00:02", Network: "dmz"}, {Model: "e1000", MAC: "00:50:56:00:00:03", Network: "lab"}}
	xml, _, err := Domain(definition(vm), DomainOptions{Maps: namemap.Map{Networks: map[string]namemap.Network{"VM Network": {To: "bridge:br0"}, "dmz": {To: "outside"}}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`<source bridge="br0">`, `<source network="outside">`, `<source network="default">`} {
		if !strings.Contains(xml, want) {
			t.Errorf("no %s in\n%s", want, xml)
		}
	}
}

// A schema that takes everything would prove nothing.
func TestSchemaRefusesNonsense(t *testing.T) {
	requires(t, "xmllint", schema)
	xml, _, err := Domain(definition(biosVM()), DomainOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := validate(strings.Replace(xml, "vmpvscsi", "no such model", 1)); err == nil {
		t.Error("libvirt's schema took a controller model that does not exist")
	}
}

func validate(xml string) (string, error) {
	cmd := exec.Command("xmllint", "--noout", "--relaxng", schema, "-")
	cmd.Stdin = strings.NewReader(xml)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestEFIFallsBackToWhatTheGuestProbablyHas(t *testing.T) {
	unknown := with(efiVM(), func(vm *inventory.VM) { vm.GuestID = "otherGuest64" })
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
		{"Windows", with(efiVM(), func(vm *inventory.VM) { vm.GuestID = "windows11_64Guest" }), nil, `type="sata"`},
	}
	for _, tt := range tests {
		xml, warnings, err := Domain(definition(tt.vm, tt.reports...), DomainOptions{})
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
		_, err := root.Plan(t.Context(), onBus(bus))
		if !fault.Is(err, fault.Unsupported) || fault.HintOf(err) == "" {
			t.Errorf("bus %q: %v, want unsupported with a remedy", bus, err)
		}
		if _, _, err := Domain(definition(onBus(bus)), DomainOptions{}); !fault.Is(err, fault.Unsupported) {
			t.Errorf("bus %q: domain: %v", bus, err)
		}
	}
}

// A disk without a format on record would leave it to QEMU, or to libvirt, to look at bytes that
// are the guest's.
func TestEveryDiskNamesItsFormat(t *testing.T) {
	for _, format := range []targets.Format{targets.Raw, targets.QCOW2} {
		for _, vm := range []*inventory.VM{biosVM(), efiVM()} {
			def := definition(vm)
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
					t.Errorf("%s: disk %s has the driver %+v", vm.Name, disk.Target.Dev, disk.Driver)
				}
			}
			if n != len(def.Images) {
				t.Errorf("%s: %d disks of %d", vm.Name, n, len(def.Images))
			}
		}
	}
}
