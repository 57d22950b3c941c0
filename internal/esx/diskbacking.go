package esx

import (
	"strings"

	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/inventory"
)

// layer is one file of a disk's chain. The API has a separate type for each kind of
// backing.
type layer struct {
	kind      inventory.Backing                  // kind of the backing by its API type; see tree.backingOf
	file      types.VirtualDeviceFileBackingInfo // datastore path of the descriptor
	mode      string                             // disk mode, such as persistent or independent_persistent
	sharing   string                             // multi-writer setting; empty if the type has none
	uuid      string                             // UUID of the disk
	changeID  string                             // change ID of the current state; empty without change tracking
	thin      bool                               // true if blocks are allocated on the first write
	encrypted bool                               // true if the layer has an encryption key
}

// toDisk converts a disk. layout may be nil: Used is -1 then. Path is the layer that
// the VM writes to, Base the bottom of the chain. A disk without files has
// UnknownBacking.
func (t *tree) toDisk(d *types.VirtualDisk, layout *types.VirtualMachineFileLayoutEx) inventory.Disk {
	out := inventory.Disk{
		Key:        d.Key,
		Label:      labelOf(d),
		Capacity:   d.CapacityInBytes,
		Used:       usedBytes(d.Key, layout),
		Controller: d.ControllerKey,
		Backing:    inventory.UnknownBacking,
	}
	if out.Capacity == 0 {
		out.Capacity = d.CapacityInKB << 10 // before API 5.5
	}
	if d.UnitNumber != nil {
		out.Unit = int(*d.UnitNumber)
	}
	chain := layersOf(d.Backing)
	if len(chain) == 0 {
		return out
	}
	// Path and mode are those of the layer that the VM writes to; thin provisioning is
	// a property of the base.
	top, bottom := chain[0], chain[len(chain)-1]
	out.Path, out.Base = pathOf(top.file.FileName), pathOf(bottom.file.FileName)
	out.Backing = t.backingOf(top)
	out.Thin, out.Mode = bottom.thin, top.mode
	out.Shared = top.sharing == string(types.VirtualDiskSharingSharingMultiWriter)
	out.UUID, out.ChangeID = top.uuid, inventory.ChangeID(top.changeID)
	out.Layers = len(chain)
	for _, l := range chain {
		out.Encrypted = out.Encrypted || l.encrypted
	}
	return out
}

// backingOf returns the kind of a disk's storage. The type of the datastore takes
// precedence: the API reports vSAN objects as FlatVer2.
func (t *tree) backingOf(top layer) inventory.Backing {
	if top.kind == inventory.RDM || top.kind == inventory.UnknownBacking || top.file.Datastore == nil {
		return top.kind
	}
	switch strings.ToLower(t.datastores[*top.file.Datastore].Summary.Type) {
	case "vsan", "vsand":
		return inventory.VSAN
	case "vvol":
		return inventory.VVol
	}
	return top.kind
}

// layersOf returns a backing and its parents. The first is the layer that the VM writes
// to. The result is empty for backings without files.
func layersOf(backing types.BaseVirtualDeviceBackingInfo) []layer {
	var out []layer
	for backing != nil {
		l, parent, ok := layerOf(backing)
		if !ok {
			break
		}
		if l.kind == inventory.Flat && parent != nil {
			l.kind = inventory.Delta // ESXi reports a vmfsSparse layer as FlatVer2 with a parent
		}
		out = append(out, l)
		backing = parent
	}
	return out
}

// layerOf returns a backing's layer and its parent, which is nil at the bottom of the
// chain. It returns false for backings without files.
func layerOf(backing types.BaseVirtualDeviceBackingInfo) (layer, types.BaseVirtualDeviceBackingInfo, bool) {
	switch b := backing.(type) {
	case *types.VirtualDiskFlatVer2BackingInfo:
		return layer{inventory.Flat, b.VirtualDeviceFileBackingInfo, b.DiskMode, b.Sharing, b.Uuid, b.ChangeId,
			isTrue(b.ThinProvisioned), b.KeyId != nil}, parentOf(b.Parent), true
	case *types.VirtualDiskSeSparseBackingInfo:
		return layer{inventory.SESparse, b.VirtualDeviceFileBackingInfo, b.DiskMode, "", b.Uuid, b.ChangeId,
			true, b.KeyId != nil}, parentOf(b.Parent), true
	case *types.VirtualDiskSparseVer2BackingInfo:
		return layer{inventory.Delta, b.VirtualDeviceFileBackingInfo, b.DiskMode, "", b.Uuid, b.ChangeId,
			true, b.KeyId != nil}, parentOf(b.Parent), true
	case *types.VirtualDiskRawDiskMappingVer1BackingInfo:
		return layer{inventory.RDM, b.VirtualDeviceFileBackingInfo, b.DiskMode, b.Sharing, b.Uuid, b.ChangeId,
			false, false}, parentOf(b.Parent), true
	case *types.VirtualDiskLocalPMemBackingInfo:
		return layer{inventory.UnknownBacking, b.VirtualDeviceFileBackingInfo, b.DiskMode, "", b.Uuid, "",
			false, false}, nil, true
	}
	return layer{}, nil, false
}

// parentOf converts a nil pointer to a nil interface.
func parentOf[T any, P interface {
	*T
	types.BaseVirtualDeviceBackingInfo
}](p P) types.BaseVirtualDeviceBackingInfo {
	if p == nil {
		return nil
	}
	return p
}

// usedBytes returns the sum of the sizes of all files of a disk's layers, or -1 if
// layout is nil or does not contain the disk.
func usedBytes(key int32, layout *types.VirtualMachineFileLayoutEx) int64 {
	if layout == nil {
		return -1
	}
	sizes := map[int32]int64{}
	for _, f := range layout.File {
		sizes[f.Key] = f.Size
	}
	for _, d := range layout.Disk {
		if d.Key != key {
			continue
		}
		var sum int64
		for _, unit := range d.Chain {
			for _, file := range unit.FileKey {
				sum += sizes[file]
			}
		}
		return sum
	}
	return -1
}
