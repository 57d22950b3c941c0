package vsphere

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// addVM creates a VM through the simulator, then adds what the simulator cannot create: devices, file
// layout, and the chains of snapshots.
func (b *builder) addVM(spec VM) error {
	dc := b.lab.findDatacenter(spec.Datacenter)
	m, err := b.lab.newMachine(spec, dc)
	if err != nil {
		return err
	}
	vm, err := b.createVM(m, dc)
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	m.ref = vm.Self
	b.lab.machines[m.ref] = m
	if err := m.setVariables(); err != nil {
		return err
	}
	networks, err := b.addNetworks(dc, spec)
	if err != nil {
		return err
	}
	b.ctx.WithLock(vm, func() { b.configureVM(m, &vm.VirtualMachine, networks) })
	for _, name := range spec.Snapshots {
		if err := b.addSnapshot(vm, name); err != nil {
			return fmt.Errorf("snapshot %q: %w", name, err)
		}
	}
	if !spec.PoweredOn { // the simulator creates VMs powered off
		return nil
	}
	res := vm.PowerOnVMTask(b.ctx, &types.PowerOnVM_Task{This: vm.Self}).(*methods.PowerOnVM_TaskBody)
	_, err = waitForTask(b.reg, res.Res.Returnval)
	return err
}

// setVariables writes the .nvram file of the VM. Without VM.NVRAM it writes none: the VM was never on.
func (m *machine) setVariables() error {
	if m.spec.NVRAM == "" {
		return nil
	}
	data, err := os.ReadFile(m.spec.NVRAM)
	if err != nil {
		return fmt.Errorf("nvram: %w", err)
	}
	return os.WriteFile(filepath.Join(m.home.dir, m.spec.Folder, m.spec.Folder+".nvram"), data, 0o600)
}

// createVM creates the VM on its host and returns the simulator's object.
func (b *builder) createVM(m *machine, dc *datacenter) (*simulator.VirtualMachine, error) {
	host := b.listHosts(dc)[0] // the only host of an ESXi
	if b.lab.cfg.VCenter {
		host = b.findHost(dc, m.spec.Host)
	}
	cr := b.reg.Get(*host.Parent).(*mo.ComputeResource)
	folder := b.reg.Get(b.findDatacenter(dc).VmFolder).(*simulator.Folder)
	res := folder.CreateVMTask(b.ctx, &types.CreateVM_Task{
		This: folder.Self, Config: m.createSpec(), Pool: *cr.ResourcePool, Host: &host.Self,
	})
	if err := faultOf(res); err != nil {
		return nil, err
	}
	ref, err := waitForTask(b.reg, res.(*methods.CreateVM_TaskBody).Res.Returnval)
	if err != nil {
		return nil, err
	}
	return b.reg.Get(ref.(types.ManagedObjectReference)).(*simulator.VirtualMachine), nil
}

// createSpec returns the specification for the simulator, without disks and network cards.
func (m *machine) createSpec() types.VirtualMachineConfigSpec {
	v := m.spec
	spec := types.VirtualMachineConfigSpec{
		Name: v.Name, GuestId: v.GuestID, Annotation: v.Annotation, Firmware: v.Firmware, Version: "vmx-21",
		Uuid: v.UUID, InstanceUuid: v.InstanceUUID, NumCPUs: v.CPUs, NumCoresPerSocket: &v.CoresPer, MemoryMB: v.MemoryMB,
		ChangeTrackingEnabled: &v.ChangeTracking,
		Files:                 &types.VirtualMachineFileInfo{VmPathName: datastorePath(v.Datastore, v.Folder, v.Folder+".vmx")},
		BootOptions:           &types.VirtualMachineBootOptions{EfiSecureBootEnabled: &v.SecureBoot},
	}
	for key, value := range v.ExtraConfig {
		spec.ExtraConfig = append(spec.ExtraConfig, &types.OptionValue{Key: key, Value: value})
	}
	return spec
}

// configureVM sets the properties that createSpec cannot. The VM's lock must be held.
func (b *builder) configureVM(m *machine, vm *mo.VirtualMachine, networks map[string]types.ManagedObjectReference) {
	vm.Config.Hardware.Device = m.addDevices(vm.Config.Hardware.Device, networks)
	vm.Config.KeyId = m.keyID()
	vm.Network = nil
	for _, n := range m.spec.NICs {
		vm.Network = append(vm.Network, networks[n.Network])
	}
	vm.Summary.Config.NumVirtualDisks = int32(len(m.disks))
	vm.Summary.Config.NumEthernetCards = int32(len(m.spec.NICs))
	vm.Summary.Config.Annotation = m.spec.Annotation
	vm.Summary.Config.TpmPresent = &m.spec.TPM
	b.setDatastores(m, vm)
	m.setTools(vm, false)
	m.setLayout(vm)
}

// setDatastores links the VM with every datastore that contains its files, in both directions.
func (b *builder) setDatastores(m *machine, vm *mo.VirtualMachine) {
	for _, d := range m.disks {
		if simulator.FindReference(vm.Datastore, d.ds.ref) != nil {
			continue
		}
		vm.Datastore = append(vm.Datastore, d.ds.ref)
		obj := b.reg.Get(d.ds.ref).(*simulator.Datastore)
		b.reg.AddReference(b.ctx, obj, &obj.Vm, vm.Self)
	}
}

// setTools sets whether VMware Tools run in the guest. The VM's lock must be held.
func (m *machine) setTools(vm *mo.VirtualMachine, running bool) {
	status, runs := types.VirtualMachineToolsStatusToolsNotRunning, types.VirtualMachineToolsRunningStatusGuestToolsNotRunning
	switch {
	case m.spec.Guest.NoTools:
		status = types.VirtualMachineToolsStatusToolsNotInstalled
	case running:
		status, runs = types.VirtualMachineToolsStatusToolsOk, types.VirtualMachineToolsRunningStatusGuestToolsRunning
	}
	vm.Guest.Disk = nil
	if running && runs == types.VirtualMachineToolsRunningStatusGuestToolsRunning {
		for _, v := range m.spec.Guest.Volumes {
			vm.Guest.Disk = append(vm.Guest.Disk, types.GuestDiskInfo{DiskPath: v.Path, Capacity: int64(v.Capacity), FreeSpace: int64(v.Free)})
		}
	}
	vm.Guest.GuestId, vm.Guest.ToolsStatus, vm.Guest.ToolsRunningStatus = m.spec.GuestID, status, string(runs)
	vm.Summary.Guest.GuestId, vm.Summary.Guest.ToolsStatus, vm.Summary.Guest.ToolsRunningStatus = m.spec.GuestID, status, string(runs)
}

// addNetworks returns the networks of v's cards by name, and creates missing port groups.
func (b *builder) addNetworks(dc *datacenter, v VM) (map[string]types.ManagedObjectReference, error) {
	found := map[string]types.ManagedObjectReference{}
	for _, n := range v.NICs {
		if err := b.addNetwork(dc, n.Network); err != nil {
			return nil, fmt.Errorf("network %q: %w", n.Network, err)
		}
		if e := b.reg.FindByName(n.Network, b.findDatacenter(dc).Network); e != nil {
			found[n.Network] = e.Reference()
		}
	}
	return found, nil
}

// addNetwork adds a port group to vSwitch0 of each host, unless the datacenter has a network of that
// name.
func (b *builder) addNetwork(dc *datacenter, name string) error {
	if b.reg.FindByName(name, b.findDatacenter(dc).Network) != nil {
		return nil
	}
	for _, h := range b.listHosts(dc) {
		system := b.reg.Get(*h.ConfigManager.NetworkSystem).(*simulator.HostNetworkSystem)
		res := system.AddPortGroup(b.ctx, &types.AddPortGroup{
			This: system.Self, Portgrp: types.HostPortGroupSpec{Name: name, VswitchName: "vSwitch0"},
		})
		if err := faultOf(res); err != nil {
			return err
		}
	}
	return nil
}

// addSnapshot takes a snapshot. The watcher creates the deltas.
func (b *builder) addSnapshot(vm *simulator.VirtualMachine, name string) error {
	res := vm.CreateSnapshotExTask(b.ctx, &types.CreateSnapshotEx_Task{This: vm.Self, Name: name})
	if _, err := waitForTask(b.reg, res.(*methods.CreateSnapshotEx_TaskBody).Res.Returnval); err != nil {
		return err
	}
	return nil
}
