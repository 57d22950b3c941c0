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

// A volume can hold a file system: a partition, a whole disk, or a logical volume.
type volume struct {
	d         *detector // detector whose report contains it
	r         budget.Reader
	name      string // "partition 2", "volume vg0/root"
	kind      FileSystem
	uuid      string
	label     string
	cipher    string   // "LUKS2", "BitLocker": what encrypts it
	partition string   // its UUID in the table, if it is one
	devices   []string // other names of it in fstab, beside UUID and label
	fixed     bool     // LVM does not let it be changed past it
	tree      *tree.Tree
	usage     *tree.Usage
	err       error // why it has no tree
}

// volume looks at what begins with w.
func (d *detector) volume(w *window, name string) *volume {
	v := &volume{d: d, r: w, name: name}
	v.identify(w.head())
	return v
}

// identify determines the type of the volume, and opens its file system.
func (v *volume) identify(head []byte) {
	v.kind, v.uuid = identify(head)
	v.label, v.cipher = labelOf(v.kind, head), string(v.kind)
	if v.kind == LUKS && len(head) >= 8 {
		v.cipher = fmt.Sprintf("LUKS%d", binary.BigEndian.Uint16(head[6:]))
	}
	if v.tree, v.usage, v.err = openKind(v.kind, v.r); v.err != nil {
		v.tree = nil
	}
	if v.kind == Btrfs && v.tree != nil {
		v.tree = inSubvolume(v.tree)
	}
}

// openKind opens a file system of a supported kind; it returns a nil tree for other kinds.
func openKind(kind FileSystem, r budget.Reader) (*tree.Tree, *tree.Usage, error) {
	switch kind {
	case Ext2, Ext3, Ext4:
		fs, err := ext.Open(r)
		if err != nil {
			return nil, nil, err
		}
		t, err := fs.Tree()
		return t, usage(fs.Usage()), err
	case XFS:
		fs, err := xfs.Open(r)
		if err != nil {
			return nil, nil, err
		}
		return fs.Tree, usage(fs.Usage()), nil
	case FAT:
		fs, err := fat.Open(r)
		if err != nil {
			return nil, nil, err
		}
		return fs.Tree, usage(fs.Usage()), nil
	case Btrfs:
		fs, err := btrfs.Open(r)
		if err != nil {
			return nil, nil, err
		}
		return fs.Tree, usage(fs.Usage()), nil
	}
	return nil, nil, nil
}

// inSubvolume returns the tree of the subvolume that distributions keep the root in, where
// the default one has none.
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

func usage(u tree.Usage) *tree.Usage { return &u }

// volumeMemory is the memory of a volume with its file system and its report, in bytes.
const volumeMemory = 8 << 10

// keep takes a volume for the guest that is put together of all of them.
func (d *detector) keep(v *volume) {
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
		d.machine.holders = append(d.machine.holders, d)
		return
	}
	d.machine.volumes = append(d.machine.volumes, v)
	d.readOS(v)
}

// readOS takes the OS from the disk's first file system that has an os-release.
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

// assemble makes volumes of the volume groups that are on the disks.
func (m *machine) assemble() {
	if len(m.pvs) == 0 {
		return
	}
	d := m.holders[0]
	for _, g := range lvm.Assemble(m.pvs) {
		if len(g.Missing) > 0 {
			d.warn("lvm-missing", "volume group %s lacks %d of its %d physical volumes: %s", g.Name, len(g.Missing), g.PVs, strings.Join(g.Missing, ", "))
		}
		for i := range g.Volumes {
			if m.budget.Hold(volumeMemory) != nil {
				return
			}
			m.logical(d, g.Name, &g.Volumes[i])
		}
	}
}

// logical takes one logical volume.
func (m *machine) logical(d *detector, group string, lv *lvm.Volume) {
	told := Volume{Group: group, Name: lv.Name, Len: lv.Size, Kind: lv.Kind}
	if r, err := lv.Open(); err != nil {
		d.warn("lvm-volume", "volume %s/%s is not looked into: %v", group, lv.Name, err)
	} else {
		v := &volume{d: d, r: r, name: fmt.Sprintf("volume %s/%s", group, lv.Name), devices: deviceNames(group, lv.Name), fixed: !lv.Writable()}
		head := make([]byte, min(headLen, lv.Size))
		if _, err := r.ReadAt(head, 0); err != nil {
			head = nil
		}
		v.identify(head)
		told.FileSystem, told.FSUUID, told.Label, told.Usage = v.kind, v.uuid, v.label, v.usage
		m.volumes = append(m.volumes, v)
		d.readOS(v)
	}
	d.report.Volumes = append(d.report.Volumes, told)
}

// deviceNames are the names of a logical volume's device. The mapper doubles dashes.
func deviceNames(group, name string) []string {
	doubled := strings.NewReplacer("-", "--")
	return []string{"/dev/" + group + "/" + name, "/dev/mapper/" + doubled.Replace(group) + "-" + doubled.Replace(name)}
}

// partitionNames are what a partition is called where it was: disks are named in their order.
// Those of IDE are named by their place on a cable, which is only sure of a disk that is alone.
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

// is reports whether fstab's word for a device means this volume.
func (v *volume) is(device string) bool {
	tag, value, ok := strings.Cut(device, "=")
	value = strings.Trim(value, `"`)
	if !ok {
		tag, value, ok = byLink(device)
	}
	if !ok {
		return slices.Contains(v.devices, device)
	}
	own := map[string]string{"UUID": v.uuid, "LABEL": v.label, "PARTUUID": v.partition}[tag]
	return own != "" && strings.EqualFold(own, value)
}

// byLink takes the names of udev's links apart: /dev/disk/by-uuid/….
func byLink(device string) (tag, value string, ok bool) {
	for dir, tag := range map[string]string{"by-uuid": "UUID", "by-label": "LABEL", "by-partuuid": "PARTUUID"} {
		if value, ok := strings.CutPrefix(device, "/dev/disk/"+dir+"/"); ok {
			return tag, value, true
		}
	}
	return "", "", false
}

// writable reports whether linux-append can change files of the volume, be it by an appliance.
func (v *volume) writable() bool {
	return !v.fixed && (v.isExt() || v.kind == XFS || v.kind == Btrfs)
}

func (v *volume) isExt() bool { return v.kind == Ext2 || v.kind == Ext3 || v.kind == Ext4 }

// OpenTree returns the files of a file system of that kind, to be read; nil for a kind that
// cannot be read. Of btrfs it is the default subvolume's.
func OpenTree(kind FileSystem, r budget.Reader) (*tree.Tree, error) {
	t, _, err := openKind(kind, r)
	return t, err
}

// Subvolumes are where distributions keep the root in btrfs whose default subvolume has none:
// Fedora's, Ubuntu's and Debian's.
func Subvolumes() []string { return []string{"root", "@", "@rootfs"} }
