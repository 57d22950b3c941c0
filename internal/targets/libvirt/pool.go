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

// A pool is where the images go.
type pool struct {
	rpc.Pool
	folder    string // on libvirt's machine
	available int64  // bytes
	block     bool   // its volumes are devices
}

// kinds are the types of pools that decamp writes to. Volumes of most are files: what is not written to them reads
// as zeros, and takes no room. Those of logical ones are LVM's: devices that take all their room at once, are made of
// whole extents, and read as what was there before.
//
// The volumes of disk are partitions, which have no names of ours; those of iscsi, scsi and mpath are made elsewhere.
// Whether rbd, zfs, gluster, sheepdog and vstorage keep what decamp promises was never tried.
var kinds = map[string]struct{ block bool }{"dir": {}, "fs": {}, "netfs": {}, "logical": {block: true}}

// A poolFinder finds the pools that VMs go to, over any connection to the libvirt at an address.
type poolFinder struct {
	at   address
	maps namemap.Map
}

// forDisks finds the pools that disks go to, one for each disk: that of the map, or else the address's.
func (f poolFinder) forDisks(ctx context.Context, c *rpc.Client, disks []inventory.Disk) ([]pool, error) {
	found := map[string]pool{}
	into := make([]pool, len(disks))
	for i, d := range disks {
		name := cmp.Or(f.maps.Storage(namemap.Datastore(d)), f.at.pool)
		if _, ok := found[name]; !ok {
			var err error
			if found[name], err = f.find(ctx, c, name); err != nil {
				return nil, err
			}
		}
		into[i] = found[name]
	}
	return into, nil
}

// all returns all pools that a VM's volumes may be in: the address's, and those of the map that are there.
func (f poolFinder) all(ctx context.Context, c *rpc.Client) ([]pool, error) {
	var all []pool
	names := append([]string{f.at.pool}, f.maps.Targets()...)
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			continue
		}
		found, err := f.find(ctx, c, name)
		if fault.Is(err, fault.NotFound) && i > 0 {
			continue // a map may be of several hosts
		}
		if err != nil {
			return nil, err
		}
		all = append(all, found)
	}
	return all, nil
}

// find finds a pool, in a state to be used.
func (f poolFinder) find(ctx context.Context, c *rpc.Client, name string) (pool, error) {
	found, err := c.PoolByName(ctx, name)
	if rpc.IsCode(err, rpc.NoPool) {
		return pool{}, fault.New(fault.NotFound, "libvirt at %s has no pool %q", f.at, name).
			WithHint("name one with pool=NAME or in the map of storages: virsh -c %s pool-list --all", fault.Quote(f.at.String()))
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

// checkDevices sees whether libvirt can fill a pool that has devices.
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
	return fault.New(fault.Unsupported, "libvirt at %s is older than 6.7, the first that can leave holes out on their way to devices, as pool %s has", f.at, in.Name).
		WithHint("choose a pool of files, or update libvirt there")
}

func describePool(found rpc.Pool, text string) (pool, error) {
	var x libvirtxml.StoragePool
	if err := x.Unmarshal(text); err != nil {
		return pool{}, fault.New(fault.Corrupt, "pool %s: %w", found.Name, err).WithHint("look at it: virsh pool-dumpxml %s", fault.Quote(found.Name))
	}
	kind, known := kinds[x.Type]
	if !known || x.Target == nil {
		return pool{}, fault.New(fault.Unsupported, "pool %s is of type %s, to which decamp does not write", found.Name, x.Type).
			WithHint("choose a pool of type dir, fs, netfs or logical, and move the disks on from there: virsh blockcopy")
	}
	return pool{Pool: found, folder: x.Target.Path, block: kind.block}, nil
}

// volumeXML describes a new raw volume of a pool. As a file it takes no room yet. A volume of LVM's that takes less than
// its capacity would be a snapshot of nothing, which breaks when it has taken that.
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
