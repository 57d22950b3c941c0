package vsphere

import (
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// snapshotData is vSphere's type of a file with the state of a snapshot.
const snapshotData = string(types.VirtualMachineFileLayoutExFileTypeSnapshotData)

// A layout is a list of a VM's files with their sizes, and its space on each datastore.
type layout struct {
	ex    types.VirtualMachineFileLayoutEx                     // files, disks and snapshots
	usage map[*datastore]*types.VirtualMachineUsageOnDatastore // space by datastore
	order []*datastore                                         // datastores in the order in which they were added
}

// setLayout sets the file layout and the storage summary of the VM. The simulator derives them from
// files on disk, but data files exist only in memory. The VM's lock must be held.
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

// noFile is the key of a missing file, such as the memory of a snapshot.
const noFile = -1

// addSnapshots lists the files of each snapshot. The simulator removes a snapshot's data by its key and
// assigns new keys at each refresh. With old keys it would keep the data and remove the VM's log.
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

// dataOf returns the key of a snapshot's data file, or noFile. The simulator keeps the name of the
// file.
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

// addHome adds the small files in the VM's folder.
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

// addDisk adds descriptor and data file of each link. An RDM has no data file.
func (l *layout) addDisk(d *vdisk) {
	chain := types.VirtualMachineFileLayoutExDiskLayout{Key: d.key}
	for i, link := range d.currentLinks() {
		unit := types.VirtualMachineFileLayoutExDiskUnit{}
		name := func(file string) string { return datastorePath(d.ds.spec.Name, d.vm.spec.Folder, file) }
		unit.FileKey = append(unit.FileKey, l.addFile(d.ds, name(link.name), "diskDescriptor", 512))
		size := d.allocated // the base; deltas have their file's size
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

// addFile adds a file and returns its key.
func (l *layout) addFile(ds *datastore, name, kind string, size int64) int32 {
	key := int32(len(l.ex.File))
	l.ex.File = append(l.ex.File, types.VirtualMachineFileLayoutExFileInfo{
		Key: key, Name: name, Type: kind, Size: size, UniqueSize: size, Accessible: types.NewBool(true),
	})
	l.usageOn(ds).Committed += size
	return key
}

// usageOn returns the VM's space on a datastore, for modification.
func (l *layout) usageOn(ds *datastore) *types.VirtualMachineUsageOnDatastore {
	if l.usage[ds] == nil {
		l.usage[ds] = &types.VirtualMachineUsageOnDatastore{Datastore: ds.ref}
		l.order = append(l.order, ds)
	}
	return l.usage[ds]
}

// fileSize returns the size of a link's data file; 0 if it does not exist.
func (d *vdisk) fileSize(link chainLink) int64 {
	if f := d.ds.findFile(filepath.Join(d.vm.spec.Folder, link.data)); f != nil {
		return f.content.Size()
	}
	return 0
}
