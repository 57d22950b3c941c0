package lab

import (
	"os"
	"path/filepath"
	"time"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// layout lists a VM's files with their sizes, and what they take on each datastore.
type layout struct {
	ex    types.VirtualMachineFileLayoutEx
	usage map[*datastore]*types.VirtualMachineUsageOnDatastore
	order []*datastore
}

// setLayout describes the files of the VM from the lab's own records. The simulator derives
// sizes from files on disk, which data files here are not. The caller holds the VM's lock.
func (m *machine) setLayout(vm *mo.VirtualMachine) {
	l := &layout{usage: map[*datastore]*types.VirtualMachineUsageOnDatastore{}}
	l.ex.Timestamp = time.Now()
	l.addHome(m)
	disks := []types.VirtualMachineFileLayoutDiskLayout{}
	for _, d := range m.disks {
		l.addDisk(d)
		disks = append(disks, types.VirtualMachineFileLayoutDiskLayout{Key: d.key, DiskFile: []string{d.file(d.last()).FileName}})
	}
	if vm.LayoutEx != nil {
		l.ex.Snapshot = vm.LayoutEx.Snapshot
	}
	vm.Layout.Disk, vm.LayoutEx = disks, &l.ex
	vm.Storage = &types.VirtualMachineStorageInfo{Timestamp: l.ex.Timestamp}
	vm.Summary.Storage = &types.VirtualMachineStorageSummary{Timestamp: l.ex.Timestamp}
	for _, ds := range l.order {
		u := l.usage[ds]
		vm.Storage.PerDatastoreUsage = append(vm.Storage.PerDatastoreUsage, *u)
		vm.Summary.Storage.Committed += u.Committed
		vm.Summary.Storage.Uncommitted += u.Uncommitted
		vm.Summary.Storage.Unshared += u.Unshared
	}
}

// addHome adds the small files the simulator left in the VM's folder.
func (l *layout) addHome(m *machine) {
	ds := m.home
	kinds := map[string]string{".vmx": "config", ".nvram": "nvram", ".log": "log", ".vmsn": "snapshotData"}
	entries, _ := os.ReadDir(filepath.Join(ds.dir, m.spec.Folder)) // unreadable: no files to list
	for _, e := range entries {
		info, err := e.Info()
		if kind := kinds[filepath.Ext(e.Name())]; kind != "" && err == nil {
			l.add(ds, datastorePath(ds.spec.Name, m.spec.Folder, e.Name()), kind, info.Size())
		}
	}
}

func (l *layout) addDisk(d *vdisk) {
	chain := types.VirtualMachineFileLayoutExDiskLayout{Key: d.key}
	for i, link := range d.chain() {
		unit := types.VirtualMachineFileLayoutExDiskUnit{}
		name := func(file string) string { return datastorePath(d.ds.spec.Name, d.vm.spec.Folder, file) }
		unit.FileKey = append(unit.FileKey, l.add(d.ds, name(link.name), "diskDescriptor", 512))
		size := d.allocated
		if i > 0 {
			size = d.fileSize(link)
		}
		if d.spec.RDM == "" {
			unit.FileKey = append(unit.FileKey, l.add(d.ds, name(link.data), "diskExtent", size))
		}
		chain.Chain = append(chain.Chain, unit)
	}
	l.ex.Disk = append(l.ex.Disk, chain)
	if d.spec.RDM == "" {
		l.on(d.ds).Uncommitted += d.content.Size() - d.allocated
		l.on(d.ds).Unshared += d.allocated
	}
}

func (l *layout) add(ds *datastore, name, kind string, size int64) int32 {
	key := int32(len(l.ex.File))
	l.ex.File = append(l.ex.File, types.VirtualMachineFileLayoutExFileInfo{
		Key: key, Name: name, Type: kind, Size: size, UniqueSize: size, Accessible: types.NewBool(true),
	})
	l.on(ds).Committed += size
	return key
}

func (l *layout) on(ds *datastore) *types.VirtualMachineUsageOnDatastore {
	if l.usage[ds] == nil {
		l.usage[ds] = &types.VirtualMachineUsageOnDatastore{Datastore: ds.ref}
		l.order = append(l.order, ds)
	}
	return l.usage[ds]
}

// fileSize is the size of a link's data file.
func (d *vdisk) fileSize(link chainLink) int64 {
	if f := d.ds.file(filepath.Join(d.vm.spec.Folder, link.data)); f != nil {
		return f.content.Size()
	}
	return 0
}
