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

// debianEntry returns a state with a boot entry of Debian.
func debianEntry() *efi.State {
	return &efi.State{Entries: []efi.Entry{{
		Number: 4, Label: "debian", File: `\EFI\debian\shimx64.efi`, Attributes: efi.Active,
		Partition: efi.Partition{Number: 1, Start: 2048, Size: 32768, GUID: efi.GUID{1, 2, 3}},
	}}}
}

// newFirmwareRoot returns a root folder with a firmware whose template of variables is vars.
func newFirmwareRoot(t *testing.T, vars []byte) string {
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

const varsTemplate = "/usr/share/OVMF/OVMF_VARS_4M.fd"

// publishEFIVM publishes an EFI VM and returns its folder and its record.
func publishEFIVM(t *testing.T, root string, state *efi.State) (string, *Record) {
	t.Helper()
	return publishDelivered(t, root, state, nil)
}

// publishDelivered publishes an EFI VM that a platform has taken if at is not nil.
func publishDelivered(t *testing.T, root string, state *efi.State, at *targets.Receipt) (string, *Record) {
	t.Helper()
	vm := efiVM()
	vm.Disks, vm.Controllers, vm.BootOrder = nil, nil, nil
	d := newTarget(t, Options{firmwareRoot: root})
	must(t, d.Publish(t.Context(), targets.Definition{VM: vm, EFI: state, Delivered: at}))
	r, err := ReadRecord(d.Folder(vm))
	must(t, err)
	return d.Folder(vm), r
}

// The variables file is in the folder of the domain, has the boot entries, and is in the record. CheckNVRAM detects
// damage to it.
func TestVariablesArePublished(t *testing.T) {
	requireTools(t, varsTemplate)
	vars, err := os.ReadFile(varsTemplate)
	must(t, err)
	root := newFirmwareRoot(t, vars)
	folder, r := publishEFIVM(t, root, debianEntry())
	path := filepath.Join(folder, "efi_VARS.fd")
	data, err := os.ReadFile(path)
	must(t, err)
	store, err := efi.OpenStore(bytes.Clone(data))
	must(t, err)
	if got, _ := efi.StateOf(store.Variables()); !reflect.DeepEqual(got, *debianEntry()) || !reflect.DeepEqual(r.EFI, debianEntry()) {
		t.Errorf("got %+v in the file, %+v in the record", got, r.EFI)
	}
	xml, err := os.ReadFile(filepath.Join(folder, "domain.xml"))
	if err != nil || !strings.Contains(string(xml), `<nvram template="`+path+`">`) || !strings.Contains(string(xml), ">"+root+"/code.fd</loader>") {
		t.Errorf("%v:\n%s", err, xml)
	}
	if r.NVRAM == nil || r.NVRAM.File != "efi_VARS.fd" || r.NVRAM.Size != int64(len(data)) || len(r.Warnings) != 0 {
		t.Errorf("got NVRAM %+v, warnings %v", r.NVRAM, r.Warnings)
	}
	must(t, CheckNVRAM(folder, r))
	data[1000] ^= 1
	must(t, os.WriteFile(path, data, 0o600))
	if err := CheckNVRAM(folder, r); !fault.Is(err, fault.Corrupt) || fault.HintOf(err) == "" {
		t.Errorf("a flipped bit: %v", err)
	}
	must(t, os.Remove(path))
	if err := CheckNVRAM(folder, r); !fault.Is(err, fault.NotFound) || fault.HintOf(err) == "" {
		t.Errorf("a missing file: %v", err)
	}
}

// If no boot entry can be carried over, the domain has no variables file, and a warning has the cause.
func TestMissingVariablesCauseWarning(t *testing.T) {
	for name, tt := range map[string]struct {
		root  string
		state *efi.State
		cause string
	}{
		"nothing to carry": {newFirmwareRoot(t, nil), nil, "boot entries in the EFI variables are not migrated: "},
		"no firmware here": {t.TempDir(), debianEntry(), "(no UEFI firmware is installed"},
		"no such store":    {newFirmwareRoot(t, make([]byte, 4096)), debianEntry(), "(the variables of the firmware: it is no firmware volume"},
	} {
		folder, r := publishEFIVM(t, tt.root, tt.state)
		xml, err := os.ReadFile(filepath.Join(folder, "domain.xml"))
		if err != nil || !strings.Contains(string(xml), `<os firmware="efi">`) || strings.Contains(string(xml), "nvram") {
			t.Errorf("%s: %v:\n%s", name, err, xml)
		}
		if r.NVRAM != nil || len(r.Warnings) != 1 || r.Warnings[0].Code != "efi-variables" || !strings.Contains(r.Warnings[0].Text, tt.cause) {
			t.Errorf("%s: got NVRAM %+v, warnings %v", name, r.NVRAM, r.Warnings)
		}
		must(t, CheckNVRAM(folder, r))
	}
}

// If a platform handles the variables itself, vm.json has no warning about this machine's firmware. Otherwise it has
// one.
func TestVariablesOfAnotherFirmware(t *testing.T) {
	for _, own := range []bool{true, false} {
		_, r := publishDelivered(t, t.TempDir(), debianEntry(), &targets.Receipt{Platform: "proxmox pve1", ID: "100", Name: "efi", EFI: own})
		if warned := len(r.Warnings) == 1 && r.Warnings[0].Code == defaultVariablesCode; warned == own || len(r.Warnings) > 1 {
			t.Errorf("platform handles EFI: %v, warnings %v", own, r.Warnings)
		}
	}
}

// A BIOS VM has no variables file, even if its definition has an EFI state.
func TestNoVariablesForBIOS(t *testing.T) {
	d := newTarget(t, Options{firmwareRoot: t.TempDir()})
	if n := d.planNVRAM(targets.Definition{VM: &inventory.VM{Firmware: inventory.BIOS}, EFI: debianEntry()}, "/vm"); n.file != "" || n.why != nil {
		t.Errorf("got %+v, want no file", n)
	}
}

// Domain creates the variables file that the domain of a boot test names. Discard removes it.
func TestDomainCreatesVariables(t *testing.T) {
	requireTools(t, varsTemplate)
	vars, err := os.ReadFile(varsTemplate)
	must(t, err)
	d := newTarget(t, Options{firmwareRoot: newFirmwareRoot(t, vars)})
	vm := efiVM()
	images, err := d.Plan(t.Context(), vm)
	must(t, err)
	xml, err := d.Domain(targets.Definition{VM: vm, Images: images, EFI: debianEntry()})
	must(t, err)
	file := filepath.Join(d.partialFolder(vm), "efi_VARS.fd")
	if data, err := os.ReadFile(file); err != nil || len(data) != len(vars) || !strings.Contains(xml, file) {
		t.Errorf("got file of %d bytes, %v, domain:\n%s", len(data), err, xml)
	}
	must(t, d.Discard(t.Context(), vm, images))
	if _, err := os.Stat(d.partialFolder(vm)); err == nil {
		t.Error("the folder exists after Discard")
	}
}

func TestRecordWithInvalidVariablesPath(t *testing.T) {
	for _, name := range []string{"", "../x", "a/b", "/etc/passwd"} {
		text, err := json.Marshal(Record{Version: recordVersion, Source: efiVM(), NVRAM: &RecordedFile{File: name}})
		must(t, err)
		if _, err := parseRecord(text); err == nil {
			t.Errorf("file name %q is accepted", name)
		}
	}
}
