package vsphere

import (
	"fmt"

	"github.com/vmware/govmomi/vim25/types"
)

const (
	pciKey = 100   // key of the PCI controller of each VM
	ideKey = 200   // key of the first IDE controller; the second has 201
	tpmKey = 11000 // key of the virtual TPM

	leftoverKey = 13000 // key of the first device of VM.Devices
)

// leftoverDevices are the devices that a migration drops, with their labels.
var leftoverDevices = map[string]string{
	"floppy": "Floppy drive 1", "serial": "Serial port 1", "parallel": "Parallel port 1", "usb": "USB 1", "pci": "PCI device 0",
}

// A controllerKind contains the numbers that a real host uses for a kind of controller.
type controllerKind struct {
	key      int32 // key of bus 0
	diskKey  int32 // key of unit 0 on bus 0
	units    int32 // device keys per bus
	reserved int32 // unit of the controller itself; -1 if none
}

var (
	scsiKind = controllerKind{1000, 2000, 16, 7}    // SCSI controllers of all models
	nvmeKind = controllerKind{31000, 32000, 64, -1} // NVMe controllers
	ahciKind = controllerKind{15000, 16000, 30, -1} // SATA controllers
	ideKind  = controllerKind{ideKey, 3000, 2, -1}  // IDE controllers
)

// kindOf returns the kind for a value of Disk.Controller.
func kindOf(controller string) controllerKind {
	switch controller {
	case "nvme":
		return nvmeKind
	case "ahci":
		return ahciKind
	case "ide":
		return ideKind
	}
	return scsiKind
}

// A deviceList collects the devices of one VM.
type deviceList struct {
	devices []types.BaseVirtualDevice          // devices in the order in which they were added
	ctrls   map[int32]*types.VirtualController // controllers by key
	used    map[[2]int32]bool                  // occupied units: controller key, unit
}

// addDevices returns the default devices and those of the configuration, and sets the key of each disk.
func (m *machine) addDevices(defaults []types.BaseVirtualDevice, networks map[string]types.ManagedObjectReference) []types.BaseVirtualDevice {
	l := &deviceList{ctrls: map[int32]*types.VirtualController{}, used: map[[2]int32]bool{}}
	for _, d := range defaults {
		l.addDevice(d)
	}
	for i, d := range m.disks {
		l.addDisk(d, i)
	}
	for i, n := range m.spec.NICs {
		l.addDevice(newNIC(n, int32(i), networks))
	}
	if m.spec.CDROM {
		l.addCDROM()
	}
	if m.spec.TPM {
		l.addDevice(&types.VirtualTPM{VirtualDevice: types.VirtualDevice{Key: tpmKey, ControllerKey: pciKey, DeviceInfo: newLabel("Virtual TPM")}})
	}
	for i, name := range m.spec.Devices {
		l.addDevice(newLeftoverDevice(name, int32(i)))
	}
	return l.devices
}

// newLeftoverDevice returns a connected device of VM.Devices. i is its index there.
func newLeftoverDevice(name string, i int32) types.BaseVirtualDevice {
	d := types.VirtualDevice{
		Key: leftoverKey + i, ControllerKey: pciKey, DeviceInfo: newLabel(leftoverDevices[name]),
		Connectable: &types.VirtualDeviceConnectInfo{StartConnected: true, Connected: true},
	}
	switch name {
	case "floppy":
		d.Backing = &types.VirtualFloppyImageBackingInfo{VirtualDeviceFileBackingInfo: types.VirtualDeviceFileBackingInfo{FileName: "[datastore1] drivers.flp"}}
		return &types.VirtualFloppy{VirtualDevice: d}
	case "serial":
		d.Backing = &types.VirtualSerialPortURIBackingInfo{VirtualDeviceURIBackingInfo: types.VirtualDeviceURIBackingInfo{ServiceURI: "telnet://:7001", Direction: "server"}}
		return &types.VirtualSerialPort{VirtualDevice: d, YieldOnPoll: true}
	case "parallel":
		d.Backing = &types.VirtualParallelPortDeviceBackingInfo{VirtualDeviceDeviceBackingInfo: types.VirtualDeviceDeviceBackingInfo{DeviceName: "/dev/parport0"}}
		return &types.VirtualParallelPort{VirtualDevice: d}
	case "usb":
		d.Backing = &types.VirtualUSBUSBBackingInfo{VirtualDeviceDeviceBackingInfo: types.VirtualDeviceDeviceBackingInfo{DeviceName: "path:0/1/4"}}
		return &types.VirtualUSB{VirtualDevice: d, Connected: true}
	}
	return &types.VirtualPCIPassthrough{VirtualDevice: d}
}

// addDevice adds a device and registers it at its controller.
func (l *deviceList) addDevice(d types.BaseVirtualDevice) {
	l.devices = append(l.devices, d)
	dev := d.GetVirtualDevice()
	if c, ok := d.(types.BaseVirtualController); ok { // later devices refer to it by its key
		l.ctrls[dev.Key] = c.GetVirtualController()
	}
	if c := l.ctrls[dev.ControllerKey]; c != nil {
		c.Device = append(c.Device, dev.Key)
	}
	if dev.UnitNumber != nil {
		l.used[[2]int32{dev.ControllerKey, *dev.UnitNumber}] = true
	}
}

// assignUnit returns controller and unit for a device, and adds the controller if it is missing. A nil
// unit selects the next free one.
func (l *deviceList) assignUnit(controller string, bus int32, unit *int32) (ctrl, at int32) {
	kind := kindOf(controller)
	ctrl = kind.key + bus
	if l.ctrls[ctrl] == nil {
		l.addDevice(newController(controller, ctrl, bus))
	}
	if unit != nil {
		return ctrl, *unit
	}
	for at == kind.reserved || l.used[[2]int32{ctrl, at}] { // the first free unit
		at++
	}
	return ctrl, at
}

// newController returns a controller of a kind in Disk.Controller.
func newController(name string, key, bus int32) types.BaseVirtualDevice {
	c := types.VirtualController{BusNumber: bus, VirtualDevice: types.VirtualDevice{
		Key: key, ControllerKey: pciKey, DeviceInfo: newLabel(fmt.Sprintf("%s controller %d", name, bus)),
	}}
	scsi := types.VirtualSCSIController{
		VirtualController: c, SharedBus: types.VirtualSCSISharingNoSharing, HotAddRemove: types.NewBool(true), ScsiCtlrUnitNumber: scsiKind.reserved,
	}
	switch name {
	case "lsilogic":
		return &types.VirtualLsiLogicController{VirtualSCSIController: scsi}
	case "lsisas":
		return &types.VirtualLsiLogicSASController{VirtualSCSIController: scsi}
	case "buslogic":
		return &types.VirtualBusLogicController{VirtualSCSIController: scsi}
	case "nvme":
		return &types.VirtualNVMEController{VirtualController: c}
	case "ahci":
		return &types.VirtualAHCIController{VirtualSATAController: types.VirtualSATAController{VirtualController: c}}
	case "ide":
		return &types.VirtualIDEController{VirtualController: c}
	}
	return &types.ParaVirtualSCSIController{VirtualSCSIController: scsi}
}

// addDisk adds a disk and sets its key. i is the index of the disk.
func (l *deviceList) addDisk(d *vdisk, i int) {
	ctrl, unit := l.assignUnit(d.spec.Controller, d.spec.Bus, d.spec.Unit)
	kind := kindOf(d.spec.Controller)
	d.key = kind.diskKey + d.spec.Bus*kind.units + unit
	l.addDevice(&types.VirtualDisk{
		VirtualDevice: types.VirtualDevice{
			Key: d.key, ControllerKey: ctrl, UnitNumber: &unit,
			DeviceInfo: newLabel(fmt.Sprintf("Hard disk %d", i+1)), Backing: d.linkBacking(d.lastLink()),
		},
		CapacityInKB: d.content.Size() / 1024, CapacityInBytes: d.content.Size(),
		VDiskId: nil, DiskObjectId: fmt.Sprintf("%d-%d", 1, d.key),
	})
}

// addCDROM adds a CD-ROM drive without a medium to the IDE controller.
func (l *deviceList) addCDROM() {
	ctrl, unit := l.assignUnit("ide", 0, nil)
	l.addDevice(&types.VirtualCdrom{VirtualDevice: types.VirtualDevice{
		Key: ideKind.diskKey + unit, ControllerKey: ctrl, UnitNumber: &unit, DeviceInfo: newLabel("CD/DVD drive 1"),
		Backing:     &types.VirtualCdromRemoteAtapiBackingInfo{},
		Connectable: &types.VirtualDeviceConnectInfo{AllowGuestControl: true},
	}})
}

// newNIC returns a network card. i is its index.
func newNIC(n NIC, i int32, networks map[string]types.ManagedObjectReference) types.BaseVirtualDevice {
	unit := 7 + i
	backing := &types.VirtualEthernetCardNetworkBackingInfo{}
	backing.DeviceName = n.Network
	if ref, ok := networks[n.Network]; ok {
		backing.Network = &ref
	}
	card := types.VirtualEthernetCard{
		AddressType: n.AddressType, MacAddress: n.MAC, WakeOnLanEnabled: types.NewBool(true),
		VirtualDevice: types.VirtualDevice{
			Key: 4000 + i, ControllerKey: pciKey, UnitNumber: &unit,
			DeviceInfo: newLabel(fmt.Sprintf("Network adapter %d", i+1)), Backing: backing,
			Connectable: &types.VirtualDeviceConnectInfo{StartConnected: !n.Disconnected, Connected: !n.Disconnected, AllowGuestControl: true},
		},
	}
	switch n.Model {
	case "e1000":
		return &types.VirtualE1000{VirtualEthernetCard: card}
	case "e1000e":
		return &types.VirtualE1000e{VirtualEthernetCard: card}
	case "vmxnet2":
		return &types.VirtualVmxnet2{VirtualVmxnet: types.VirtualVmxnet{VirtualEthernetCard: card}}
	case "pcnet32":
		return &types.VirtualPCNet32{VirtualEthernetCard: card}
	}
	return &types.VirtualVmxnet3{VirtualVmxnet: types.VirtualVmxnet{VirtualEthernetCard: card}}
}

// newLabel returns a description with s as label and summary.
func newLabel(s string) *types.Description { return &types.Description{Label: s, Summary: s} }
