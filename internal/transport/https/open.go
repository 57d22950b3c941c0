package https

import (
	"context"
	"fmt"
	"path"
	"strings"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/transport"
	"github.com/decamp/decamp/internal/transport/allocation"
	"github.com/decamp/decamp/internal/vmdk"
)

// Probe reads the disk's descriptor and the first sector of its flat file. That checks access, lock,
// ranges and size. HEAD would check less: ESXi answers it for files that it then refuses to open.
func (t *Transport) Probe(ctx context.Context, d transport.Disk) (transport.Offer, error) {
	src, err := t.Open(ctx, d)
	if err != nil {
		return transport.Refusal(err)
	}
	defer src.Close()
	offer := transport.Offer{Reason: fmt.Sprintf("%v can be read in ranges", src.path)}
	return transport.ProbeSource(ctx, src, offer, func(ctx context.Context) bool {
		t.locations.add(src.disk, location{src.path, src.size, t.opts.Now()})
		return src.alloc.Available(ctx)
	})
}

// Open finds the flat file of a disk. It reads only the descriptor, and not even that shortly after
// Probe. The caller closes the Source.
func (t *Transport) Open(ctx context.Context, d transport.Disk) (*Source, error) {
	src, err := t.openSource(ctx, d)
	if err != nil {
		return nil, fmt.Errorf("open disk %d: %w", d.Disk.Key, err)
	}
	return src, nil
}

// openSource is Open without the disk in its errors.
func (t *Transport) openSource(ctx context.Context, d transport.Disk) (*Source, error) {
	file, err := d.DiskToRead(ctx, t.host)
	if err != nil {
		return nil, err
	}
	d.Disk = file
	if err := checkReadable(d); err != nil {
		return nil, err
	}
	flat, size, err := t.findFlat(ctx, d)
	if err != nil {
		return nil, err
	}
	uri, err := t.host.FileURI(d.VM.Datacenter, flat)
	if err != nil {
		return nil, err
	}
	src := &Source{disk: d, path: flat, uri: uri, size: size, pool: t.pool, queue: t.pool.addDisk()}
	src.report = func(r Report) { t.opts.Report(d, r) }
	src.alloc = t.newAllocationMap(src)
	return src, nil
}

// newAllocationMap returns the map from change tracking, with the change ID "*".
func (t *Transport) newAllocationMap(src *Source) *allocation.Map {
	d := src.disk
	return allocation.New(allocation.Disk{
		Key: d.Disk.Key, Size: src.size, ReadAt: src.ReadAt,
		Ask: func(ctx context.Context, r disk.Range) ([]disk.Extent, error) {
			return t.host.Allocated(ctx, d.VM.Ref, d.Snapshot, d.Disk.Key, r)
		},
	}, t.opts.Seed, t.opts.Log)
}

// OpenFile opens any datastore file of size bytes, over the connections of the disks. It sends no
// request: if the file does not exist or has another size, the first read fails. The file has no
// allocation map; all of it is data.
func (t *Transport) OpenFile(datacenter string, p inventory.Path, size int64) (*Source, error) {
	uri, err := t.host.FileURI(datacenter, p)
	if err != nil {
		return nil, fmt.Errorf("open %v: %w", p, err)
	}
	src := &Source{path: p, uri: uri, size: size, pool: t.pool, queue: t.pool.addDisk()}
	src.report = func(Report) {}
	src.alloc = allocation.None("not a disk of a VM")
	return src, nil
}

// checkReadable fails for disks that /folder cannot deliver, without a request to the host. The base of
// a snapshot is frozen, but some hosts do not open it while the VM runs: older ones do, VMFS6 and ESXi
// 7 answer 500 (three projects met it, two older ones did not).
func checkReadable(d transport.Disk) error {
	switch {
	case d.Snapshot == "" && d.VM.Power != inventory.PoweredOff:
		return fault.New(fault.Conflict, "the VM is powered %s, and ESXi locks its disks", d.VM.Power).
			WithHint("shut the VM down first (do not suspend it)")
	case d.Disk.Encrypted:
		return transport.EncryptedError()
	case d.Disk.Layers > 1 || d.Disk.Backing == inventory.Delta || d.Disk.Backing == inventory.SESparse:
		return fault.New(fault.Unsupported, "the disk has snapshots").
			WithHint("remove them (Snapshots > Delete All), consolidate the disks, and run the command again")
	case d.Disk.Backing != inventory.Flat:
		return fault.New(fault.Unsupported, "the disk is %s and has no file that can be read", d.Disk.Backing).
			WithHint("move the disk to a VMFS or NFS datastore with Storage vMotion, as thin or thick")
	}
	return nil
}

// findFlat returns the file with the disk's bytes: from Probe, or else from locateFlat.
func (t *Transport) findFlat(ctx context.Context, d transport.Disk) (inventory.Path, int64, error) {
	if at, ok := t.locations.take(d, t.opts.Now()); ok {
		return at.flat, at.size, nil
	}
	return t.locateFlat(ctx, d)
}

// locateFlat reads the descriptor and returns the file with the disk's bytes. It fails with
// fault.Corrupt if the descriptor has another size than the inventory.
func (t *Transport) locateFlat(ctx context.Context, d transport.Disk) (inventory.Path, int64, error) {
	text, err := t.host.ReadFile(ctx, d.VM.Datacenter, d.Disk.Path, vmdk.MaxDescriptor)
	if err != nil {
		return inventory.Path{}, 0, err
	}
	desc, err := vmdk.ParseDescriptor(text)
	if err != nil {
		return inventory.Path{}, 0, fmt.Errorf("%v: %w", d.Disk.Path, err)
	}
	flat, err := flatFile(desc, d.Disk.Path)
	if err != nil {
		return inventory.Path{}, 0, fmt.Errorf("%v: %w", d.Disk.Path, err)
	}
	if desc.Size() != d.Disk.Capacity {
		return inventory.Path{}, 0, fault.New(fault.Corrupt, "descriptor %v has %d bytes, the VM's disk has %d", d.Disk.Path, desc.Size(), d.Disk.Capacity).
			WithHint("the descriptor belongs to another disk or to an older size; check it on the host: vmkfstools -q disk.vmdk")
	}
	return flat, desc.Size(), nil
}

// flatFile returns the data file of a flat disk. It must be one file in the folder of the descriptor.
func flatFile(desc *vmdk.Descriptor, descriptor inventory.Path) (inventory.Path, error) {
	pieces, err := desc.Flat()
	if err != nil {
		return inventory.Path{}, err
	}
	if len(pieces) != 1 || pieces[0].File == "" || pieces[0].Offset != 0 {
		return inventory.Path{}, fault.New(fault.Unsupported, "the disk consists of %d pieces", len(pieces)).
			WithHint("copy it to a single file on the host: vmkfstools -i old.vmdk -d thin new.vmdk")
	}
	name := pieces[0].File
	if name == "." || name == ".." || strings.ContainsAny(name, `/\`) {
		return inventory.Path{}, fault.New(fault.Corrupt, "the data file %q lies outside the disk's folder", name).
			WithHint("decamp does not read files outside of a VM's folder; check the descriptor on the host")
	}
	return inventory.Path{Datastore: descriptor.Datastore, File: path.Join(path.Dir(descriptor.File), name)}, nil
}
