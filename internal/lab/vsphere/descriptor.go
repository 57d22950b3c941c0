package vsphere

import (
	"crypto/sha256"
	"fmt"
	"path"
	"strings"
)

// A chainLink is one descriptor of a disk: the base, or a delta that a snapshot created.
type chainLink struct {
	name   string // name of the descriptor: x.vmdk, x-000001.vmdk
	parent string // name of the parent's descriptor; empty for the base
	data   string // name of the data file: x-flat.vmdk, x-000001-sesparse.vmdk
	layer  *layer // writes to the link
}

// baseLink returns the first link of a disk, without a layer.
func baseLink(d Disk) chainLink {
	stem := strings.TrimSuffix(d.Name, ".vmdk")
	base := chainLink{name: d.Name, data: stem + "-flat.vmdk"}
	if d.RDM != "" {
		base.data = stem + map[string]string{"physicalMode": "-rdmp.vmdk", "virtualMode": "-rdm.vmdk"}[d.RDM]
	}
	return base
}

// isSnapshotted reports whether snapshots include d. Independent disks and physical RDMs are excluded.
func isSnapshotted(d Disk) bool {
	return !strings.HasPrefix(d.Mode, "independent") && d.RDM != "physicalMode"
}

// descriptorText returns the text of the descriptor of a link.
func (d *vdisk) descriptorText(l chainLink) string {
	var b strings.Builder
	cid, parentCID := cidOf(d.id), "ffffffff"
	if l.parent != "" {
		parentCID = cid // a fresh delta repeats its parent's CID
	}
	fmt.Fprintf(&b, "# Disk DescriptorFile\nversion=1\nencoding=\"UTF-8\"\nCID=%s\nparentCID=%s\n", cid, parentCID)
	createType, kind, file := d.extentLine(l)
	fmt.Fprintf(&b, "createType=\"%s\"\n", createType)
	if l.parent != "" {
		fmt.Fprintf(&b, "parentFileNameHint=\"%s\"\n", l.parent)
	}
	fmt.Fprintf(&b, "\n# Extent description\nRW %d %s \"%s\"\n", d.content.Size()/512, kind, file)
	if d.isTracked() && l.parent == "" {
		fmt.Fprintf(&b, "\n# Change Tracking File\nchangeTrackPath=\"%s\"\n", ctkName(l.name))
	}
	b.WriteString("\n# The Disk Data Base\n#DDB\n\n")
	d.writeDDB(&b)
	return b.String()
}

// extentLine returns the createType of a descriptor, and type and file of its only extent.
func (d *vdisk) extentLine(l chainLink) (createType, kind, file string) {
	switch {
	case l.parent != "" && strings.HasSuffix(l.data, "-sesparse.vmdk"):
		return "seSparse", "SESPARSE", l.data
	case l.parent != "": // a delta in the older format
		return "vmfsSparse", "VMFSSPARSE", l.data
	case d.spec.RDM == "physicalMode": // SCSI commands pass through
		return "vmfsPassthroughRawDeviceMap", "VMFSRDM", l.data
	case d.spec.RDM == "virtualMode": // snapshots are possible
		return "vmfsRawDeviceMap", "VMFSRDM", l.data
	case d.ds.spec.Type == "vsan":
		return "vmfs", "VMFS", "vsan://" + uuidOf(d.id+l.name) // an object, no file
	}
	return "vmfs", "VMFS", l.data
}

// writeDDB writes the disk database: adapter type, geometry and identifiers.
func (d *vdisk) writeDDB(b *strings.Builder) {
	adapter := map[string]string{"lsisas": "lsilogic", "pvscsi": "lsilogic", "nvme": "lsilogic", "ahci": "ide"}[d.spec.Controller]
	setDefault(&adapter, d.spec.Controller)
	cylinders := min(d.content.Size()/512/(255*63), 65535)
	fmt.Fprintf(b, "ddb.adapterType = \"%s\"\n", adapter)
	fmt.Fprintf(b, "ddb.geometry.cylinders = \"%d\"\nddb.geometry.heads = \"255\"\nddb.geometry.sectors = \"63\"\n", cylinders)
	fmt.Fprintf(b, "ddb.longContentID = \"%s\"\n", strings.ReplaceAll(d.contentID(), "-", ""))
	if !d.spec.Thick {
		b.WriteString("ddb.thinProvisioned = \"1\"\n")
	}
	fmt.Fprintf(b, "ddb.uuid = \"%s\"\nddb.virtualHWVersion = \"20\"\n", diskUUID(d.id, ' '))
}

// ctkName returns the name of the change tracking file of a descriptor.
func ctkName(name string) string { return strings.TrimSuffix(name, ".vmdk") + "-ctk.vmdk" }

// contentID returns the content ID of the disk as a UUID.
func (d *vdisk) contentID() string { return uuidOf(d.id + "content") }

// The identifiers below are derived from names, so that each start of a configuration has the same ones.

// hashOf returns n bytes of a hash. Names that differ only in their last letter, such as two cards of
// one VM, have different hashes.
func hashOf(s string, n int) []byte {
	sum := sha256.Sum256([]byte(s))
	return sum[:n]
}

// cidOf returns a CID of eight hex digits.
func cidOf(s string) string { return fmt.Sprintf("%x", hashOf(s, 4)) }

// uuidOf returns a UUID of version 4 in lower case.
func uuidOf(s string) string {
	b := hashOf(s, 16)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80 // version 4 in the variant of RFC 9562
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

// diskUUID returns the UUID of a disk in the notation of the descriptor (sep ' ') or of the API (sep
// 0).
func diskUUID(s string, sep byte) string {
	b := hashOf(s, 16)
	copy(b, []byte{0x60, 0x00, 0xc2, 0x90 | b[3]&0x0f})
	if sep == 0 {
		return strings.ToUpper(fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16]))
	}
	text := fmt.Sprintf("% x", b)
	return text[:23] + "-" + text[24:]
}

// macOf returns a MAC address in VMware's range for generated addresses.
func macOf(vm string, i int) string {
	b := hashOf(fmt.Sprint(vm, i), 3)
	return fmt.Sprintf("00:0c:29:%02x:%02x:%02x", b[0], b[1], b[2])
}

// datastorePath returns "[ds] folder/name".
func datastorePath(ds, folder, name string) string {
	return "[" + ds + "] " + path.Join(folder, name)
}
