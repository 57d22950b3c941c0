package guest

import (
	"fmt"
	"strings"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/guest/ldm"
)

const (
	// GPT type of the partition with the database of dynamic disks
	ldmMetadataGUID = "5808c8aa-7e8f-42e0-85d2-e1e90434cfb3"
	ldmDataGUID     = "af9b60a0-1431-4f62-bc68-3311714a69ad" // GPT type of a partition with dynamic volumes

	ldmMBR = "42" // MBR type of a partition with dynamic volumes

	// privHeadSector is the sector of the first private header on an MBR disk.
	privHeadSector = 6

	// maxNamed limits the volumes that a warning lists.
	maxNamed = 8
)

// Dynamic is the content of the database of Windows' dynamic disks, as far as it concerns one disk.
type Dynamic struct {
	Group   string          `json:"group"`             // name of the disk group
	Volumes []DynamicVolume `json:"volumes,omitempty"` // volumes with a piece on this disk
}

// A DynamicVolume is a volume of dynamic disks.
type DynamicVolume struct {
	Name       string     `json:"name"`                 // name in the database: "Volume1"
	Letter     string     `json:"letter,omitempty"`     // last drive letter: "E:"
	Layout     ldm.Layout `json:"layout,omitempty"`     // simple, spanned, striped, mirrored or RAID-5
	Size       int64      `json:"size"`                 // bytes of the volume
	Pieces     int        `json:"pieces"`               // pieces on all disks of the group
	FileSystem FileSystem `json:"fileSystem,omitempty"` // file system, if the whole volume is on this disk

	onDisk ldm.Piece // location, if the whole volume is on this disk; otherwise zero
}

// displayName returns the drive letter, or the name of a volume without a letter.
func (v DynamicVolume) displayName() string {
	if v.Letter != "" {
		return v.Letter
	}
	return v.Name
}

// isDynamic reports whether a partition type is one of Windows' logical disk manager.
func isDynamic(kind string) bool {
	return kind == ldmMBR || kind == ldmMetadataGUID || kind == ldmDataGUID
}

// findDynamic reads the database of dynamic disks, if the disk has one.
func (d *detector) findDynamic() {
	for _, p := range d.report.Partitions {
		if !isDynamic(p.Type) {
			continue
		}
		if head, ok := d.findPrivHead(); ok {
			d.report.Dynamic = &Dynamic{Group: head.Group}
			d.readDynamic(head)
		}
		return
	}
}

// findPrivHead searches the private header at its possible positions: at the beginning of an MBR
// disk, in the metadata partition of a GPT disk, and at the end of the disk.
func (d *detector) findPrivHead() (ldm.Header, bool) {
	if head, ok := ldm.Find(d.disk, privHeadSector*disk.SectorSize, disk.SectorSize); ok && d.report.Table == MBR {
		return head, true
	}
	tries := 4 // each search reads 1 MiB, and a valid disk has one such partition
	for _, p := range d.report.Partitions {
		if p.Type == ldmMetadataGUID && p.Len > 0 && tries > 0 {
			tries--
			if head, ok := ldm.Find(d.disk, p.Off, p.Len); ok {
				return head, true
			}
		}
	}
	// The last copy of the header is in the last MiB.
	tail := min(ldm.DatabaseSize, d.disk.size) / disk.SectorSize * disk.SectorSize
	return ldm.Find(d.disk, d.disk.size-tail, tail)
}

// readDynamic adds the volumes of the database to the report. If the database is damaged, it warns and
// adds the readable ones.
func (d *detector) readDynamic(head ldm.Header) {
	volumes, err := head.Volumes(d.disk, d.disk.size)
	if err != nil {
		d.warn("dynamic-database", "the list of volumes on dynamic disks cannot be read: %v", err)
	}
	for _, v := range volumes {
		d.report.Dynamic.Volumes = append(d.report.Dynamic.Volumes, DynamicVolume{
			Name: v.Name, Letter: v.Hint, Layout: v.Layout, Size: v.Size, Pieces: v.Pieces, onDisk: v.Whole,
		})
	}
}

// isInVolumes reports whether a partition contains dynamic volumes. They begin at positions from the
// database, not at the beginning of the partition.
func (d *detector) isInVolumes(p *Partition) bool {
	return isDynamic(p.Type) && d.report.Dynamic != nil && len(d.report.Dynamic.Volumes) > 0
}

// examineDynamic examines the volumes that are completely on this disk. It adds one warning per disk.
func (d *detector) examineDynamic() {
	if d.report.Dynamic != nil {
		for i := range d.report.Dynamic.Volumes {
			d.examineVolume(&d.report.Dynamic.Volumes[i])
		}
	}
	for _, p := range d.report.Partitions {
		if isDynamic(p.Type) {
			d.warn("dynamic-disk", "the disk is a dynamic disk of Windows%s: a Windows on it cannot be converted; migrate all disks of the group together",
				d.report.Dynamic.describeGroup())
			return
		}
	}
}

// examineVolume examines a volume that is completely on this disk, and ignores others.
func (d *detector) examineVolume(v *DynamicVolume) {
	off, size := v.onDisk.Off, v.onDisk.Len
	if size <= 0 || off < 0 || off > d.disk.size || size > d.disk.size-off {
		return
	}
	if d.machine.budget.Hold(volumeMemory) != nil || d.machine.budget.Step(int64(len(d.report.Partitions))) != nil {
		return
	}
	// The volume is in the partition that contains its first byte.
	number, kind := 0, ldmMBR
	for _, p := range d.report.Partitions {
		if p.Off <= off && off-p.Off < p.Len && !isExtended(p.Type) {
			number, kind = p.Number, p.Type
		}
	}
	slice := d.disk.subWindow(off, size)
	found := d.openVolume(slice, "volume "+v.displayName())
	v.FileSystem = found.kind
	d.examineWindows(number, kind, found, slice)
}

// describeGroup returns the group and at most maxNamed volumes for a message. g may be nil.
func (g *Dynamic) describeGroup() string {
	if g == nil {
		return ""
	}
	var named []string
	for _, v := range g.Volumes[:min(len(g.Volumes), maxNamed)] {
		named = append(named, fmt.Sprintf("%s (%s)", v.displayName(), v.Layout))
	}
	text := ", of the group " + g.Group
	if len(named) > 0 {
		text += ", with " + strings.Join(named, ", ")
	}
	return text
}
