package vm_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/doctor/vm"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/transport"
)

// plain is a VM without anything to say about.
func plain() inventory.VM {
	return inventory.VM{
		Ref: "vm-1", Name: "web 01", UUID: "u-1", InstanceUUID: "i-1", Power: inventory.PoweredOff, GuestID: "debian12_64Guest",
		HardwareVersion: 19, CPUs: 2, MemoryMiB: 2048, Datacenter: "DC",
		Disks: []inventory.Disk{{Key: 2000, Backing: inventory.Flat, Mode: "persistent", Layers: 1, Capacity: 1 << 30}},
		NICs:  []inventory.NIC{{MAC: "00:50:56:00:00:01"}},
	}
}

// place is a folder of the test.
type place struct {
	holds bool
	err   error
}

func (p place) Folder(v *inventory.VM) string { return "/srv/vm/" + strings.ToLower(v.Name) }
func (p place) Holds(*inventory.VM) bool      { return p.holds }
func (p place) Plan(context.Context, *inventory.VM) ([]targets.Image, error) {
	return nil, p.err
}

// guests tells the file systems of every guest it is asked about.
type guests struct {
	volumes []inventory.Volume
	err     error
}

func (g guests) Volumes(_ context.Context, refs []inventory.MoRef) (map[inventory.MoRef][]inventory.Volume, error) {
	all := map[inventory.MoRef][]inventory.Volume{}
	for _, r := range refs {
		all[r] = g.volumes
	}
	return all, g.err
}

// lifter moves what others do not.
type lifter struct{ transport.Transport }

func (lifter) Supports(code string) bool { return code == "rdm" }

func examine(t *testing.T, o vm.Options) map[string][]doctor.Finding {
	t.Helper()
	byCode := map[string][]doctor.Finding{}
	for _, f := range doctor.Examine(t.Context(), vm.Checks(o), doctor.Options{}) {
		if f.Status != doctor.OK && (f.Remedy == "" || f.Found == "" || f.Want == "" || f.On == "" && f.Status != doctor.Unknown) {
			t.Errorf("%s says too little: %+v", f.Code, f)
		}
		if f.Status != doctor.OK {
			byCode[f.Code] = append(byCode[f.Code], f)
		}
	}
	return byCode
}

// Each change makes one check, and no other, find something.
func TestChecks(t *testing.T) {
	warned := func(code string, blocks bool) func(*vm.Options) {
		return func(o *vm.Options) {
			o.VMs[0].Warnings = []inventory.Warning{{Code: code, Text: "seen " + code, Remedy: "mend " + code, Blocks: blocks}}
		}
	}
	windows := func(id string, tpm bool) func(*vm.Options) {
		return func(o *vm.Options) {
			o.VMs[0].GuestID, o.VMs[0].VTPM = id, tpm
			if tpm {
				warned("vtpm", false)(o)
			}
		}
	}
	guest := func(volumes ...inventory.Volume) func(*vm.Options) {
		return func(o *vm.Options) { o.VMs[0].ToolsRunning, o.Source = true, guests{volumes: volumes} }
	}
	for _, c := range []struct {
		name   string
		change func(*vm.Options)
		code   string // "": nothing
		status doctor.Status
		seen   string
	}{
		{"nothing", func(*vm.Options) {}, "", 0, ""},
		{"running", warned("running", true), "vm-state", doctor.Failure, "seen running"},
		{"running, may be switched off", func(o *vm.Options) { warned("running", true)(o); o.Permit.PowerOff = true }, "", 0, ""},
		{"running, moved warm", func(o *vm.Options) { warned("running", true)(o); o.Warm = true }, "", 0, ""},
		{"running, as most do", func(o *vm.Options) { warned("running", true)(o); o.Survey = true }, "", 0, ""},
		{"a template among many", func(o *vm.Options) { warned("template", false)(o); o.Survey = true }, "", 0, ""},
		{"a raw device among many", func(o *vm.Options) { warned("rdm", true)(o); o.Survey = true }, "vm-disks", doctor.Warning, "seen rdm"},
		{"snapshots", warned("snapshots", true), "vm-snapshots", doctor.Failure, "seen"},
		{"a layer without a warning", func(o *vm.Options) { o.VMs[0].Disks[0].Layers = 2 }, "vm-snapshots", doctor.Failure, "layer"},
		{"raw device", warned("rdm", true), "vm-disks", doctor.Failure, "seen rdm"},
		{"raw device that the host copies", func(o *vm.Options) { warned("rdm", true)(o); o.Transport = lifter{} }, "", 0, ""},
		{"a backing without a warning", func(o *vm.Options) { o.VMs[0].Disks[0].Backing = "tape" }, "vm-disks", doctor.Failure, "tape"},
		{"independent", warned("independent", false), "vm-independent", doctor.Advice, "seen"},
		{"shared", warned("shared-disk", true), "vm-shared", doctor.Failure, "seen"},
		{"encrypted", warned("encrypted", true), "vm-encrypted", doctor.Failure, "seen"},
		{"BusLogic", warned("buslogic", false), "vm-controller", doctor.Warning, "seen"},
		{"TPM", warned("vtpm", false), "vm-tpm", doctor.Warning, "seen"},
		{"secure boot", warned("secure-boot", false), "vm-secure-boot", doctor.Warning, "seen"},
		{"port", warned("port", false), "vm-device", doctor.Warning, "seen"},
		{"CD", warned("cdrom", false), "vm-device", doctor.Advice, "seen"},
		{"name", warned("duplicate-name", false), "vm-name", doctor.Advice, "seen"},
		{"refused elsewhere", func(o *vm.Options) { warned("rdm", true)(o); o.Refused = true }, "", 0, ""},
		{"Windows with a TPM", windows("windows2019srv_64Guest", true), "vm-bitlocker", doctor.Warning, "BitLocker"},
		{"Windows 10", windows("windows9_64Guest", false), "vm-fast-startup", doctor.Advice, "fast startup"},
		{"Windows Server 2016", windows("windows9Server64Guest", false), "", 0, ""},
		{"Windows Server 2012", windows("windows8Server64Guest", false), "", 0, ""},
		{"cold, independent", func(o *vm.Options) { o.VMs[0].Disks[0].Mode = "independent_persistent" }, "", 0, ""},
		{"warm, independent", func(o *vm.Options) { o.Warm = true; o.VMs[0].Disks[0].Mode = "independent_persistent" }, "vm-warm", doctor.Failure, "snapshots do not include it"},
		{"warm, independent, refused elsewhere", func(o *vm.Options) {
			o.Warm, o.Refused = true, true
			o.VMs[0].Disks[0].Mode = "independent_persistent"
		}, "", 0, ""},
		{"warm, without tracking", func(o *vm.Options) { o.Warm = true }, "", 0, ""},
		{"warm, too old for tracking", func(o *vm.Options) { o.Warm = true; o.VMs[0].HardwareVersion = 4 }, "vm-tracking", doctor.Warning, "hardware version 4"},
		{"room", guest(inventory.Volume{Path: "/", Capacity: 10 << 30, Free: 1 << 30}), "", 0, ""},
		{"no room", guest(inventory.Volume{Path: `c:\`, Capacity: 10 << 30, Free: 99 << 20}), "vm-guest-space", doctor.Warning, `c:\ has 99 of 10240 MiB free`},
		{"a CD is full", guest(inventory.Volume{Path: `D:\`, Capacity: 10 << 20}), "", 0, ""},
		{"guests that cannot be asked", func(o *vm.Options) {
			o.VMs[0].ToolsRunning, o.Source = true, guests{err: errors.New("busy")}
		}, "vm-guest-space", doctor.Unknown, "busy"},
		{"many processors", func(o *vm.Options) { o.VMs[0].CPUs = 256 }, "vm-size", doctor.Warning, "256 processors"},
		{"much memory", func(o *vm.Options) { o.VMs[0].MemoryMiB = 1 << 20 }, "vm-size", doctor.Warning, "1024 GiB"},
		{"the address of one that stays", func(o *vm.Options) {
			o.All = append([]inventory.VM{plain()}, twin())
		}, "vm-mac", doctor.Warning, "VM twin also has the MAC address 00:50:56:00:00:01"},
		{"the address of one moved earlier", func(o *vm.Options) { o.AtTarget = []inventory.VM{twin()} }, "vm-mac", doctor.Warning, "twin"},
		{"its own address, moved earlier", func(o *vm.Options) { o.AtTarget = []inventory.VM{plain()} }, "", 0, ""},
		{"a free place", func(o *vm.Options) { o.Targets = []vm.Target{place{}} }, "", 0, ""},
		{"moved already", func(o *vm.Options) { o.Targets = []vm.Target{place{holds: true}} }, "vm-target", doctor.Warning, "already migrated to /srv/vm/web 01"},
		{"a name that is taken", func(o *vm.Options) {
			o.Targets = []vm.Target{place{err: fault.New(fault.Conflict, "another is there").WithHint("mv it")}}
		}, "vm-target", doctor.Failure, "another is there"},
		{"no room at the place", func(o *vm.Options) { o.Targets = []vm.Target{place{err: fault.New(fault.Full, "full")}} }, "", 0, ""},
		{"two names that are one", func(o *vm.Options) {
			other := plain()
			other.Ref, other.Name, other.UUID, other.NICs = "vm-2", "WEB 01", "u-2", nil
			o.VMs, o.Targets = append(o.VMs, other), []vm.Target{place{}}
		}, "vm-target", doctor.Failure, "VM web 01 (vm-1) is also migrated to /srv/vm/web 01"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := vm.Options{VMs: []inventory.VM{plain()}}
			c.change(&o)
			found := examine(t, o)
			if c.code == "" {
				if len(found) > 0 {
					t.Errorf("found %+v", found)
				}
				return
			}
			got := found[c.code]
			if len(found) != 1 || len(got) != 1 || got[0].Status != c.status || !strings.Contains(got[0].Found, c.seen) {
				t.Errorf("found %+v, want %s (%s)", found, c.code, c.status)
			}
		})
	}
}

// twin has the address of plain.
func twin() inventory.VM {
	v := plain()
	v.Ref, v.Name, v.UUID, v.InstanceUUID = "vm-9", "twin", "u-9", "i-9"
	return v
}

// Every warning of the inventory is some check's, and so is every obstacle.
func TestNoWarningIsForgotten(t *testing.T) {
	coded := regexp.MustCompile(`(?:blockingWarning|warningOnly)\("([a-z-]+)"`)
	files, err := filepath.Glob("../../esx/*.go")
	if err != nil {
		t.Fatal(err)
	}
	codes := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range coded.FindAllStringSubmatch(string(text), -1) {
			codes++
			v := plain()
			v.Warnings = []inventory.Warning{{Code: m[1], Text: "seen", Remedy: "mend"}}
			if found := examine(t, vm.Options{VMs: []inventory.VM{v}}); len(found) != 1 {
				t.Errorf("%s is the warning of %d checks", m[1], len(found))
			}
		}
	}
	if codes < 20 {
		t.Errorf("only %d warnings were found: is the source being read right?", codes)
	}
}

// Two VMs to be moved with one address are each told of the other.
func TestBothOfTwoAddressesAreTold(t *testing.T) {
	found := examine(t, vm.Options{VMs: []inventory.VM{plain(), twin()}, Permit: migrate.Permit{}})
	if len(found["vm-mac"]) != 2 {
		t.Errorf("%+v", found)
	}
}
