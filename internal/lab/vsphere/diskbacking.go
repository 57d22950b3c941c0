package vsphere

import (
	"strings"

	"github.com/vmware/govmomi/vim25/types"
)

// linkBacking returns the backing of link n and its parents, with the current change ID.
func (d *vdisk) linkBacking(n int) types.BaseVirtualDeviceBackingInfo {
	return d.backingWith(n, d.changeID())
}

// backingWith returns the backing of link n with a change ID.
func (d *vdisk) backingWith(n int, id string) types.BaseVirtualDeviceBackingInfo {
	if d.spec.RDM != "" {
		return d.rdmBacking()
	}
	if links := d.currentLinks(); n > 0 && strings.HasSuffix(links[n].data, "-sesparse.vmdk") {
		return d.seSparse(n, id)
	}
	return d.flatBacking(n, id)
}

// fileBacking returns the file of link n.
func (d *vdisk) fileBacking(n int) types.VirtualDeviceFileBackingInfo {
	ref := d.ds.ref
	return types.VirtualDeviceFileBackingInfo{
		FileName:  datastorePath(d.ds.spec.Name, d.vm.spec.Folder, d.currentLinks()[n].name),
		Datastore: &ref,
	}
}

// flatBacking returns the backing of a flat base, or of a delta in the format vmfsSparse.
func (d *vdisk) flatBacking(n int, id string) *types.VirtualDiskFlatVer2BackingInfo {
	b := &types.VirtualDiskFlatVer2BackingInfo{
		VirtualDeviceFileBackingInfo: d.fileBacking(n), DiskMode: d.spec.Mode, Sharing: d.spec.Sharing,
		ThinProvisioned: types.NewBool(!d.spec.Thick), Uuid: diskUUID(d.id, 0), ContentId: strings.ReplaceAll(d.contentID(), "-", ""),
		ChangeId: id, KeyId: d.vm.keyID(), DigestEnabled: types.NewBool(false),
	}
	if n > 0 {
		b.Parent = d.flatBacking(n-1, d.parentID(n-1))
	}
	return b
}

// seSparse returns the backing of a delta on VMFS6.
func (d *vdisk) seSparse(n int, id string) types.BaseVirtualDeviceBackingInfo {
	b := &types.VirtualDiskSeSparseBackingInfo{
		VirtualDeviceFileBackingInfo: d.fileBacking(n), DiskMode: d.spec.Mode, Uuid: diskUUID(d.id, 0),
		ContentId: strings.ReplaceAll(d.contentID(), "-", ""), ChangeId: id, KeyId: d.vm.keyID(),
	}
	// The API types the parent as seSparse too, down to the base, whose file name is
	// the base descriptor.
	if n > 0 {
		b.Parent, _ = d.seSparse(n-1, d.parentID(n-1)).(*types.VirtualDiskSeSparseBackingInfo)
	}
	return b
}

// rdmBacking returns the backing of a raw device mapping.
func (d *vdisk) rdmBacking() types.BaseVirtualDeviceBackingInfo {
	naa := "naa.6000" + strings.ReplaceAll(uuidOf(d.id+"lun"), "-", "")[:28]
	return &types.VirtualDiskRawDiskMappingVer1BackingInfo{
		VirtualDeviceFileBackingInfo: d.fileBacking(0), DiskMode: d.spec.Mode, Sharing: d.spec.Sharing,
		CompatibilityMode: d.spec.RDM, DeviceName: "vml." + naa[4:], LunUuid: naa[4:], Uuid: diskUUID(d.id, 0),
	}
}

// parentID returns the change ID of link n at the time its snapshot was taken; empty if changes were
// not tracked.
func (d *vdisk) parentID(n int) string {
	if n >= len(d.vm.snaps) {
		return ""
	}
	at := d.vm.snaps[n].epochs[d]
	if !at.on {
		return ""
	}
	return d.idAt(at.log, at.epoch)
}

// isTracked reports whether changes are tracked.
func (d *vdisk) isTracked() bool {
	_, _, on := d.changes.currentEpoch()
	return on
}

// keyID returns the key of an encrypted VM, or nil.
func (m *machine) keyID() *types.CryptoKeyId {
	if m.spec.KeyID == "" {
		return nil
	}
	return &types.CryptoKeyId{KeyId: m.spec.KeyID, ProviderId: &types.KeyProviderId{Id: "lab-key-provider"}}
}
