package convert

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/decamp/decamp/internal/convert/overlay"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/guest/budget"
	"github.com/decamp/decamp/internal/guest/lvm"
)

// A Disk is one of the guest's disks, and what guest.Detect found on it.
type Disk struct {
	Overlay *overlay.Overlay
	Report  guest.Report
}

// A volume is a partition, a disk without table, or a logical volume.
type volume struct {
	names     []string // names of the volume in the guest: sda1, hda1, vg0/root
	kind      guest.FileSystem
	uuid      string
	label     string
	partition string // its UUID in the table
	esp       bool   // the table calls it an EFI system partition
	device    Device // device for an appliance, which reads it in other goroutines
	files     budget.ReadWriter
}

// volumes lists what the disks hold. The guest's names follow the disks' order.
func volumes(b *budget.Budget, disks []Disk) (out []volume, err error) {
	for i, d := range disks {
		parts := d.Report.Partitions
		if d.Report.Table == guest.None {
			parts = []guest.Partition{{Len: d.Overlay.Size(), FileSystem: d.Report.WholeDisk}}
		}
		for _, p := range parts {
			v := volume{names: deviceNames(i, len(disks), p.Number), kind: p.FileSystem, uuid: p.FSUUID, label: p.Label, partition: p.UUID, esp: p.IsESP(),
				device: d.Overlay.Slice(b.Context(), p.Off, p.Len)}
			v.files = b.ReadWriter(v.device)
			if v.uuid == "" {
				if v.uuid, err = v.readUUID(); err != nil {
					return nil, err
				}
			}
			out = append(out, v)
		}
	}
	return append(out, logical(b.Context(), disks, out)...), nil
}

// logical lists the writable logical volumes on partitions and disks. guest.Detect has reported their
// contents.
func logical(ctx context.Context, disks []Disk, on []volume) (out []volume) {
	// A Budget is for one goroutine, so an appliance gets devices with another one.
	other, cancel := budget.New(ctx, budget.Conversion())
	defer cancel()
	var here, appliance []lvm.PV
	for _, v := range on {
		if v.kind != guest.LVM2 {
			continue
		}
		pv, err := lvm.ReadPV(v.files)
		twin, twinErr := lvm.ReadPV(other.ReadWriter(v.device))
		if err == nil && twinErr == nil {
			here, appliance = append(here, pv), append(appliance, twin)
		}
	}
	twins := lvm.Assemble(appliance)
	for n, g := range lvm.Assemble(here) {
		for i := range g.Volumes {
			files, err := g.Volumes[i].OpenForWriting()
			device, twinErr := twins[n].Volumes[i].OpenForWriting()
			if err != nil || twinErr != nil {
				continue
			}
			told := reported(disks, g.Name, g.Volumes[i].Name)
			out = append(out, volume{names: logicalNames(g.Name, told.Name), kind: told.FileSystem, uuid: told.FSUUID, label: told.Label, device: device, files: files})
		}
	}
	return out
}

// reported returns guest.Detect's report on a logical volume.
func reported(disks []Disk, group, name string) guest.Volume {
	for _, d := range disks {
		for _, v := range d.Report.Volumes {
			if v.Group == group && v.Name == name {
				return v
			}
		}
	}
	return guest.Volume{Group: group, Name: name}
}

// logicalNames are what a logical volume's device is called below /dev. The mapper doubles dashes.
func logicalNames(group, name string) []string {
	doubled := strings.NewReplacer("-", "--")
	return []string{group + "/" + name, "mapper/" + doubled.Replace(group) + "-" + doubled.Replace(name)}
}

// deviceNames returns what a partition of disk i is called. IDE disks are named by their place
// on a cable; which that was is only sure for a disk that is alone.
func deviceNames(i, disks, partition int) []string {
	number := ""
	if partition > 0 {
		number = fmt.Sprint(partition)
	}
	if i >= 26 {
		return nil
	}
	names := []string{"sd" + string(rune('a'+i)) + number}
	if disks == 1 {
		names = append(names, "hda"+number)
	}
	return names
}

// readUUID reads the UUID of a file system for which guest.Detect has none, in the form of blkid; empty
// without a UUID.
func (v volume) readUUID() (string, error) {
	place := map[guest.FileSystem]struct{ off, n int64 }{
		guest.Ext2: {0x468, 16}, guest.Ext3: {0x468, 16}, guest.Ext4: {0x468, 16}, guest.Swap: {0x40c, 16}, guest.Btrfs: {0x10020, 16}, guest.LUKS: {0xa8, 36},
	}[v.kind]
	if place.n == 0 || v.device.Size() < place.off+place.n {
		return "", nil
	}
	p := make([]byte, place.n)
	if _, err := v.files.ReadAt(p, place.off); err != nil {
		return "", err
	}
	if v.kind == guest.LUKS {
		return strings.TrimRight(string(p), "\x00"), nil
	}
	u := hex.EncodeToString(p)
	if strings.Trim(u, "0") == "" {
		return "", nil
	}
	return u[:8] + "-" + u[8:12] + "-" + u[12:16] + "-" + u[16:20] + "-" + u[20:], nil
}

func (v volume) isExt() bool {
	return v.kind == guest.Ext2 || v.kind == guest.Ext3 || v.kind == guest.Ext4
}

// name is what messages call it.
func (v volume) name() string { return strings.Join(v.names, " or ") }

// is reports whether the guest means v by what an fstab has: a device, or UUID=, LABEL= and
// PARTUUID=, by udev's links too.
func (v volume) is(spec string) bool {
	tag, value, ok := strings.Cut(spec, "=")
	for dir, name := range map[string]string{"by-uuid": "UUID", "by-label": "LABEL", "by-partuuid": "PARTUUID"} {
		if rest, found := strings.CutPrefix(spec, "/dev/disk/"+dir+"/"); found {
			tag, value, ok = name, rest, true
		}
	}
	if ok {
		own := map[string]string{"UUID": v.uuid, "LABEL": v.label, "PARTUUID": v.partition}[tag]
		return own != "" && strings.EqualFold(strings.Trim(value, `"`), own)
	}
	for _, name := range v.names {
		if spec == "/dev/"+name {
			return true
		}
	}
	return false
}
