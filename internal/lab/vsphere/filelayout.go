package vsphere

import (
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// snapshotData is what vSphere calls a file of state that a snapshot made.
const snapshotData = string(types.VirtualMachineFileLayoutExFileTypeSnapshotData)

// layout lists a VM's files with their sizes, and their space on each datastore.
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
		disks = append(disks, types.VirtualMachineFileLayoutDiskLayout{Key: d.key, DiskFile: []string{d.fileBacking(d.lastLink()).FileName}})
	}
	l.addSnapshots(m, vm.Layout.Snapshot)
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

// noFile is the key of a file that there is not: the memory of a snapshot without it.
const noFile = -1

// addSnapshots lists the files of each snapshot. The simulator removes a snapshot's data by its key,
// and gives the files new keys at each refresh. With the old keys, it would keep the data and remove
// the VM's log.
func (l *layout) addSnapshots(m *machine, named []types.VirtualMachineFileLayoutSnapshotLayout) {
	for i, s := range m.snaps {
		if s.ref.Value == "" {
			continue // removed, but for its delta
		}
		part := types.VirtualMachineFileLayoutExSnapshotLayout{Key: s.ref, DataKey: l.dataOf(s.ref, named), MemoryKey: noFile}
		for _, d := range l.ex.Disk {
			part.Disk = append(part.Disk, types.VirtualMachineFileLayoutExDiskLayout{Key: d.Key, Chain: d.Chain[:min(i+1, len(d.Chain))]})
		}
		l.ex.Snapshot = append(l.ex.Snapshot, part)
	}
}

// dataOf is the key of a snapshot's data, whose name the simulator keeps.
func (l *layout) dataOf(ref types.ManagedObjectReference, named []types.VirtualMachineFileLayoutSnapshotLayout) int32 {
	for _, s := range named {
		for _, f := range l.ex.File {
			if s.Key == ref && f.Type == snapshotData && slices.Contains(s.SnapshotFile, f.Name) {
				return f.Key
			}
		}
	}
	return noFile
}

// addHome adds the small files the simulator left in the VM's folder.
func (l *layout) addHome(m *machine) {
	ds := m.home
	kinds := map[string]string{".vmx": "config", ".nvram": "nvram", ".log": "log", ".vmsn": snapshotData}
	entries, _ := os.ReadDir(filepath.Join(ds.dir, m.spec.Folder)) // unreadable: no files to list
	for _, e := range entries {
		info, err := e.Info()
		if kind := kinds[filepath.Ext(e.Name())]; kind != "" && err == nil {
			l.addFile(ds, datastorePath(ds.spec.Name, m.spec.Folder, e.Name()), kind, info.Size())
		}
	}
}

func (l *layout) addDisk(d *vdisk) {
	chain := types.VirtualMachineFileLayoutExDiskLayout{Key: d.key}
	for i, link := range d.currentLinks() {
		unit := types.VirtualMachineFileLayoutExDiskUnit{}
		name := func(file string) string { return datastorePath(d.ds.spec.Name, d.vm.spec.Folder, file) }
		unit.FileKey = append(unit.FileKey, l.addFile(d.ds, name(link.name), "diskDescriptor", 512))
		size := d.allocated
		if i > 0 {
			size = d.fileSize(link)
		}
		if d.spec.RDM == "" {
			unit.FileKey = append(unit.FileKey, l.addFile(d.ds, name(link.data), "diskExtent", size))
		}
		chain.Chain = append(chain.Chain, unit)
	}
	l.ex.Disk = append(l.ex.Disk, chain)
	if d.spec.RDM == "" {
		l.usageOn(d.ds).Uncommitted += d.content.Size() - d.allocated
		l.usageOn(d.ds).Unshared += d.allocated
	}
}

func (l *layout) addFile(ds *datastore, name, kind string, size int64) int32 {
	key := int32(len(l.ex.File))
	l.ex.File = append(l.ex.File, types.VirtualMachineFileLayoutExFileInfo{
		Key: key, Name: name, Type: kind, Size: size, UniqueSize: size, Accessible: types.NewBool(true),
	})
	l.usageOn(ds).Committed += size
	return key
}

func (l *layout) usageOn(ds *datastore) *types.VirtualMachineUsageOnDatastore {
	if l.usage[ds] == nil {
		l.usage[ds] = &types.VirtualMachineUsageOnDatastore{Datastore: ds.ref}
		l.order = append(l.order, ds)
	}
	return l.usage[ds]
}

// fileSize is the size of a link's data file.
func (d *vdisk) fileSize(link chainLink) int64 {
	if f := d.ds.findFile(filepath.Join(d.vm.spec.Folder, link.data)); f != nil {
		return f.content.Size()
	}
	return 0
}
