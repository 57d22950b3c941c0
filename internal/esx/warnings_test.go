package esx

import (
	"slices"
	"testing"

	"github.com/decamp/decamp/internal/inventory"
)

// plain is a VM without anything to say about.
func plain() *machine {
	return &machine{VM: inventory.VM{
		Ref: "vm-1", Power: inventory.PoweredOff,
		Controllers: []inventory.Controller{{Key: 1000, Bus: inventory.PVSCSI}},
		Disks: []inventory.Disk{{
			Key: 2000, Label: "Hard disk 1", Controller: 1000, Backing: inventory.Flat, Mode: "persistent", Layers: 1,
		}},
	}}
}

func TestWarnings(t *testing.T) {
	const stops, goes = true, false
	for _, c := range []struct {
		code   string
		blocks bool
		change func(*machine)
	}{
		{"running", stops, func(m *machine) { m.Power = inventory.PoweredOn }},
		{"suspended", stops, func(m *machine) { m.Power = inventory.Suspended }},
		{"snapshots", stops, func(m *machine) { m.Snapshots = 2; m.Disks[0].Backing = inventory.SESparse }},
		{"consolidation", stops, func(m *machine) { m.ConsolidationNeeded = true; m.Disks[0].Backing = inventory.Delta }},
		{"linked-clone", stops, func(m *machine) { m.Disks[0].Backing = inventory.Delta }},
		{"encrypted", stops, func(m *machine) { m.Encrypted = true }},
		{"rdm", stops, func(m *machine) { m.Disks[0].Backing = inventory.RDM }},
		{"rdm-physical", stops, func(m *machine) { m.Disks[0].Backing = inventory.RDM; m.physicalRDM = []int32{2000} }},
		{"vsan", stops, func(m *machine) { m.Disks[0].Backing = inventory.VSAN }},
		{"vvol", stops, func(m *machine) { m.Disks[0].Backing = inventory.VVol }},
		{"unknown-backing", stops, func(m *machine) { m.Disks[0].Backing = inventory.UnknownBacking }},
		{"independent", goes, func(m *machine) { m.Disks[0].Mode = "independent_persistent" }},
		{"nonpersistent", goes, func(m *machine) { m.Disks[0].Mode = "nonpersistent" }},
		{"shared-disk", stops, func(m *machine) { m.Disks[0].Shared = true }},
		{"shared-bus", stops, func(m *machine) { m.Controllers[0].SharedBus = true }},
		{"buslogic", goes, func(m *machine) { m.Controllers[0].Bus = inventory.BusLogic }},
		{"unknown-controller", stops, func(m *machine) { m.Controllers[0].Bus, m.Controllers[0].Unexpected = "", "VirtualNVDIMMController" }},
		{"unknown-controller", goes, func(m *machine) {
			m.Controllers = append(m.Controllers, inventory.Controller{Key: 1001, Unexpected: "VirtualNVDIMMController"})
		}},
		{"vtpm", goes, func(m *machine) { m.VTPM = true }},
		{"secure-boot", goes, func(m *machine) { m.SecureBoot = true }},
		{"template", goes, func(m *machine) { m.Template = true }},
		{"no-disks", stops, func(m *machine) { m.Disks = nil }},
		{"system-vm", stops, func(m *machine) { m.agent = true }},
		{"inaccessible", stops, func(m *machine) { m.unreadable = "disconnected"; m.Disks = nil }},
		{"duplicate-name", goes, func(m *machine) { m.sameName = 1 }},
		{"cdrom", goes, func(m *machine) { m.media = []string{"CD/DVD drive 1"} }},
		{"port", goes, func(m *machine) { m.ports = []string{"Serial port 1"} }},
		{"passthrough", goes, func(m *machine) { m.passthrough = []string{"PCI device 0"} }},
	} {
		m := plain()
		c.change(m)
		got := m.findWarnings()
		if len(got) != 1 || got[0].Code != c.code || got[0].Blocks != c.blocks || got[0].Text == "" || got[0].Remedy == "" {
			t.Errorf("%s: %+v, want that one alone, blocking: %v", c.code, got, c.blocks)
		}
	}
	if got := plain().findWarnings(); len(got) != 0 {
		t.Errorf("a plain VM is warned about: %+v", got)
	}
}

func TestWarningsNameEachDisk(t *testing.T) {
	m := plain()
	m.Disks = append(m.Disks, m.Disks[0])
	m.Disks[1].Key, m.Disks[1].Mode = 2001, "independent_nonpersistent"
	m.Disks[0].Shared = true
	var codes []string
	for _, w := range m.findWarnings() {
		codes = append(codes, w.Code)
	}
	if !slices.Equal(codes, []string{"shared-disk", "independent", "nonpersistent"}) {
		t.Fatalf("%q", codes)
	}
}
