package vsphere

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// An inventory contains the datastores, VMs and disks, and the simulator's model of them.
type inventory struct {
	cfg     *Config // configuration with defaults
	dir     string  // folder of the datastores' small files
	tempDir bool    // whether Close removes dir

	model       *simulator.Model // objects of the API; nil before start
	datacenters []*datacenter    // datacenters in the order of the configuration
	// VMs of the configuration by reference; read-only after the start
	machines   map[types.ManagedObjectReference]*machine
	contents   []content // contents that Close closes
	noiseBytes []byte    // bytes of generated disks; nil before the first use
}

// makeDir creates the folder of the datastores.
func (inv *inventory) makeDir() (err error) {
	inv.dir = inv.cfg.Dir
	if inv.dir == "" {
		inv.tempDir = true
		inv.dir, err = os.MkdirTemp("", "decamp-lab-")
		return err
	}
	return os.MkdirAll(inv.dir, 0o700)
}

// newContext returns a new simulator context. A context that holds a lock passes the lock again, so two
// goroutines must not share one.
func (inv *inventory) newContext() *simulator.Context {
	ctx := *inv.model.Service.Context
	return &ctx
}

// now returns the time of the emulator's clock.
func (inv *inventory) now() time.Time { return inv.cfg.now() }

// findDatacenter returns the datacenter with this name, or nil.
func (inv *inventory) findDatacenter(name string) *datacenter {
	for _, dc := range inv.datacenters {
		if dc.spec.Name == name {
			return dc
		}
	}
	return nil
}

// findMachine returns the VM with this name in the configuration.
func (inv *inventory) findMachine(name string) (*machine, error) {
	for _, m := range inv.machines {
		if m.spec.Name == name {
			return m, nil
		}
	}
	return nil, fmt.Errorf("the emulator has no VM %q", name)
}

// findDisk returns the nth disk of a VM, from 0.
func (inv *inventory) findDisk(vm string, n int) (*vdisk, error) {
	m, err := inv.findMachine(vm)
	if err != nil {
		return nil, err
	}
	if n < 0 || n >= len(m.disks) {
		return nil, fmt.Errorf("VM %q has no disk %d", vm, n)
	}
	return m.disks[n], nil
}

// newMachine returns a VM whose contents are open and whose descriptors are written.
func (inv *inventory) newMachine(v VM, dc *datacenter) (*machine, error) {
	m := &machine{spec: v, name: escapeName(v.Name), home: dc.findDatastore(v.Datastore)}
	m.writer = newGuestWriter(m)
	if m.home == nil {
		return nil, fmt.Errorf("no datastore %q in %s", v.Datastore, dc.path)
	}
	for i := range v.Disks {
		d, err := inv.newDisk(m, dc, v.Disks[i])
		if err != nil {
			return nil, fmt.Errorf("VM %q disk %d: %w", v.Name, i, err)
		}
		m.disks = append(m.disks, d)
	}
	return m, nil
}

// newDisk returns a disk with a base and an empty layer, and writes its descriptor.
func (inv *inventory) newDisk(m *machine, dc *datacenter, spec Disk) (*vdisk, error) {
	d := &vdisk{spec: spec, vm: m, ds: dc.findDatastore(spec.Datastore), id: dc.path + "/" + m.spec.Name + "/" + spec.Name}
	d.hide.Store(&spec.Hide)
	if err := inv.openContent(d); err != nil {
		return nil, err
	}
	first := []chainLink{baseLink(spec)}
	first[0].layer = newLayer(d.noise)
	d.links.Store(&first)
	return d, d.writeLink(first[0])
}

// openContent opens the image of a disk or prepares generated content. It also computes the allocated
// bytes.
func (inv *inventory) openContent(d *vdisk) (err error) {
	d.noise, d.changes = inv.randomBytes(), newChangeLog(d.vm.spec.ChangeTracking)
	if d.spec.File != "" {
		d.base, err = openRaw(d.spec.File, int64(d.spec.Capacity))
	} else {
		d.base = &generated{noise: inv.randomBytes(), size: int64(d.spec.Capacity), seed: d.spec.Seed, fill: d.spec.Fill}
	}
	if err != nil {
		return fmt.Errorf("open content: %w", err)
	}
	inv.contents = append(inv.contents, d.base)
	d.content = currentContent{d}
	d.size.Store(d.base.Size())
	d.allocated = d.base.Size()
	if !d.spec.Thick {
		d.allocated, err = allocatedBytes(d.base, int64(inv.cfg.CBT.Granularity))
	}
	return err
}

// randomBytes returns the bytes for generated disks. The first call creates them.
func (inv *inventory) randomBytes() []byte {
	if inv.noiseBytes == nil {
		inv.noiseBytes = newNoise()
	}
	return inv.noiseBytes
}

// findLink returns the link whose descriptor has this path.
func (inv *inventory) findLink(dc *datacenter, p volumePath) (diskLink, bool) {
	for _, m := range inv.machines {
		for _, d := range m.disks {
			if d.ds.dc != dc || d.ds.spec.Name != p.datastore {
				continue
			}
			links := d.currentLinks()
			for i, link := range links {
				if path.Join(m.spec.Folder, link.name) == p.path {
					return diskLink{d, links[:i+1]}, true
				}
			}
		}
	}
	return diskLink{}, false
}

// hostDatacenter returns the datacenter of a host, or nil.
func (inv *inventory) hostDatacenter(host types.ManagedObjectReference) *datacenter {
	for _, dc := range inv.datacenters {
		if slices.Contains(dc.hosts, host) {
			return dc
		}
	}
	return nil
}

// usedOn returns the bytes that disks occupy on ds.
func (inv *inventory) usedOn(ds *datastore) (used int64) {
	for _, m := range inv.machines {
		for _, d := range m.disks {
			if d.ds == ds && d.spec.RDM == "" {
				used += d.allocated
			}
		}
	}
	return used
}

// datastoreReads returns the counters of all datastores.
func (inv *inventory) datastoreReads() (all []readCounters) {
	for _, dc := range inv.datacenters {
		for _, ds := range dc.datastores {
			all = append(all, ds.rate.totalRequested())
		}
	}
	return all
}

// isLocked reports whether a running VM or an NFC session prevents others from reading the file.
func (inv *inventory) isLocked(f *dataFile) bool {
	return f.disk.opened.Load() > 0 || f.disk.vm.running.Load() && (inv.cfg.Locks == LockAll || f.isActive())
}

// DiskContent is the content of a disk, for comparison with copies.
type DiskContent struct {
	io.ReaderAt
	Size      int64 // capacity in bytes
	Allocated int64 // allocated bytes at the granularity of the map, at the start
	Key       int32 // device key in the API
}

// Disk returns the content of the nth disk of a VM. While the guest writes, each read returns the
// content at that time.
func (inv *inventory) Disk(vm string, n int) (DiskContent, error) {
	d, err := inv.findDisk(vm, n)
	if err != nil {
		return DiskContent{}, err
	}
	return DiskContent{ReaderAt: d.content, Size: d.content.Size(), Allocated: d.allocated, Key: d.key}, nil
}

// DiskAt returns the content of the nth disk of a VM at the time a snapshot was taken.
func (inv *inventory) DiskAt(vm string, n int, snapshot string) (DiskContent, error) {
	d, err := inv.findDisk(vm, n)
	if err != nil {
		return DiskContent{}, err
	}
	d.vm.writing.Lock()
	defer d.vm.writing.Unlock()
	for i, s := range d.vm.snaps {
		if s.name == snapshot && s.ref.Value != "" && isSnapshotted(d.spec) {
			v := d.viewThrough(d.currentLinks()[:i+1])
			return DiskContent{ReaderAt: v, Size: v.Size(), Allocated: d.allocated, Key: d.key}, nil
		}
	}
	return DiskContent{}, fmt.Errorf("VM %q has no snapshot %q", vm, snapshot)
}

// HideFromMap makes the allocation map of a disk omit ranges from now on, even if they contain data.
func (inv *inventory) HideFromMap(vm string, n int, spans ...Span) error {
	d, err := inv.findDisk(vm, n)
	if err != nil {
		return err
	}
	d.hide.Store(&spans)
	return nil
}

// GuestWrites makes the guest of a running VM execute its next n writes.
func (inv *inventory) GuestWrites(vm string, n int) error {
	m, err := inv.findMachine(vm)
	if err != nil {
		return err
	}
	if !m.running.Load() {
		return fmt.Errorf("VM %q is off: its guest writes nothing", vm)
	}
	for range n {
		m.writing.Lock()
		m.writer.writeOnce()
		m.writing.Unlock()
	}
	return nil
}

// WriteDisk makes a guest write p at off. Both must be multiples of 4 KiB.
func (inv *inventory) WriteDisk(vm string, n int, p []byte, off int64) error {
	d, err := inv.findDisk(vm, n)
	if err != nil {
		return err
	}
	if off%pageSize != 0 || len(p)%pageSize != 0 || off < 0 || off+int64(len(p)) > d.size.Load() {
		return fmt.Errorf("write %d bytes at %d: want whole pages of %d inside the disk", len(p), off, pageSize)
	}
	d.vm.writing.Lock()
	defer d.vm.writing.Unlock()
	for at := 0; at < len(p); at += pageSize {
		var data [pageSize]byte
		copy(data[:], p[at:])
		d.putPage(off/pageSize+int64(at/pageSize), page{data: &data})
	}
	d.changes.recordWrite(off, int64(len(p)))
	return nil
}

// ResetCBT invalidates all change IDs of a VM's disks, as a move of its files does.
func (inv *inventory) ResetCBT(vm string) error {
	m, err := inv.findMachine(vm)
	if err != nil {
		return err
	}
	for _, d := range m.disks {
		d.changes.invalidateIDs()
	}
	return inv.refreshConfig(m)
}

// GrowDisk increases the capacity of a disk. From then on change tracking is wrong as in KB 2090639:
// changes are missing without an error. With CBT.GrowthFails such queries fail. A disk with snapshots
// cannot grow.
func (inv *inventory) GrowDisk(vm string, n int, size int64) error {
	d, err := inv.findDisk(vm, n)
	if err != nil {
		return err
	}
	return inv.reconfigure(d.vm, func() error { return d.growTo(size) })
}

// refreshConfig updates the IDs and sizes of the disks in the VM's configuration.
func (inv *inventory) refreshConfig(m *machine) error {
	return inv.reconfigure(m, func() error { return nil })
}

// reconfigure changes a machine's disks and publishes the new configuration. No snapshot can be taken
// in between.
func (inv *inventory) reconfigure(m *machine, change func() error) (err error) {
	ctx := inv.newContext()
	vm, ok := inv.model.Map().Get(m.ref).(*simulator.VirtualMachine)
	if !ok {
		return fmt.Errorf("VM %q is no longer registered", m.spec.Name)
	}
	ctx.WithLock(vm, func() {
		m.writing.Lock()
		defer m.writing.Unlock()
		if err = change(); err != nil {
			return
		}
		m.showBackings(&vm.VirtualMachine)
		for _, dev := range vm.Config.Hardware.Device {
			if disk, ok := dev.(*types.VirtualDisk); ok && m.findDisk(disk.Key) != nil {
				disk.CapacityInBytes = m.findDisk(disk.Key).size.Load()
				disk.CapacityInKB = disk.CapacityInBytes / growUnit
			}
		}
		m.setLayout(&vm.VirtualMachine) // sizes of the files have changed
	})
	return err
}

// closeStorage closes contents and folders.
func (inv *inventory) closeStorage() error {
	var errs []error
	for _, c := range inv.contents {
		errs = append(errs, c.Close())
	}
	for _, dc := range inv.datacenters {
		for _, ds := range dc.datastores {
			errs = append(errs, ds.root.Close())
		}
	}
	return errors.Join(errs...)
}
