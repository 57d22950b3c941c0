package guest

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/guest/btrfs"
	"github.com/decamp/decamp/internal/guest/budget"
	"github.com/decamp/decamp/internal/guest/ext"
	"github.com/decamp/decamp/internal/guest/fat"
	"github.com/decamp/decamp/internal/guest/lvm"
	"github.com/decamp/decamp/internal/guest/tree"
	"github.com/decamp/decamp/internal/guest/xfs"
)

// A volume is a range that can contain a file system: a partition, a whole disk, or a logical volume.
type volume struct {
	detector  *detector     // detector whose report describes the volume
	r         budget.Reader // content of the volume
	name      string        // name for messages: "partition 2", "volume vg0/root"
	kind      FileSystem    // kind of its content
	uuid      string        // UUID of the file system, as blkid prints it
	label     string        // label of the file system
	cipher    string        // encryption: "LUKS2", "BitLocker"
	partition string        // UUID in the partition table; empty if it is not a partition
	devices   []string      // device names that fstab may contain, besides UUID and label
	readOnly  bool          // LVM does not permit changes, or they would bypass it
	tree      *tree.Tree    // files; nil if the file system is not readable
	usage     *tree.Usage   // size and free space; nil if unknown
	err       error         // reason why tree is nil
}

// openVolume identifies the content of w and opens its file system. name is for messages.
func (d *detector) openVolume(w *window, name string) *volume {
	v := &volume{detector: d, r: w, name: name}
	v.identifyAndOpen(w.readHead())
	return v
}

// identifyAndOpen determines kind, UUID and label from head, and opens the file system.
func (v *volume) identifyAndOpen(head []byte) {
	v.kind, v.uuid = identifyFS(head)
	v.label, v.cipher = labelOf(v.kind, head), string(v.kind)
	if v.kind == LUKS && len(head) >= 8 {
		v.cipher = fmt.Sprintf("LUKS%d", binary.BigEndian.Uint16(head[6:]))
	}
	if v.tree, v.usage, v.err = openKind(v.kind, v.r); v.err != nil {
		v.tree = nil
	}
	// The default subvolume of btrfs need not contain the root.
	if v.kind == Btrfs && v.tree != nil {
		v.tree = inSubvolume(v.tree)
	}
}

// openKind opens a file system of a supported kind. It returns a nil tree for other kinds.
func openKind(kind FileSystem, r budget.Reader) (*tree.Tree, *tree.Usage, error) {
	switch kind {
	case Ext2, Ext3, Ext4:
		fs, err := ext.Open(r)
		if err != nil {
			return nil, nil, err
		}
		t, err := fs.Tree()
		return t, usagePointer(fs.Usage()), err
	case XFS:
		fs, err := xfs.Open(r)
		if err != nil {
			return nil, nil, err
		}
		return fs.Tree, usagePointer(fs.Usage()), nil
	case FAT:
		fs, err := fat.Open(r)
		if err != nil {
			return nil, nil, err
		}
		return fs.Tree, usagePointer(fs.Usage()), nil
	case Btrfs:
		fs, err := btrfs.Open(r)
		if err != nil {
			return nil, nil, err
		}
		return fs.Tree, usagePointer(fs.Usage()), nil
	}
	return nil, nil, nil
}

// inSubvolume returns the tree of the subvolume that contains the root. Distributions use a
// subvolume of btrfs that is not the default one. If none contains etc, it returns t.
func inSubvolume(t *tree.Tree) *tree.Tree {
	if tree.Has(t, "etc") {
		return t
	}
	for _, name := range Subvolumes() {
		if node, err := t.Open(name); err == nil && tree.Has(t, name+"/etc") {
			return tree.New(node)
		}
	}
	return t
}

// usagePointer returns a pointer to a copy of u.
func usagePointer(u tree.Usage) *tree.Usage { return &u }

// volumeMemory is the charge for a volume with its file system and its report, in bytes.
const volumeMemory = 8 << 10

// addVolume adds a volume to the guest. A physical volume of LVM is kept for assembleLVM.
func (d *detector) addVolume(v *volume) {
	if d.machine.budget.Hold(volumeMemory) != nil {
		return
	}
	if v.kind == LVM2 {
		pv, err := lvm.ReadPV(v.r)
		if err != nil {
			d.warn("lvm", "%s cannot be read as LVM: %v", v.name, err)
			return
		}
		d.machine.pvs = append(d.machine.pvs, pv)
		d.machine.pvDetectors = append(d.machine.pvDetectors, d)
		return
	}
	d.machine.volumes = append(d.machine.volumes, v)
	d.readOS(v)
}

// readOS sets the OS from the first file system of the disk with an os-release. It warns if the file
// system is not readable.
func (d *detector) readOS(v *volume) {
	text, err := "", v.err
	if v.tree != nil {
		text, err = osRelease(v.tree)
	}
	if err != nil {
		d.warn("file-system", "the %s file system of %s cannot be read: %v", v.kind, v.name, err)
	}
	if d.report.OS.ID == "" && text != "" {
		d.report.OS = parseOSRelease(text)
	}
}

// assembleLVM adds the logical volumes of all volume groups. It warns if a group is incomplete. The
// report of the first physical volume's disk describes them.
func (m *machine) assembleLVM() {
	if len(m.pvs) == 0 {
		return
	}
	d := m.pvDetectors[0]
	for _, g := range lvm.Assemble(m.pvs) {
		if len(g.Missing) > 0 {
			d.warn("lvm-missing", "volume group %s has %d missing physical volumes of %d: %s", g.Name, len(g.Missing), g.PVs, strings.Join(g.Missing, ", "))
		}
		for i := range g.Volumes {
			if m.budget.Hold(volumeMemory) != nil {
				return
			}
			m.addLogical(d, g.Name, &g.Volumes[i])
		}
	}
}

// addLogical adds one logical volume to the guest and to the report of d. Volumes that cannot be opened
// are only reported.
func (m *machine) addLogical(d *detector, group string, lv *lvm.Volume) {
	described := Volume{Group: group, Name: lv.Name, Len: lv.Size, Kind: lv.Kind}
	if r, err := lv.Open(); err != nil {
		d.warn("lvm-volume", "volume %s/%s cannot be opened: %v", group, lv.Name, err)
	} else {
		v := &volume{detector: d, r: r, name: fmt.Sprintf("volume %s/%s", group, lv.Name), devices: deviceNames(group, lv.Name), readOnly: !lv.Writable()}
		head := make([]byte, min(headLen, lv.Size))
		if _, err := r.ReadAt(head, 0); err != nil {
			head = nil
		}
		v.identifyAndOpen(head)
		described.FileSystem, described.FSUUID, described.Label, described.Usage = v.kind, v.uuid, v.label, v.usage
		m.volumes = append(m.volumes, v)
		d.readOS(v)
	}
	d.report.Volumes = append(d.report.Volumes, described)
}

// deviceNames returns the device names of a logical volume. The device mapper doubles dashes.
func deviceNames(group, name string) []string {
	doubled := strings.NewReplacer("-", "--")
	return []string{"/dev/" + group + "/" + name, "/dev/mapper/" + doubled.Replace(group) + "-" + doubled.Replace(name)}
}

// partitionNames returns the likely names of a partition at the source: SCSI disks are named in their
// order. The name of an IDE disk depends on its port, which is predictable for a single disk only.
func (m *machine) partitionNames(d *detector, number int) []string {
	const letters = 26
	i := slices.Index(m.disks, d)
	if i < 0 || i >= letters {
		return nil
	}
	names := []string{fmt.Sprintf("/dev/sd%c%d", 'a'+i, number)}
	if len(m.disks) == 1 {
		names = append(names, fmt.Sprintf("/dev/hda%d", number))
	}
	return names
}

// matchesDevice reports whether the first field of a line in fstab refers to this volume.
func (v *volume) matchesDevice(device string) bool {
	// The forms are UUID=…, LABEL=…, PARTUUID=…, a link of udev, or a device name.
	tag, value, ok := strings.Cut(device, "=")
	value = strings.Trim(value, `"`)
	if !ok {
		tag, value, ok = parseDeviceLink(device)
	}
	if !ok {
		return slices.Contains(v.devices, device)
	}
	own := map[string]string{"UUID": v.uuid, "LABEL": v.label, "PARTUUID": v.partition}[tag]
	return own != "" && strings.EqualFold(own, value)
}

// parseDeviceLink parses the name of a udev link: /dev/disk/by-uuid/….
func parseDeviceLink(device string) (tag, value string, ok bool) {
	for dir, tag := range map[string]string{"by-uuid": "UUID", "by-label": "LABEL", "by-partuuid": "PARTUUID"} {
		if value, ok := strings.CutPrefix(device, "/dev/disk/"+dir+"/"); ok {
			return tag, value, true
		}
	}
	return "", "", false
}

// isWritable reports whether linux-append can change files of the volume, directly or with an
// appliance.
func (v *volume) isWritable() bool {
	return !v.readOnly && (v.isExt() || v.kind == XFS || v.kind == Btrfs)
}

// isExt reports whether the volume has an ext file system, which decamp changes without an appliance.
func (v *volume) isExt() bool { return v.kind == Ext2 || v.kind == Ext3 || v.kind == Ext4 }

// OpenTree opens a file system of the kind for reading. It returns nil for kinds that are not
// supported. Of btrfs it opens the default subvolume.
func OpenTree(kind FileSystem, r budget.Reader) (*tree.Tree, error) {
	t, _, err := openKind(kind, r)
	return t, err
}

// Subvolumes returns the subvolumes that distributions use for the root in btrfs if the default
// subvolume has no root: those of Fedora, Ubuntu and Debian.
func Subvolumes() []string { return []string{"root", "@", "@rootfs"} }
