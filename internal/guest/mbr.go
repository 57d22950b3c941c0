package guest

import (
	"encoding/binary"
	"fmt"

	"github.com/decamp/decamp/internal/disk"
)

// maxLogical bounds the chain of extended boot records; Linux shows 60 of them at most.
const maxLogical = 60

// An mbrEntry is one of the four lines of a boot record.
type mbrEntry struct {
	active bool
	kind   byte
	start  int64 // sectors
	count  int64 // sectors
}

func (e mbrEntry) extended() bool { return e.kind == 0x05 || e.kind == 0x0f || e.kind == 0x85 }

// parseMBR reads the partition lines of a boot record. ok is false where the sector is
// none: no signature, a status byte that is neither 0 nor 80, or no line in use.
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

// isProtective reports an MBR that stands before a GPT.
func isProtective(entries [4]mbrEntry) bool {
	for _, e := range entries {
		if e.kind == 0xee {
			return true
		}
	}
	return false
}

// hasCode reports whether a boot sector starts with anything.
func hasCode(sector []byte) bool {
	for _, b := range sector[:440] {
		if b != 0 {
			return true
		}
	}
	return false
}

func (d *detector) mbr(entries [4]mbrEntry) {
	signature := make([]byte, 4)
	d.disk.read(signature, 440)
	id := binary.LittleEndian.Uint32(signature)
	for i, e := range entries {
		if e.kind != 0 && e.count != 0 {
			d.addMBR(i+1, e, id)
		}
	}
	number := 5
	for _, e := range entries {
		if e.extended() {
			number = d.logical(e.start, number, id)
		}
	}
}

// logical follows the chain of boot records in an extended partition: each has one
// partition, relative to itself, and the way to the next, relative to the first.
func (d *detector) logical(base int64, number int, id uint32) int {
	sector := make([]byte, disk.SectorSize)
	seen := map[int64]bool{}
	for at := base; ; {
		if seen[at] || len(seen) == maxLogical || !d.disk.read(sector, at*disk.SectorSize) {
			d.warn("logical-partitions", "the chain of logical partitions is damaged at sector %d", at)
			return number
		}
		seen[at] = true
		entries, ok := parseMBR(sector)
		if !ok {
			return number
		}
		if e := entries[0]; e.kind != 0 && e.count != 0 && !e.extended() {
			e.start += at
			d.addMBR(number, e, id)
			number++
		}
		if !entries[1].extended() {
			return number
		}
		at = base + entries[1].start
	}
}

func (d *detector) addMBR(number int, e mbrEntry, id uint32) {
	d.report.Partitions = append(d.report.Partitions, Partition{
		Number: number, Off: e.start * disk.SectorSize, Len: e.count * disk.SectorSize,
		Type: fmt.Sprintf("%02x", e.kind), UUID: fmt.Sprintf("%08x-%02d", id, number), Active: e.active,
	})
}
