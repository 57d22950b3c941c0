package esx

import (
	"reflect"
	"slices"
	"strings"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/inventory"
)

// addDevices sorts the VM's devices into m. None of a kind is an empty list: JSON has [] then.
func (t *tree) addDevices(m *machine, v *mo.VirtualMachine) {
	m.Disks, m.NICs, m.Controllers = []inventory.Disk{}, []inventory.NIC{}, []inventory.Controller{}
	for _, device := range v.Config.Hardware.Device {
		switch d := device.(type) {
		case *types.VirtualDisk:
			m.addDisk(t.toDisk(d, v.LayoutEx), d)
		case types.BaseVirtualEthernetCard:
			m.NICs = append(m.NICs, t.toNIC(d))
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

// orderCards orders cards as the guest counts them. VMware puts the fourth card of a VM before the
// first on the bus, and targets keep the order they are given: eth0 is to stay what it is.
func orderCards(cards []inventory.NIC) {
	if !slices.ContainsFunc(cards, func(n inventory.NIC) bool { return n.PCISlot <= 0 }) {
		slices.SortStableFunc(cards, inventory.CompareByBus)
	}
}

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

// toController describes a storage controller; false for the other controllers.
func toController(c types.BaseVirtualController) (inventory.Controller, bool) {
	out := inventory.Controller{Key: c.GetVirtualController().Key, Number: int(c.GetVirtualController().BusNumber)}
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
	case types.BaseVirtualSCSIController, types.BaseVirtualSATAController, *types.VirtualNVDIMMController:
		out.Unexpected = typeName(c)
	default:
		return out, false // keyboard, PCI, USB …
	}
	return out, true
}

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

// networkOf names what a card is plugged into. A distributed port knows its port group
// by key only.
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

// isConnected reports whether a device is at work, now or at the next power-on.
func isConnected(d types.BaseVirtualDevice) bool {
	c := d.GetVirtualDevice().Connectable
	return c != nil && (c.Connected || c.StartConnected)
}

// hasMedium reports whether a drive holds something now or at the next power-on.
func hasMedium(d *types.VirtualCdrom) bool {
	if !isConnected(d) {
		return false
	}
	iso, ok := d.Backing.(*types.VirtualCdromIsoBackingInfo)
	return !ok || iso.FileName != ""
}

func labelOf(d types.BaseVirtualDevice) string {
	if info := d.GetVirtualDevice().DeviceInfo; info != nil {
		return info.GetDescription().Label
	}
	return typeName(d)
}

// typeName is the API's name of a value's type, such as VirtualNVDIMMController.
func typeName(v any) string {
	return reflect.Indirect(reflect.ValueOf(v)).Type().Name()
}
