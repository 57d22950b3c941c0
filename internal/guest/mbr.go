package guest

import (
	"encoding/binary"
	"fmt"

	"github.com/decamp/decamp/internal/disk"
)

// maxLogical limits the chain of extended boot records; Linux supports at most 60 logical partitions.
const maxLogical = 60

// An mbrEntry is one of the four partition entries of a boot record.
type mbrEntry struct {
	active bool  // the BIOS boots from this partition
	kind   byte  // type; 0 means that the entry is unused
	start  int64 // first sector; in extended boot records it is relative
	count  int64 // length in sectors
}

// isExtended reports whether the entry refers to a chain of extended boot records.
func (e mbrEntry) isExtended() bool { return e.kind == 0x05 || e.kind == 0x0f || e.kind == 0x85 }

// parseMBR parses the partition entries of a boot record. ok is false if the sector is not a boot
// record:
// it has no signature, a status byte other than 0 and 0x80, or no used entry.
func parseMBR(sector []byte) (entries [4]mbrEntry, ok bool) {
	if len(sector) < disk.SectorSize || sector[510] != 0x55 || sector[511] != 0xaa {
		return entries, false
	}
	for i := range entries {
		line := sector[446+16*i:][:16]
		if line[0]&0x7f != 0 {
			return entries, false
		}
		entries[i] = mbrEntry{
			active: line[0] == 0x80, kind: line[4],
			start: int64(binary.LittleEndian.Uint32(line[8:])), count: int64(binary.LittleEndian.Uint32(line[12:])),
		}
		ok = ok || entries[i].kind != 0
	}
	return entries, ok
}

// isProtective reports whether an MBR only protects a GPT: it has a partition of type 0xEE.
func isProtective(entries [4]mbrEntry) bool {
	for _, e := range entries {
		if e.kind == 0xee {
			return true
		}
	}
	return false
}

// hasCode reports whether the code area of a boot sector is not empty.
func hasCode(sector []byte) bool {
	for _, b := range sector[:440] {
		if b != 0 {
			return true
		}
	}
	return false
}

// readMBR adds the primary and logical partitions. The logical ones are numbered from 5.
func (d *detector) readMBR(entries [4]mbrEntry) {
	// The disk signature at offset 440 is part of Linux' PARTUUID.
	signature := make([]byte, 4)
	d.disk.readFull(signature, 440)
	id := binary.LittleEndian.Uint32(signature)
	for i, e := range entries {
		if e.kind != 0 && e.count != 0 {
			d.addPartition(i+1, e, id)
		}
	}
	number := 5
	for _, e := range entries {
		if e.isExtended() {
			number = d.readLogical(e.start, number, id)
		}
	}
}

// readLogical adds the logical partitions of an extended partition that begins at sector base. It
// returns the number for the next logical partition. Each boot record of the chain has one
// partition, relative to itself, and a link to the next record, relative to base. It warns if the
// chain is damaged or a loop.
func (d *detector) readLogical(base int64, number int, id uint32) int {
	sector := make([]byte, disk.SectorSize)
	seen := map[int64]bool{}
	for at := base; ; {
		if seen[at] || len(seen) == maxLogical || !d.disk.readFull(sector, at*disk.SectorSize) {
			d.warn("logical-partitions", "the chain of logical partitions is damaged at sector %d", at)
			return number
		}
		seen[at] = true
		entries, ok := parseMBR(sector)
		if !ok {
			return number
		}
		// The first entry is the partition, the second one links to the next record.
		if e := entries[0]; e.kind != 0 && e.count != 0 && !e.isExtended() {
			e.start += at
			d.addPartition(number, e, id)
			number++
		}
		if !entries[1].isExtended() {
			return number
		}
		at = base + entries[1].start
	}
}

// addPartition adds an MBR partition to the report. Like Linux it derives the UUID from the disk
// signature id and the number.
func (d *detector) addPartition(number int, e mbrEntry, id uint32) {
	d.report.Partitions = append(d.report.Partitions, Partition{
		Number: number, Off: e.start * disk.SectorSize, Len: e.count * disk.SectorSize,
		Type: fmt.Sprintf("%02x", e.kind), UUID: fmt.Sprintf("%08x-%02d", id, number), Active: e.active,
	})
}
