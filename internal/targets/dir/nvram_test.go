package dir

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/efi"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
)

// entry is a boot entry of a Debian.
func entry() *efi.State {
	return &efi.State{Entries: []efi.Entry{{
		Number: 4, Label: "debian", File: `\EFI\debian\shimx64.efi`, Attributes: efi.Active,
		Partition: efi.Partition{Number: 1, Start: 2048, Size: 32768, GUID: efi.GUID{1, 2, 3}},
	}}}
}

// firmwares is a root with a firmware whose variables are in file.
func firmwares(t *testing.T, vars []byte) string {
	t.Helper()
	root := t.TempDir()
	descriptor := `{"interface-types":["uefi"],"mapping":{"device":"flash","executable":{"filename":"/code.fd","format":"raw"},
		"nvram-template":{"filename":"/vars.fd","format":"raw"}},"targets":[{"architecture":"x86_64"}],"features":[]}`
	folder := filepath.Join(root, "usr/share/qemu/firmware")
	must(t, os.MkdirAll(folder, 0o755))
	must(t, os.WriteFile(filepath.Join(folder, "50.json"), []byte(descriptor), 0o600))
	must(t, os.WriteFile(filepath.Join(root, "vars.fd"), vars, 0o600))
	return root
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const template = "/usr/share/OVMF/OVMF_VARS_4M.fd"

// published publishes an EFI VM and returns its folder and its record.
func published(t *testing.T, root string, state *efi.State) (string, *Record) {
	t.Helper()
	return publishedAt(t, root, state, nil)
}

// publishedAt publishes one that a place has taken, if it is not nil.
func publishedAt(t *testing.T, root string, state *efi.State, at *targets.Receipt) (string, *Record) {
	t.Helper()
	vm := efiVM()
	vm.Disks, vm.Controllers, vm.BootOrder = nil, nil, nil
	d := newTarget(t, Options{firmwareRoot: root})
	must(t, d.Publish(t.Context(), targets.Definition{VM: vm, EFI: state, Delivered: at}))
	r, err := ReadRecord(d.Folder(vm))
	must(t, err)
	return d.Folder(vm), r
}

// The file is beside the domain that names it, holds the entries, is on record, and is proven as images are.
func TestVariablesArePublished(t *testing.T) {
	requires(t, template)
	vars, err := os.ReadFile(template)
	must(t, err)
	root := firmwares(t, vars)
	folder, r := published(t, root, entry())
	path := filepath.Join(folder, "efi_VARS.fd")
	data, err := os.ReadFile(path)
	must(t, err)
	store, err := efi.OpenStore(bytes.Clone(data))
	must(t, err)
	if got, _ := efi.StateOf(store.Variables()); !reflect.DeepEqual(got, *entry()) || !reflect.DeepEqual(r.EFI, entry()) {
		t.Errorf("in the file %+v, on record %+v", got, r.EFI)
	}
	xml, err := os.ReadFile(filepath.Join(folder, "domain.xml"))
	if err != nil || !strings.Contains(string(xml), `<nvram template="`+path+`">`) || !strings.Contains(string(xml), ">"+root+"/code.fd</loader>") {
		t.Errorf("%v:\n%s", err, xml)
	}
	if r.NVRAM == nil || r.NVRAM.File != "efi_VARS.fd" || r.NVRAM.Size != int64(len(data)) || len(r.Warnings) != 0 {
		t.Errorf("%+v, warnings %v", r.NVRAM, r.Warnings)
	}
	must(t, CheckNVRAM(folder, r))
	data[1000] ^= 1
	must(t, os.WriteFile(path, data, 0o600))
	if err := CheckNVRAM(folder, r); !fault.Is(err, fault.Corrupt) || fault.HintOf(err) == "" {
		t.Errorf("a bit that flipped: %v", err)
	}
	must(t, os.Remove(path))
	if err := CheckNVRAM(folder, r); !fault.Is(err, fault.NotFound) || fault.HintOf(err) == "" {
		t.Errorf("gone: %v", err)
	}
}

// Where nothing can be carried the VM is published as it was before, and it is said why.
func TestVariablesThatStayBehind(t *testing.T) {
	for name, tt := range map[string]struct {
		root  string
		state *efi.State
		why   string
	}{
		"nothing to carry": {firmwares(t, nil), nil, "boot entries in the EFI variables are not migrated: "},
		"no firmware here": {t.TempDir(), entry(), "(no UEFI firmware is installed"},
		"no such store":    {firmwares(t, make([]byte, 4096)), entry(), "(the variables of the firmware: it is no firmware volume"},
	} {
		folder, r := published(t, tt.root, tt.state)
		xml, err := os.ReadFile(filepath.Join(folder, "domain.xml"))
		if err != nil || !strings.Contains(string(xml), `<os firmware="efi">`) || strings.Contains(string(xml), "nvram") {
			t.Errorf("%s: %v:\n%s", name, err, xml)
		}
		if r.NVRAM != nil || len(r.Warnings) != 1 || r.Warnings[0].Code != "efi-variables" || !strings.Contains(r.Warnings[0].Text, tt.why) {
			t.Errorf("%s: %+v, %v", name, r.NVRAM, r.Warnings)
		}
		must(t, CheckNVRAM(folder, r))
	}
}

// A place that answers for the variables itself says what became of them: vm.json does not tell of this machine's
// firmware. Of one that starts what was made here it does.
func TestVariablesOfAnotherFirmware(t *testing.T) {
	for _, own := range []bool{true, false} {
		_, r := publishedAt(t, t.TempDir(), entry(), &targets.Receipt{Platform: "proxmox pve1", ID: "100", Name: "efi", EFI: own})
		if told := len(r.Warnings) == 1 && r.Warnings[0].Code == defaultVariablesCode; told == own || len(r.Warnings) > 1 {
			t.Errorf("with a firmware of its own: %v, warnings %v", own, r.Warnings)
		}
	}
}

// A VM of a BIOS has no such variables, whatever is said of them.
func TestNoVariablesForBIOS(t *testing.T) {
	d := newTarget(t, Options{firmwareRoot: t.TempDir()})
	if n := d.planNVRAM(targets.Definition{VM: &inventory.VM{Firmware: inventory.BIOS}, EFI: entry()}, "/vm"); n.file != "" || n.why != nil {
		t.Errorf("%+v", n)
	}
}

// The trial starts what will be published: the file is there when the domain is.
func TestDomainOfATrialHasItsVariables(t *testing.T) {
	requires(t, template)
	vars, err := os.ReadFile(template)
	must(t, err)
	d := newTarget(t, Options{firmwareRoot: firmwares(t, vars)})
	vm := efiVM()
	images, err := d.Plan(t.Context(), vm)
	must(t, err)
	xml, err := d.Domain(targets.Definition{VM: vm, Images: images, EFI: entry()})
	must(t, err)
	file := filepath.Join(d.partialFolder(vm), "efi_VARS.fd")
	if data, err := os.ReadFile(file); err != nil || len(data) != len(vars) || !strings.Contains(xml, file) {
		t.Errorf("%v, %d bytes:\n%s", err, len(data), xml)
	}
	must(t, d.Discard(t.Context(), vm, images))
	if _, err := os.Stat(d.partialFolder(vm)); err == nil {
		t.Error("it is there after the VM was given up")
	}
}

func TestRecordsWhoseVariablesLeadElsewhere(t *testing.T) {
	for _, name := range []string{"", "../x", "a/b", "/etc/passwd"} {
		text, err := json.Marshal(Record{Version: recordVersion, Source: efiVM(), NVRAM: &RecordedFile{File: name}})
		must(t, err)
		if _, err := parseRecord(text); err == nil {
			t.Errorf("%q is taken", name)
		}
	}
}
