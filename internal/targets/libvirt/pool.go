package libvirt

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"libvirt.org/go/libvirtxml"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/namemap"
	"github.com/decamp/decamp/internal/targets/libvirt/rpc"
)

// pool is a pool that images can be written to.
type pool struct {
	rpc.Pool
	folder    string // target path on libvirt's host
	available int64  // free space in bytes
	block     bool   // its volumes are block devices
}

// poolTypes contains the supported types of pools. Volumes of dir, fs and netfs are files: unwritten
// ranges read as
// zeros and use no space. Volumes of logical are LVM logical volumes: block devices that are allocated
// at once,
// are rounded up to whole extents, and contain old data.
//
// Volumes of type disk are partitions with fixed names. Volumes of iscsi, scsi and mpath are created by
// other
// tools. The types rbd, zfs, gluster, sheepdog and vstorage are not tested.
var poolTypes = map[string]struct{ block bool }{"dir": {}, "fs": {}, "netfs": {}, "logical": {block: true}}

// supportedPools selects the active pools of poolTypes.
const supportedPools = rpc.ActivePools | rpc.DirPools | rpc.FSPools | rpc.NetFSPools | rpc.LogicalPools

// poolFinder finds the pools for a VM's disks. It keeps no state.
type poolFinder struct {
	at   address     // address of libvirt, with the default pool
	maps namemap.Map // map with the pools of datastores
}

// forDisks returns the pool of each disk: the map's, or the address's if the map has no entry.
func (f poolFinder) forDisks(ctx context.Context, c *rpc.Client, disks []inventory.Disk) ([]pool, error) {
	found := map[string]pool{}
	into := make([]pool, len(disks))
	for i, d := range disks {
		name := cmp.Or(f.maps.Storage(namemap.Datastore(d)), f.at.pool)
		if _, ok := found[name]; !ok {
			var err error
			if found[name], err = f.findPool(ctx, c, name); err != nil {
				return nil, err
			}
		}
		into[i] = found[name]
	}
	return into, nil
}

// allPools returns all pools that may contain volumes of a VM: the address's pool, and the existing
// pools of the map.
func (f poolFinder) allPools(ctx context.Context, c *rpc.Client) ([]pool, error) {
	var all []pool
	names := append([]string{f.at.pool}, f.maps.Targets()...)
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			continue
		}
		found, err := f.findPool(ctx, c, name)
		if fault.Is(err, fault.NotFound) && i > 0 {
			continue // a map can be for several hosts
		}
		if err != nil {
			return nil, err
		}
		all = append(all, found)
	}
	return all, nil
}

// findPool returns the pool with a name. A pool that does not exist is fault.NotFound, an inactive one
// fault.Conflict, and one of an unsupported type fault.Unsupported.
func (f poolFinder) findPool(ctx context.Context, c *rpc.Client, name string) (pool, error) {
	found, err := c.PoolByName(ctx, name)
	if rpc.IsCode(err, rpc.NoPool) {
		return pool{}, fault.New(fault.NotFound, "libvirt at %s has no pool %q", f.at, name).
			WithHint("set an existing one with pool=NAME or in the map of storages: virsh -c %s pool-list --all", fault.Quote(f.at.String()))
	}
	if err != nil {
		return pool{}, libvirtFault(err)
	}
	text, err := c.PoolXML(ctx, found)
	if err != nil {
		return pool{}, libvirtFault(err)
	}
	active, available, err := c.PoolInfo(ctx, found)
	if err != nil {
		return pool{}, libvirtFault(err)
	}
	into, err := describePool(found, text)
	if err != nil {
		return pool{}, err
	}
	if !active {
		return pool{}, fault.New(fault.Conflict, "pool %s of libvirt at %s is not started", found.Name, f.at).
			WithHint("start it: virsh -c %s pool-start %s", fault.Quote(f.at.String()), fault.Quote(found.Name))
	}
	into.available = available
	return into, f.checkDevices(ctx, c, into)
}

// checkDevices returns fault.Unsupported if the pool has block devices and libvirt is older than
// rpc.SparseDevices.
func (f poolFinder) checkDevices(ctx context.Context, c *rpc.Client, in pool) error {
	if !in.block {
		return nil
	}
	version, err := c.Version(ctx)
	if err != nil {
		return libvirtFault(err)
	}
	if version >= rpc.SparseDevices {
		return nil
	}
	return fault.New(fault.Unsupported, "libvirt at %s is older than 6.7, the first version with sparse uploads to block devices; pool %s has block devices", f.at, in.Name).
		WithHint("choose a pool with files, or update libvirt on that host")
}

// describePool converts the XML of a pool. An unsupported type is fault.Unsupported.
func describePool(found rpc.Pool, text string) (pool, error) {
	var x libvirtxml.StoragePool
	if err := x.Unmarshal(text); err != nil {
		return pool{}, fault.New(fault.Corrupt, "pool %s: %w", found.Name, err).WithHint("check its definition: virsh pool-dumpxml %s", fault.Quote(found.Name))
	}
	kind, known := poolTypes[x.Type]
	if !known || x.Target == nil {
		return pool{}, fault.New(fault.Unsupported, "pool %s has the type %s, which decamp does not support", found.Name, x.Type).
			WithHint("choose a pool of type dir, fs, netfs or logical, and then copy the disks from there: virsh blockcopy")
	}
	return pool{Pool: found, folder: x.Target.Path, block: kind.block}, nil
}

// volumeXML returns the XML of a new raw volume. A file volume is created with no allocation. A logical
// volume
// must be fully allocated: with a smaller allocation, libvirt creates a snapshot volume, which fails
// when
// it is full.
func volumeXML(in pool, name string, size int64) (string, error) {
	x := libvirtxml.StorageVolume{
		Name:     name,
		Capacity: &libvirtxml.StorageVolumeSize{Unit: "bytes", Value: uint64(size)},
		Target:   &libvirtxml.StorageVolumeTarget{Format: &libvirtxml.StorageVolumeTargetFormat{Type: "raw"}},
	}
	if !in.block {
		x.Allocation = &libvirtxml.StorageVolumeSize{Unit: "bytes"}
	}
	text, err := x.Marshal()
	if err != nil {
		return "", fmt.Errorf("describe volume %s: %w", name, err)
	}
	return text, nil
}
