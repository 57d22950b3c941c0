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

// A Disk is one disk of the guest.
type Disk struct {
	Overlay *overlay.Overlay // content, with all changes
	Report  guest.Report     // result of guest.Detect for the disk
}

// A volume is a partition, a disk without partition table, or a logical volume.
type volume struct {
	names     []string          // names in the guest below /dev: sda1, hda1, vg0/root
	kind      guest.FileSystem  // type of the file system
	uuid      string            // UUID of the file system, as blkid prints it
	label     string            // label of the file system
	partition string            // UUID in the partition table
	esp       bool              // the partition has the type of an EFI system partition
	device    Device            // content for an appliance, which reads it in other goroutines
	files     budget.ReadWriter // content for this process; reads are charged to its budget
}

// listVolumes returns the volumes of the disks. Their names follow the order of the disks.
func listVolumes(b *budget.Budget, disks []Disk) (out []volume, err error) {
	for i, d := range disks {
		parts := d.Report.Partitions
		if d.Report.Table == guest.None {
			parts = []guest.Partition{{Len: d.Overlay.Size(), FileSystem: d.Report.WholeDisk}}
		}
		for _, p := range parts {
			// A volume without partition table has the number 0.
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
	return append(out, logicalVolumes(b.Context(), disks, out)...), nil
}

// logicalVolumes returns the writable logical volumes whose physical volumes are in on. guest.Detect
// has reported their contents.
func logicalVolumes(ctx context.Context, disks []Disk, on []volume) (out []volume) {
	// A Budget is for one goroutine, so an appliance gets devices with another one.
	other, cancel := budget.New(ctx, budget.Conversion())
	defer cancel()
	var here, appliance []lvm.PV
	for _, v := range on {
		if v.kind != guest.LVM2 {
			continue
		}
		pv, err := lvm.ReadPV(v.files)
		appliancePV, applianceErr := lvm.ReadPV(other.ReadWriter(v.device))
		if err == nil && applianceErr == nil {
			here, appliance = append(here, pv), append(appliance, appliancePV)
		}
	}
	applianceGroups := lvm.Assemble(appliance)
	for n, g := range lvm.Assemble(here) {
		for i := range g.Volumes {
			files, err := g.Volumes[i].OpenForWriting()
			device, applianceErr := applianceGroups[n].Volumes[i].OpenForWriting()
			if err != nil || applianceErr != nil {
				continue
			}
			known := reportedVolume(disks, g.Name, g.Volumes[i].Name)
			out = append(out, volume{names: logicalNames(g.Name, known.Name), kind: known.FileSystem, uuid: known.FSUUID, label: known.Label, device: device, files: files})
		}
	}
	return out
}

// reportedVolume returns the report of guest.Detect on a logical volume; without one, only group and
// name are set.
func reportedVolume(disks []Disk, group, name string) guest.Volume {
	for _, d := range disks {
		for _, v := range d.Report.Volumes {
			if v.Group == group && v.Name == name {
				return v
			}
		}
	}
	return guest.Volume{Group: group, Name: name}
}

// logicalNames returns the names of a logical volume's device below /dev. The device mapper doubles
// dashes.
func logicalNames(group, name string) []string {
	doubled := strings.NewReplacer("-", "--")
	return []string{group + "/" + name, "mapper/" + doubled.Replace(group) + "-" + doubled.Replace(name)}
}

// deviceNames returns the names of a partition of disk i, which is one of disks. The name of an IDE
// disk depends on its port, which is predictable for a single disk only.
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

// readUUID returns the UUID of a file system for which guest.Detect has none, as blkid prints it; empty
// if the file system has none.
func (v volume) readUUID() (string, error) {
	// Offsets of the UUID: in the superblock of ext at 0x400, of swap at 0x400, of btrfs at 0x10000.
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
	// LUKS stores the UUID as text.
	if v.kind == guest.LUKS {
		return strings.TrimRight(string(p), "\x00"), nil
	}
	u := hex.EncodeToString(p)
	if strings.Trim(u, "0") == "" {
		return "", nil
	}
	return u[:8] + "-" + u[8:12] + "-" + u[12:16] + "-" + u[16:20] + "-" + u[20:], nil
}

// isExt reports whether the volume has an ext file system, which this process can write.
func (v volume) isExt() bool {
	return v.kind == guest.Ext2 || v.kind == guest.Ext3 || v.kind == guest.Ext4
}

// displayName returns all names of the volume, for messages.
func (v volume) displayName() string { return strings.Join(v.names, " or ") }

// matchesDevice reports whether a device in fstab is this volume. It may be a device name, UUID=,
// LABEL=, PARTUUID=, or a link of udev.
func (v volume) matchesDevice(spec string) bool {
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
