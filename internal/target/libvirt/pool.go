package libvirt

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"libvirt.org/go/libvirtxml"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/mapping"
	"github.com/decamp/decamp/internal/target/libvirt/rpc"
)

// A pool is where the images go.
type pool struct {
	rpc.Pool
	folder    string // on libvirt's machine
	available int64  // bytes
}

// kinds are the types of pools whose volumes are files: what is not written to them reads as zeros.
var kinds = []string{"dir", "fs", "netfs"}

// poolsOf finds the pools that disks go to, one for each disk: that of the map, or else the address's.
func (p *Place) poolsOf(ctx context.Context, c *rpc.Client, disks []inventory.Disk) ([]pool, error) {
	found := map[string]pool{}
	into := make([]pool, len(disks))
	for i, d := range disks {
		name := cmp.Or(p.opts.Maps.Storage(mapping.Datastore(d)), p.at.pool)
		if _, ok := found[name]; !ok {
			var err error
			if found[name], err = p.findPool(ctx, c, name); err != nil {
				return nil, err
			}
		}
		into[i] = found[name]
	}
	return into, nil
}

// pools are all that a VM's volumes may be in: the address's, and those of the map that are there.
func (p *Place) pools(ctx context.Context, c *rpc.Client) ([]pool, error) {
	var all []pool
	names := append([]string{p.at.pool}, p.opts.Maps.Targets()...)
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			continue
		}
		found, err := p.findPool(ctx, c, name)
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

// findPool finds a pool, in a state to be used.
func (p *Place) findPool(ctx context.Context, c *rpc.Client, name string) (pool, error) {
	found, err := c.PoolByName(ctx, name)
	if rpc.IsCode(err, rpc.NoPool) {
		return pool{}, fault.New(fault.NotFound, "libvirt at %s has no pool %q", p.at, name).
			WithHint("name one with pool=NAME or in the map of storages: virsh -c %s pool-list --all", fault.Quote(p.at.String()))
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
		return pool{}, fault.New(fault.Conflict, "pool %s of libvirt at %s is not started", found.Name, p.at).
			WithHint("start it: virsh -c %s pool-start %s", fault.Quote(p.at.String()), fault.Quote(found.Name))
	}
	into.available = available
	return into, nil
}

func describePool(found rpc.Pool, text string) (pool, error) {
	var x libvirtxml.StoragePool
	if err := x.Unmarshal(text); err != nil {
		return pool{}, fault.New(fault.Corrupt, "pool %s: %w", found.Name, err).WithHint("look at it: virsh pool-dumpxml %s", fault.Quote(found.Name))
	}
	if !slices.Contains(kinds, x.Type) || x.Target == nil {
		return pool{}, fault.New(fault.Unsupported, "pool %s is of type %s, to which decamp does not write", found.Name, x.Type).
			WithHint("choose a pool of files, which is of type dir, fs or netfs, and move the disks on from there: virsh blockcopy")
	}
	return pool{Pool: found, folder: x.Target.Path}, nil
}

// volumeXML describes a new raw volume that takes no room yet.
func volumeXML(name string, size int64) (string, error) {
	x := libvirtxml.StorageVolume{
		Name:       name,
		Capacity:   &libvirtxml.StorageVolumeSize{Unit: "bytes", Value: uint64(size)},
		Allocation: &libvirtxml.StorageVolumeSize{Unit: "bytes"},
		Target:     &libvirtxml.StorageVolumeTarget{Format: &libvirtxml.StorageVolumeTargetFormat{Type: "raw"}},
	}
	text, err := x.Marshal()
	if err != nil {
		return "", fmt.Errorf("describe volume %s: %w", name, err)
	}
	return text, nil
}
