package lab

import (
	"fmt"
	"strings"

	"github.com/vmware/govmomi/vim25/types"
)

// backing describes the link that is active after n snapshots, with its parents.
func (d *vdisk) backing(n int) types.BaseVirtualDeviceBackingInfo {
	if d.spec.RDM != "" {
		return d.rdmBacking()
	}
	n = min(n, len(d.links)-1)
	if n > 0 && strings.HasSuffix(d.links[n].data, "-sesparse.vmdk") {
		return d.seSparse(n)
	}
	return d.flat(n)
}

func (d *vdisk) file(n int) types.VirtualDeviceFileBackingInfo {
	ref := d.ds.ref
	return types.VirtualDeviceFileBackingInfo{
		FileName:  datastorePath(d.ds.spec.Name, d.vm.spec.Folder, d.links[n].name),
		Datastore: &ref,
	}
}

func (d *vdisk) flat(n int) *types.VirtualDiskFlatVer2BackingInfo {
	b := &types.VirtualDiskFlatVer2BackingInfo{
		VirtualDeviceFileBackingInfo: d.file(n), DiskMode: d.spec.Mode, Sharing: d.spec.Sharing,
		ThinProvisioned: types.NewBool(!d.spec.Thick), Uuid: diskUUID(d.id, 0), ContentId: strings.ReplaceAll(d.contentID(), "-", ""),
		ChangeId: d.changeID(n), KeyId: d.vm.keyID(), DigestEnabled: types.NewBool(false),
	}
	if n > 0 {
		b.Parent = d.flat(n - 1)
	}
	return b
}

// seSparse is the delta of VMFS6; its parent is another, or the flat base.
func (d *vdisk) seSparse(n int) types.BaseVirtualDeviceBackingInfo {
	b := &types.VirtualDiskSeSparseBackingInfo{
		VirtualDeviceFileBackingInfo: d.file(n), DiskMode: d.spec.Mode, Uuid: diskUUID(d.id, 0),
		ContentId: strings.ReplaceAll(d.contentID(), "-", ""), ChangeId: d.changeID(n), KeyId: d.vm.keyID(),
	}
	// The API types the parent as seSparse too, down to the base, whose file name is
	// the base descriptor.
	if n > 0 {
		b.Parent, _ = d.seSparse(n - 1).(*types.VirtualDiskSeSparseBackingInfo)
	}
	return b
}

func (d *vdisk) rdmBacking() types.BaseVirtualDeviceBackingInfo {
	naa := "naa.6000" + strings.ReplaceAll(uuidOf(d.id+"lun"), "-", "")[:28]
	return &types.VirtualDiskRawDiskMappingVer1BackingInfo{
		VirtualDeviceFileBackingInfo: d.file(0), DiskMode: d.spec.Mode, Sharing: d.spec.Sharing,
		CompatibilityMode: d.spec.RDM, DeviceName: "vml." + naa[4:], LunUuid: naa[4:], Uuid: diskUUID(d.id, 0),
	}
}

// changeID is a disk's position in its change log: an id of the log and a counter, in the
// form hosts write it. It is empty while changes are not tracked.
func (d *vdisk) changeID(n int) string {
	if !d.vm.spec.ChangeTracking {
		return ""
	}
	return fmt.Sprintf("%s/%d", d.logID(), n+1)
}

func (d *vdisk) logID() string {
	text := fmt.Sprintf("% x", hashOf(d.id+"changes", 16))
	return text[:23] + "-" + text[24:]
}

func (m *machine) keyID() *types.CryptoKeyId {
	if m.spec.KeyID == "" {
		return nil
	}
	return &types.CryptoKeyId{KeyId: m.spec.KeyID, ProviderId: &types.KeyProviderId{Id: "lab-key-provider"}}
}
