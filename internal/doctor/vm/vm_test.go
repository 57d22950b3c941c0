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

// newVM returns a VM without findings.
func newVM() inventory.VM {
	return inventory.VM{
		Ref: "vm-1", Name: "web 01", UUID: "u-1", InstanceUUID: "i-1", Power: inventory.PoweredOff, GuestID: "debian12_64Guest",
		HardwareVersion: 19, CPUs: 2, MemoryMiB: 2048, Datacenter: "DC",
		Disks: []inventory.Disk{{Key: 2000, Backing: inventory.Flat, Mode: "persistent", Layers: 1, Capacity: 1 << 30}},
		NICs:  []inventory.NIC{{MAC: "00:50:56:00:00:01"}},
	}
}

// fakeTarget is a folder as a target.
type fakeTarget struct {
	holds bool
	err   error
}

func (p fakeTarget) Folder(v *inventory.VM) string { return "/srv/vm/" + strings.ToLower(v.Name) }
func (p fakeTarget) Holds(*inventory.VM) bool      { return p.holds }
func (p fakeTarget) Plan(context.Context, *inventory.VM) ([]targets.Image, error) {
	return nil, p.err
}

// fakeSource is a source whose guests all have the same file systems.
type fakeSource struct {
	volumes []inventory.Volume
	err     error
}

func (g fakeSource) Volumes(_ context.Context, refs []inventory.MoRef) (map[inventory.MoRef][]inventory.Volume, error) {
	all := map[inventory.MoRef][]inventory.Volume{}
	for _, r := range refs {
		all[r] = g.volumes
	}
	return all, g.err
}

// rdmTransport is a transport that supports raw devices.
type rdmTransport struct{ transport.Transport }

func (rdmTransport) Supports(code string) bool { return code == "rdm" }

func examine(t *testing.T, o vm.Options) map[string][]doctor.Finding {
	t.Helper()
	byCode := map[string][]doctor.Finding{}
	for _, f := range doctor.Examine(t.Context(), vm.Checks(o), doctor.Options{}) {
		if f.Status != doctor.OK && (f.Remedy == "" || f.Found == "" || f.Want == "" || f.On == "" && f.Status != doctor.Unknown) {
			t.Errorf("a finding of %s is incomplete: %+v", f.Code, f)
		}
		if f.Status != doctor.OK {
			byCode[f.Code] = append(byCode[f.Code], f)
		}
	}
	return byCode
}

// Each change causes a finding of exactly one check.
func TestChecks(t *testing.T) {
	withWarning := func(code string, blocks bool) func(*vm.Options) {
		return func(o *vm.Options) {
			o.VMs[0].Warnings = []inventory.Warning{{Code: code, Text: "seen " + code, Remedy: "mend " + code, Blocks: blocks}}
		}
	}
	windows := func(id string, tpm bool) func(*vm.Options) {
		return func(o *vm.Options) {
			o.VMs[0].GuestID, o.VMs[0].VTPM = id, tpm
			if tpm {
				withWarning("vtpm", false)(o)
			}
		}
	}
	guest := func(volumes ...inventory.Volume) func(*vm.Options) {
		return func(o *vm.Options) { o.VMs[0].ToolsRunning, o.Source = true, fakeSource{volumes: volumes} }
	}
	for _, c := range []struct {
		name   string
		change func(*vm.Options)
		code   string // code of the finding; empty if none
		status doctor.Status
		found  string
	}{
		{"nothing", func(*vm.Options) {}, "", 0, ""},
		{"running", withWarning("running", true), "vm-state", doctor.Failure, "seen running"},
		{"running, may be powered off", func(o *vm.Options) { withWarning("running", true)(o); o.Permit.PowerOff = true }, "", 0, ""},
		{"running, warm migration", func(o *vm.Options) { withWarning("running", true)(o); o.Warm = true }, "", 0, ""},
		{"running, in a survey", func(o *vm.Options) { withWarning("running", true)(o); o.Survey = true }, "", 0, ""},
		{"a template in a survey", func(o *vm.Options) { withWarning("template", false)(o); o.Survey = true }, "", 0, ""},
		{"a raw device in a survey", func(o *vm.Options) { withWarning("rdm", true)(o); o.Survey = true }, "vm-disks", doctor.Warning, "seen rdm"},
		{"snapshots", withWarning("snapshots", true), "vm-snapshots", doctor.Failure, "seen"},
		{"a layer without a warning", func(o *vm.Options) { o.VMs[0].Disks[0].Layers = 2 }, "vm-snapshots", doctor.Failure, "layer"},
		{"raw device", withWarning("rdm", true), "vm-disks", doctor.Failure, "seen rdm"},
		{"raw device that the host copies", func(o *vm.Options) { withWarning("rdm", true)(o); o.Transport = rdmTransport{} }, "", 0, ""},
		{"a backing without a warning", func(o *vm.Options) { o.VMs[0].Disks[0].Backing = "tape" }, "vm-disks", doctor.Failure, "tape"},
		{"independent", withWarning("independent", false), "vm-independent", doctor.Advice, "seen"},
		{"shared", withWarning("shared-disk", true), "vm-shared", doctor.Failure, "seen"},
		{"encrypted", withWarning("encrypted", true), "vm-encrypted", doctor.Failure, "seen"},
		{"BusLogic", withWarning("buslogic", false), "vm-controller", doctor.Warning, "seen"},
		{"TPM", withWarning("vtpm", false), "vm-tpm", doctor.Warning, "seen"},
		{"secure boot", withWarning("secure-boot", false), "vm-secure-boot", doctor.Warning, "seen"},
		{"port", withWarning("port", false), "vm-device", doctor.Warning, "seen"},
		{"CD", withWarning("cdrom", false), "vm-device", doctor.Advice, "seen"},
		{"name", withWarning("duplicate-name", false), "vm-name", doctor.Advice, "seen"},
		{"refused elsewhere", func(o *vm.Options) { withWarning("rdm", true)(o); o.Refused = true }, "", 0, ""},
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
		{"guests that do not respond", func(o *vm.Options) {
			o.VMs[0].ToolsRunning, o.Source = true, fakeSource{err: errors.New("busy")}
		}, "vm-guest-space", doctor.Unknown, "busy"},
		{"many processors", func(o *vm.Options) { o.VMs[0].CPUs = 256 }, "vm-size", doctor.Warning, "256 processors"},
		{"much memory", func(o *vm.Options) { o.VMs[0].MemoryMiB = 1 << 20 }, "vm-size", doctor.Warning, "1024 GiB"},
		{"the address of another VM", func(o *vm.Options) {
			o.All = append([]inventory.VM{newVM()}, newTwin())
		}, "vm-mac", doctor.Warning, "VM twin also has the MAC address 00:50:56:00:00:01"},
		{"the address of a migrated VM", func(o *vm.Options) { o.AtTarget = []inventory.VM{newTwin()} }, "vm-mac", doctor.Warning, "twin"},
		{"the address of the same VM, already migrated", func(o *vm.Options) { o.AtTarget = []inventory.VM{newVM()} }, "", 0, ""},
		{"a free target", func(o *vm.Options) { o.Targets = []vm.Target{fakeTarget{}} }, "", 0, ""},
		{"already migrated", func(o *vm.Options) { o.Targets = []vm.Target{fakeTarget{holds: true}} }, "vm-target", doctor.Warning, "already migrated to /srv/vm/web 01"},
		{"a name in use", func(o *vm.Options) {
			o.Targets = []vm.Target{fakeTarget{err: fault.New(fault.Conflict, "another is there").WithHint("mv it")}}
		}, "vm-target", doctor.Failure, "another is there"},
		{"a full target", func(o *vm.Options) { o.Targets = []vm.Target{fakeTarget{err: fault.New(fault.Full, "full")}} }, "", 0, ""},
		{"two VMs with the same folder", func(o *vm.Options) {
			other := newVM()
			other.Ref, other.Name, other.UUID, other.NICs = "vm-2", "WEB 01", "u-2", nil
			o.VMs, o.Targets = append(o.VMs, other), []vm.Target{fakeTarget{}}
		}, "vm-target", doctor.Failure, "VM web 01 (vm-1) is also migrated to /srv/vm/web 01"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := vm.Options{VMs: []inventory.VM{newVM()}}
			c.change(&o)
			found := examine(t, o)
			if c.code == "" {
				if len(found) > 0 {
					t.Errorf("got findings %+v, want none", found)
				}
				return
			}
			got := found[c.code]
			if len(found) != 1 || len(got) != 1 || got[0].Status != c.status || !strings.Contains(got[0].Found, c.found) {
				t.Errorf("got findings %+v, want %s (%s)", found, c.code, c.status)
			}
		})
	}
}

// newTwin returns a VM with the MAC address of newVM.
func newTwin() inventory.VM {
	v := newVM()
	v.Ref, v.Name, v.UUID, v.InstanceUUID = "vm-9", "twin", "u-9", "i-9"
	return v
}

// Each warning of the inventory is reported by exactly one check.
func TestEachWarningHasACheck(t *testing.T) {
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
			v := newVM()
			v.Warnings = []inventory.Warning{{Code: m[1], Text: "seen", Remedy: "mend"}}
			if found := examine(t, vm.Options{VMs: []inventory.VM{v}}); len(found) != 1 {
				t.Errorf("%d checks report warning %s, want 1", len(found), m[1])
			}
		}
	}
	if codes < 20 {
		t.Errorf("found %d warnings in package esx, want at least 20", codes)
	}
}

// If two selected VMs have the same MAC address, each has a finding.
func TestDuplicateAddressOfTwoSelectedVMs(t *testing.T) {
	found := examine(t, vm.Options{VMs: []inventory.VM{newVM(), newTwin()}, Permit: migrate.Permit{}})
	if len(found["vm-mac"]) != 2 {
		t.Errorf("got findings %+v, want 2 of vm-mac", found)
	}
}
