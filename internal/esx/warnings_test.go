package esx

import (
	"slices"
	"testing"

	"github.com/decamp/decamp/internal/inventory"
)

// plainVM returns a VM without warnings.
func plainVM() *machine {
	return &machine{VM: inventory.VM{
		Ref: "vm-1", Power: inventory.PoweredOff,
		Controllers: []inventory.Controller{{Key: 1000, Bus: inventory.PVSCSI}},
		Disks: []inventory.Disk{{
			Key: 2000, Label: "Hard disk 1", Controller: 1000, Backing: inventory.Flat, Mode: "persistent", Layers: 1,
		}},
	}}
}

func TestWarnings(t *testing.T) {
	const blocks, warns = true, false
	for _, c := range []struct {
		code   string
		blocks bool
		change func(*machine)
	}{
		{"running", blocks, func(m *machine) { m.Power = inventory.PoweredOn }},
		{"suspended", blocks, func(m *machine) { m.Power = inventory.Suspended }},
		{"snapshots", blocks, func(m *machine) { m.Snapshots = 2; m.Disks[0].Backing = inventory.SESparse }},
		{"consolidation", blocks, func(m *machine) { m.ConsolidationNeeded = true; m.Disks[0].Backing = inventory.Delta }},
		{"linked-clone", blocks, func(m *machine) { m.Disks[0].Backing = inventory.Delta }},
		{"encrypted", blocks, func(m *machine) { m.Encrypted = true }},
		{"rdm", blocks, func(m *machine) { m.Disks[0].Backing = inventory.RDM }},
		{"rdm-physical", blocks, func(m *machine) { m.Disks[0].Backing = inventory.RDM; m.physicalRDM = []int32{2000} }},
		{"vsan", blocks, func(m *machine) { m.Disks[0].Backing = inventory.VSAN }},
		{"vvol", blocks, func(m *machine) { m.Disks[0].Backing = inventory.VVol }},
		{"unknown-backing", blocks, func(m *machine) { m.Disks[0].Backing = inventory.UnknownBacking }},
		{"independent", warns, func(m *machine) { m.Disks[0].Mode = "independent_persistent" }},
		{"nonpersistent", warns, func(m *machine) { m.Disks[0].Mode = "nonpersistent" }},
		{"shared-disk", blocks, func(m *machine) { m.Disks[0].Shared = true }},
		{"shared-bus", blocks, func(m *machine) { m.Controllers[0].SharedBus = true }},
		{"buslogic", warns, func(m *machine) { m.Controllers[0].Bus = inventory.BusLogic }},
		{"unknown-controller", blocks, func(m *machine) { m.Controllers[0].Bus, m.Controllers[0].Unexpected = "", "VirtualNVDIMMController" }},
		{"unknown-controller", warns, func(m *machine) {
			m.Controllers = append(m.Controllers, inventory.Controller{Key: 1001, Unexpected: "VirtualNVDIMMController"})
		}},
		{"vtpm", warns, func(m *machine) { m.VTPM = true }},
		{"secure-boot", warns, func(m *machine) { m.SecureBoot = true }},
		{"template", warns, func(m *machine) { m.Template = true }},
		{"no-disks", blocks, func(m *machine) { m.Disks = nil }},
		{"system-vm", blocks, func(m *machine) { m.agent = true }},
		{"inaccessible", blocks, func(m *machine) { m.unreadable = "disconnected"; m.Disks = nil }},
		{"duplicate-name", warns, func(m *machine) { m.sameName = 1 }},
		{"cdrom", warns, func(m *machine) { m.media = []string{"CD/DVD drive 1"} }},
		{"port", warns, func(m *machine) { m.ports = []string{"Serial port 1"} }},
		{"passthrough", warns, func(m *machine) { m.passthrough = []string{"PCI device 0"} }},
	} {
		m := plainVM()
		c.change(m)
		got := m.findWarnings()
		if len(got) != 1 || got[0].Code != c.code || got[0].Blocks != c.blocks || got[0].Text == "" || got[0].Remedy == "" {
			t.Errorf("%s: %+v, want only that warning, blocking: %v", c.code, got, c.blocks)
		}
	}
	if got := plainVM().findWarnings(); len(got) != 0 {
		t.Errorf("a VM without problems has warnings: %+v", got)
	}
}

func TestWarningsNameEachDisk(t *testing.T) {
	m := plainVM()
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
