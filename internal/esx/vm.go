package esx

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/inventory"
)

// VMs lists all VMs with disks, network cards, tags and warnings, sorted by name. The
// list includes templates, VMs without disks and vSphere's own agents; they have
// warnings.
func (s *inventoryReader) VMs(ctx context.Context) ([]inventory.VM, error) {
	t, err := s.readAll(ctx, append([]string{"VirtualMachine"}, s.relatedKinds()...)...)
	if err != nil {
		return nil, fmt.Errorf("list VMs of %s: %w", s.end.addr, err)
	}
	vms := t.describeSorted()
	return vms, s.addTagsAndAttributes(ctx, t, vms)
}

// relatedKinds returns the object types whose names a description of a VM contains.
func (s *inventoryReader) relatedKinds() []string {
	kinds := append([]string{"HostSystem", "Datastore"}, places...)
	if s.about.VCenter {
		kinds = append(kinds, "DistributedVirtualPortgroup", "ClusterComputeResource")
	}
	return kinds
}

// describeSorted describes all VMs of the tree, sorted by name, with warnings about
// duplicate names.
func (t *tree) describeSorted() []inventory.VM {
	names := map[string]int{}
	for i := range t.vms {
		// The names are escaped; equal names have equal escapes.
		names[t.vms[i].Name]++
	}
	out := t.describeVMs(names)
	slices.SortFunc(out, func(a, b inventory.VM) int { return byName(a.Name, b.Name, a.Ref, b.Ref) })
	return out
}

// describeVMs describes all VMs of the tree in the server's order. names is the number
// of VMs by name. If it is nil, there are no warnings about duplicate names.
func (t *tree) describeVMs(names map[string]int) []inventory.VM {
	out := make([]inventory.VM, 0, len(t.vms))
	for i := range t.vms {
		m := t.toMachine(&t.vms[i])
		// With nil names this is -1, which has no warning.
		m.sameName = names[t.vms[i].Name] - 1
		m.invalid = append(m.RemoveInvalid(), m.invalid...)
		m.Warnings = m.findWarnings()
		out = append(out, m.VM)
	}
	return out
}

// machine is a VM with the facts that only its warnings need.
type machine struct {
	inventory.VM
	unreadable  string   // reason why the VM's configuration cannot be read; empty if it can
	invalid     []string // invalid values that were removed; see inventory.VM.RemoveInvalid
	agent       bool     // true if the VM is an agent of vSphere (vCLS)
	sameName    int      // number of other VMs with the same name; negative if unknown
	media       []string // labels of CD-ROM drives with a medium
	ports       []string // labels of connected floppy drives and ports
	passthrough []string // labels of devices of the host
	physicalRDM []int32  // keys of raw device mappings in physical mode
}

// toMachine converts a VM. Without a configuration, only the fields outside of it are
// set, and unreadable has the reason.
func (t *tree) toMachine(v *mo.VirtualMachine) *machine {
	m := &machine{VM: inventory.VM{
		Ref:                 inventory.MoRef(v.Self.Value),
		Name:                unescapeName(v.Name),
		Power:               toPower(v.Runtime.PowerState),
		Snapshots:           countSnapshots(v.Snapshot),
		ConsolidationNeeded: v.Runtime.ConsolidationNeeded,
	}}
	// A VM in a vApp has no parent folder. Its path continues with the vApp.
	parent := v.Parent
	if parent == nil {
		parent = v.ParentVApp
	}
	m.Datacenter, m.Folder = t.locate(parent)
	if h := v.Runtime.Host; h != nil {
		m.Host, m.HostName = inventory.MoRef(h.Value), unescapeName(t.hosts[*h].Name)
		m.Cluster = t.clusterOf(t.hosts[*h])
	}
	if v.Guest != nil {
		m.ToolsRunning = v.Guest.ToolsRunningStatus == string(types.VirtualMachineToolsRunningStatusGuestToolsRunning)
	}
	m.unreadable = whyUnreadable(v)
	if v.Config != nil {
		m.setConfig(v.Config)
		m.NVRAM = nvramOf(v, m.Firmware)
		t.addDevices(m, v)
	}
	return m
}

// whyUnreadable returns why a VM cannot be inspected or migrated, or "" if it can.
func whyUnreadable(v *mo.VirtualMachine) string {
	switch {
	case v.Runtime.ConnectionState != types.VirtualMachineConnectionStateConnected:
		return string(v.Runtime.ConnectionState)
	case v.Config == nil:
		return "it is not shown to this user"
	}
	return ""
}

// setConfig sets all fields from the configuration except the devices. UUIDs are lower
// case.
func (m *machine) setConfig(c *types.VirtualMachineConfigInfo) {
	m.UUID = strings.ToLower(c.Uuid)
	m.InstanceUUID = strings.ToLower(c.InstanceUuid)
	m.Template = c.Template
	m.GuestID, m.GuestName = c.GuestId, c.GuestFullName
	m.HardwareVersion, _ = strconv.Atoi(strings.TrimPrefix(c.Version, "vmx-"))
	m.Annotation = c.Annotation
	m.VMX = pathOf(c.Files.VmPathName)
	m.CPUs, m.MemoryMiB = int(c.Hardware.NumCPU), int64(c.Hardware.MemoryMB)
	m.CoresPerSocket = 1
	if n := c.Hardware.NumCoresPerSocket; n != nil && *n > 0 {
		m.CoresPerSocket = int(*n)
	}
	m.Firmware = toFirmware(c.Firmware)
	if b := c.BootOptions; b != nil {
		m.SecureBoot = isTrue(b.EfiSecureBootEnabled)
		m.BootOrder = bootOrder(b.BootOrder)
	}
	m.Encrypted = c.KeyId != nil
	m.ChangeTracking = isTrue(c.ChangeTrackingEnabled)
	m.agent = isAgent(c)
}

// isAgent reports whether a VM is one of vSphere's cluster agents (vCLS).
func isAgent(c *types.VirtualMachineConfigInfo) bool {
	for _, o := range c.ExtraConfig {
		v := o.GetOptionValue()
		if text, _ := v.Value.(string); v.Key == "HDCS.agent" && strings.EqualFold(text, "true") {
			return true
		}
	}
	return c.ManagedBy != nil && c.ManagedBy.ExtensionKey == "com.vmware.vim.eam"
}

// nvramOf returns the file with the EFI variables of a VM, or an empty path. The API
// lists it among the VM's files only.
func nvramOf(v *mo.VirtualMachine, f inventory.Firmware) (at inventory.Path) {
	if f != inventory.EFI || v.LayoutEx == nil {
		return at
	}
	for _, file := range v.LayoutEx.File {
		if file.Type == string(types.VirtualMachineFileLayoutExFileTypeNvram) {
			return pathOf(file.Name)
		}
	}
	return at
}

// firmwareCSM is the API's name of EFI firmware that boots in BIOS mode.
const firmwareCSM = "csm"

// toFirmware converts the reported firmware. It returns BIOS for "". An unknown value
// is returned unchanged, so that RemoveInvalid reports it.
func toFirmware(reported string) inventory.Firmware {
	if reported == "" || reported == firmwareCSM {
		return inventory.BIOS
	}
	return inventory.Firmware(reported)
}

// pathOf parses a datastore path from the source. An invalid path is returned in File,
// so that RemoveInvalid reports it. The path is empty for "[] /vmfs/volumes/…", the
// configuration file of a VM without its datastore.
func pathOf(s string) inventory.Path {
	if s == "" || strings.HasPrefix(s, "[] /") {
		return inventory.Path{}
	}
	p, err := inventory.ParsePath(s)
	if err != nil {
		return inventory.Path{File: s}
	}
	return p
}

// toPower converts a power state. Unknown states are PoweredOff.
func toPower(p types.VirtualMachinePowerState) inventory.Power {
	switch p {
	case types.VirtualMachinePowerStatePoweredOn:
		return inventory.PoweredOn
	case types.VirtualMachinePowerStateSuspended:
		return inventory.Suspended
	}
	return inventory.PoweredOff
}

// countSnapshots returns the number of snapshots of a VM. info is nil if there are
// none.
func countSnapshots(info *types.VirtualMachineSnapshotInfo) int {
	if info == nil {
		return 0
	}
	return countTree(info.RootSnapshotList)
}

// countTree returns the number of snapshots of a tree.
func countTree(list []types.VirtualMachineSnapshotTree) int {
	n := len(list)
	for _, s := range list {
		n += countTree(s.ChildSnapshotList)
	}
	return n
}

// bootOrder converts the boot devices to strings such as disk:2000, net:4000, cdrom and
// floppy. Numbers are device keys.
func bootOrder(devices []types.BaseVirtualMachineBootOptionsBootableDevice) []string {
	var out []string
	for _, d := range devices {
		switch d := d.(type) {
		case *types.VirtualMachineBootOptionsBootableDiskDevice:
			out = append(out, fmt.Sprintf("disk:%d", d.DeviceKey))
		case *types.VirtualMachineBootOptionsBootableEthernetDevice:
			out = append(out, fmt.Sprintf("net:%d", d.DeviceKey))
		case *types.VirtualMachineBootOptionsBootableCdromDevice:
			out = append(out, "cdrom")
		case *types.VirtualMachineBootOptionsBootableFloppyDevice:
			out = append(out, "floppy")
		}
	}
	return out
}

// isTrue returns *b, or false for a property that the server did not set.
func isTrue(b *bool) bool { return b != nil && *b }
