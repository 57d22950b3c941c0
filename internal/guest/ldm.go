package guest

import (
	"fmt"
	"strings"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/guest/ldm"
)

const (
	ldmMetadataGUID = "5808c8aa-7e8f-42e0-85d2-e1e90434cfb3"
	ldmDataGUID     = "af9b60a0-1431-4f62-bc68-3311714a69ad"

	ldmMBR = "42"

	// privHeadSector is where an MBR disk has its first private header, in sectors.
	privHeadSector = 6

	// maxTold bounds the volumes that a warning names.
	maxTold = 8
)

// Dynamic is the content of the database of Windows' dynamic disks.
type Dynamic struct {
	Group   string          `json:"group"`
	Volumes []DynamicVolume `json:"volumes,omitempty"` // volumes with a piece on this disk
}

// A DynamicVolume is a volume of dynamic disks.
type DynamicVolume struct {
	Name       string     `json:"name"`
	Letter     string     `json:"letter,omitempty"` // last drive letter: "E:"
	Layout     ldm.Layout `json:"layout,omitempty"`
	Size       int64      `json:"size"`
	Pieces     int        `json:"pieces"`               // on all disks of the group
	FileSystem FileSystem `json:"fileSystem,omitempty"` // where all of it is on this disk

	whole ldm.Piece
}

// label is what people call the volume.
func (v DynamicVolume) label() string {
	if v.Letter != "" {
		return v.Letter
	}
	return v.Name
}

// isDynamic reports the partition types of Windows' logical disk manager.
func isDynamic(kind string) bool {
	return kind == ldmMBR || kind == ldmMetadataGUID || kind == ldmDataGUID
}

// findDynamic reads the database of dynamic disks, if the disk has one.
func (d *detector) findDynamic() {
	for _, p := range d.report.Partitions {
		if !isDynamic(p.Type) {
			continue
		}
		if head, ok := d.privHead(); ok {
			d.report.Dynamic = &Dynamic{Group: head.Group}
			d.readDynamic(head)
		}
		return
	}
}

// privHead looks for a private header where they are: near the beginning of an MBR disk,
// in the partition of a GPT disk that is for it, and at the end.
func (d *detector) privHead() (ldm.Header, bool) {
	if head, ok := ldm.Find(d.disk, privHeadSector*disk.SectorSize, disk.SectorSize); ok && d.report.Table == MBR {
		return head, true
	}
	tries := 4 // each reads 1 MiB, and a disk has one such partition
	for _, p := range d.report.Partitions {
		if p.Type == ldmMetadataGUID && p.Len > 0 && tries > 0 {
			tries--
			if head, ok := ldm.Find(d.disk, p.Off, p.Len); ok {
				return head, true
			}
		}
	}
	tail := min(ldm.DatabaseSize, d.disk.size) / disk.SectorSize * disk.SectorSize
	return ldm.Find(d.disk, d.disk.size-tail, tail)
}

func (d *detector) readDynamic(head ldm.Header) {
	volumes, err := head.Volumes(d.disk, d.disk.size)
	if err != nil {
		d.warn("dynamic-database", "which volumes of dynamic disks there are cannot be read: %v", err)
	}
	for _, v := range volumes {
		d.report.Dynamic.Volumes = append(d.report.Dynamic.Volumes, DynamicVolume{
			Name: v.Name, Letter: v.Hint, Layout: v.Layout, Size: v.Size, Pieces: v.Pieces, whole: v.Whole,
		})
	}
}

// inVolumes reports whether a partition's bytes belong to dynamic volumes, which begin at positions in
// the database and not at the partition's start.
func (d *detector) inVolumes(p *Partition) bool {
	return isDynamic(p.Type) && d.report.Dynamic != nil && len(d.report.Dynamic.Volumes) > 0
}

// dynamic looks into the volumes that are whole on this disk, and warns, once for a disk.
func (d *detector) dynamic() {
	if d.report.Dynamic != nil {
		for i := range d.report.Dynamic.Volumes {
			d.dynamicVolume(&d.report.Dynamic.Volumes[i])
		}
	}
	for _, p := range d.report.Partitions {
		if isDynamic(p.Type) {
			d.warn("dynamic-disk", "the disk is one of Windows' dynamic disks%s: a Windows on one cannot be converted; move all disks of the group together",
				d.report.Dynamic.describe())
			return
		}
	}
}

// dynamicVolume looks into a volume that is whole on this disk.
func (d *detector) dynamicVolume(v *DynamicVolume) {
	off, size := v.whole.Off, v.whole.Len
	if size <= 0 || off < 0 || off > d.disk.size || size > d.disk.size-off {
		return
	}
	if d.machine.budget.Hold(volumeMemory) != nil || d.machine.budget.Step(int64(len(d.report.Partitions))) != nil {
		return
	}
	number, kind := 0, ldmMBR
	for _, p := range d.report.Partitions {
		if p.Off <= off && off-p.Off < p.Len && !isExtended(p.Type) {
			number, kind = p.Number, p.Type
		}
	}
	slice := d.disk.slice(off, size)
	found := d.volume(slice, "volume "+v.label())
	v.FileSystem = found.kind
	d.windows(number, kind, found, slice)
}

// describe spells the group and its volumes.
func (g *Dynamic) describe() string {
	if g == nil {
		return ""
	}
	var told []string
	for _, v := range g.Volumes[:min(len(g.Volumes), maxTold)] {
		told = append(told, fmt.Sprintf("%s (%s)", v.label(), v.Layout))
	}
	text := ", of the group " + g.Group
	if len(told) > 0 {
		text += ", with " + strings.Join(told, ", ")
	}
	return text
}
