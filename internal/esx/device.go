package esx

import (
	"reflect"
	"slices"
	"strings"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/inventory"
)

// addDevices adds the VM's devices to m. A list without devices is empty and not nil,
// so that JSON has [].
func (t *tree) addDevices(m *machine, v *mo.VirtualMachine) {
	m.Disks, m.NICs, m.Controllers = []inventory.Disk{}, []inventory.NIC{}, []inventory.Controller{}
	for _, device := range v.Config.Hardware.Device {
		switch d := device.(type) {
		case *types.VirtualDisk:
			m.addDisk(t.toDisk(d, v.LayoutEx), d)
		case types.BaseVirtualEthernetCard:
			m.NICs = append(m.NICs, t.toNIC(d))
			// An SR-IOV card is a network card and a device of the host.
			if sriov, ok := d.(*types.VirtualSriovEthernetCard); ok {
				m.passthrough = append(m.passthrough, labelOf(sriov))
			}
		case types.BaseVirtualController:
			if c, ok := toController(d); ok {
				m.Controllers = append(m.Controllers, c)
			}
		case *types.VirtualCdrom:
			m.CDROMs++
			if hasMedium(d) {
				m.media = append(m.media, labelOf(d))
			}
		case *types.VirtualFloppy, *types.VirtualSerialPort, *types.VirtualParallelPort:
			if isConnected(d) {
				m.ports = append(m.ports, labelOf(d))
			}
		case *types.VirtualTPM:
			m.VTPM = true
		case *types.VirtualPCIPassthrough, *types.VirtualSCSIPassthrough, *types.VirtualUSB:
			m.passthrough = append(m.passthrough, labelOf(d))
		}
	}
	orderCards(m.NICs)
}

// orderCards sorts network cards in the order in which the guest finds them on the PCI
// bus. VMware puts the fourth card of a VM before the first. Targets keep the order of
// the list, so eth0 remains eth0. The order is unchanged if the slot of a card is
// unknown.
func orderCards(cards []inventory.NIC) {
	if !slices.ContainsFunc(cards, func(n inventory.NIC) bool { return n.PCISlot <= 0 }) {
		slices.SortStableFunc(cards, inventory.CompareByBus)
	}
}

// addDisk adds a disk and updates the sums of the VM. It records disks that are raw
// device mappings in physical mode, which have a warning with its own remedy.
func (m *machine) addDisk(d inventory.Disk, v *types.VirtualDisk) {
	m.Disks = append(m.Disks, d)
	m.Provisioned += d.Capacity
	m.Used += max(d.Used, 0)
	m.Encrypted = m.Encrypted || d.Encrypted
	rdm, ok := v.Backing.(*types.VirtualDiskRawDiskMappingVer1BackingInfo)
	if ok && rdm.CompatibilityMode == string(types.VirtualDiskCompatibilityModePhysicalMode) {
		m.physicalRDM = append(m.physicalRDM, d.Key)
	}
}

// toController describes a storage controller. It returns false for other controllers,
// such as those of keyboard, PCI and USB. A storage controller of an unknown type has
// Unexpected set.
func toController(c types.BaseVirtualController) (inventory.Controller, bool) {
	out := inventory.Controller{Key: c.GetVirtualController().Key, Number: int(c.GetVirtualController().BusNumber)}
	// Only SCSI and NVMe controllers can share their bus.
	if scsi, ok := c.(types.BaseVirtualSCSIController); ok {
		shared := scsi.GetVirtualSCSIController().SharedBus
		out.SharedBus = shared != "" && shared != types.VirtualSCSISharingNoSharing
	}
	switch c := c.(type) {
	case *types.ParaVirtualSCSIController:
		out.Bus = inventory.PVSCSI
	case *types.VirtualLsiLogicSASController:
		out.Bus = inventory.LSISAS
	case *types.VirtualLsiLogicController:
		out.Bus = inventory.LSILogic
	case *types.VirtualBusLogicController:
		out.Bus = inventory.BusLogic
	case *types.VirtualNVMEController:
		out.Bus = inventory.NVMe
		out.SharedBus = c.SharedBus != "" && c.SharedBus != string(types.VirtualSCSISharingNoSharing)
	case *types.VirtualAHCIController:
		out.Bus = inventory.AHCI
	case *types.VirtualIDEController:
		out.Bus = inventory.IDE
	// These types also match the known controllers, so they must be last.
	case types.BaseVirtualSCSIController, types.BaseVirtualSATAController, *types.VirtualNVDIMMController:
		out.Unexpected = typeName(c)
	default:
		return out, false // keyboard, PCI, USB …
	}
	return out, true
}

// toNIC converts a network card. PCISlot is 0 if the server reports no slot.
func (t *tree) toNIC(card types.BaseVirtualEthernetCard) inventory.NIC {
	c := card.GetVirtualEthernetCard()
	out := inventory.NIC{
		Key:         c.Key,
		Label:       labelOf(card.(types.BaseVirtualDevice)),
		Model:       nicModel(card),
		MAC:         strings.ToLower(c.MacAddress),
		AddressType: c.AddressType,
		Network:     t.networkOf(c.Backing),
	}
	if c.Connectable != nil {
		out.Connected, out.StartConnected = c.Connectable.Connected, c.Connectable.StartConnected
	}
	if slot, ok := c.SlotInfo.(*types.VirtualDevicePciBusSlotInfo); ok {
		out.PCISlot = int(slot.PciSlotNumber)
	}
	return out
}

// nicModel returns QEMU's or libvirt's name of a card's model. A model that is not
// known has the name of its API type.
func nicModel(card types.BaseVirtualEthernetCard) string {
	switch card.(type) {
	case *types.VirtualVmxnet3, *types.VirtualVmxnet3Vrdma:
		return "vmxnet3"
	case *types.VirtualVmxnet2, *types.VirtualVmxnet:
		return "vmxnet2"
	case *types.VirtualE1000e:
		return "e1000e"
	case *types.VirtualE1000:
		return "e1000"
	case *types.VirtualPCNet32:
		return "pcnet32"
	case *types.VirtualSriovEthernetCard:
		return "sriov"
	}
	return typeName(card)
}

// networkOf returns the name of the network of a card, or "" if the backing has none. A
// distributed port contains only the key of its port group; an unknown key is returned
// unchanged.
func (t *tree) networkOf(backing types.BaseVirtualDeviceBackingInfo) string {
	switch b := backing.(type) {
	case *types.VirtualEthernetCardNetworkBackingInfo:
		return unescapeName(b.DeviceName)
	case *types.VirtualEthernetCardDistributedVirtualPortBackingInfo:
		if name, ok := t.portgroups[b.Port.PortgroupKey]; ok {
			return name
		}
		return b.Port.PortgroupKey
	case *types.VirtualEthernetCardOpaqueNetworkBackingInfo:
		return b.OpaqueNetworkId
	case *types.VirtualEthernetCardLegacyNetworkBackingInfo:
		return b.DeviceName
	}
	return ""
}

// isConnected reports whether a device is connected, now or at the next power-on.
func isConnected(d types.BaseVirtualDevice) bool {
	c := d.GetVirtualDevice().Connectable
	return c != nil && (c.Connected || c.StartConnected)
}

// hasMedium reports whether a CD-ROM drive has a medium, now or at the next power-on.
// An ISO backing without a file name is empty.
func hasMedium(d *types.VirtualCdrom) bool {
	if !isConnected(d) {
		return false
	}
	iso, ok := d.Backing.(*types.VirtualCdromIsoBackingInfo)
	return !ok || iso.FileName != ""
}

// labelOf returns the label of a device, such as "Hard disk 1", or its type name if it
// has none.
func labelOf(d types.BaseVirtualDevice) string {
	if info := d.GetVirtualDevice().DeviceInfo; info != nil {
		return info.GetDescription().Label
	}
	return typeName(d)
}

// typeName returns the API's name of a value's type, such as VirtualNVDIMMController.
func typeName(v any) string {
	return reflect.Indirect(reflect.ValueOf(v)).Type().Name()
}
