package guest

import (
	"bytes"
	"encoding/binary"
	"strings"

	"github.com/decamp/decamp/internal/disk"
)

const (
	ldmMetadataGUID = "5808c8aa-7e8f-42e0-85d2-e1e90434cfb3"
	ldmDataGUID     = "af9b60a0-1431-4f62-bc68-3311714a69ad"

	ldmMBR = "42"

	// privHeadSector is where an MBR disk has its first copy, in sectors.
	privHeadSector = 6

	// ldmTail is the length of the database, which ends the disk or fills its partition,
	// in bytes. Further copies are in there.
	ldmTail = 1 << 20
)

// isDynamic reports the partition types of Windows' logical disk manager.
func isDynamic(kind string) bool {
	return kind == ldmMBR || kind == ldmMetadataGUID || kind == ldmDataGUID
}

// dynamic warns of dynamic disks, once for the disk.
func (d *detector) dynamic() {
	of := ""
	for _, p := range d.report.Partitions {
		if !isDynamic(p.Type) {
			continue
		}
		if group := d.ldmGroup(); group != "" {
			of = ", of the group " + group
		}
		d.warn("dynamic-disk", "the disk is one of Windows' dynamic disks%s: volumes that are more than one piece are not looked into, "+
			"and a Windows on one cannot be converted; move all disks of the group together", of)
		return
	}
}

// ldmGroup reads the name of the disk group from a private header.
func (d *detector) ldmGroup() string {
	sector := make([]byte, disk.SectorSize)
	if d.report.Table == MBR && d.disk.read(sector, privHeadSector*disk.SectorSize) {
		if group := parsePrivHead(sector); group != "" {
			return group
		}
	}
	end := d.disk.size
	for _, p := range d.report.Partitions {
		if p.Type == ldmMetadataGUID && p.Len > 0 && p.Off <= end-p.Len {
			end = p.Off + p.Len
			break
		}
	}
	tail := make([]byte, min(ldmTail, end)/disk.SectorSize*disk.SectorSize)
	if !d.disk.read(tail, end-int64(len(tail))) {
		return ""
	}
	for sector := range sectors(tail) {
		if group := parsePrivHead(sector); group != "" {
			return group
		}
	}
	return ""
}

// sectors yields the sectors of b.
func sectors(b []byte) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(b) >= disk.SectorSize && yield(b[:disk.SectorSize]) {
			b = b[disk.SectorSize:]
		}
	}
}

// parsePrivHead returns the disk group's name, empty where sector is no private header.
// The layout is that of the Linux-NTFS project's "LDM documentation"; its numbers are
// big-endian, and the major version is 2.
func parsePrivHead(sector []byte) string {
	if !bytes.HasPrefix(sector, []byte("PRIVHEAD")) || binary.BigEndian.Uint16(sector[0xc:]) != 2 {
		return ""
	}
	name, _, _ := bytes.Cut(sector[0xf0:0xf0+31], []byte{0})
	return strings.ToValidUTF8(string(name), "?")
}
