// Package lvm reads LVM2 volume groups and their logical volumes on untrusted physical volumes.
//
// A PV is the metadata of one partition or disk: its label, and the text that describes the whole group.
// Assemble makes Groups of PVs, each from the newest text. A linear or striped Volume can be read as a disk,
// and written if its PVs can; of other kinds (mirrors, RAID, thin, cache, snapshots) only the name is
// reported.
//
// The work is bounded: a PV takes at most three reads and four MiB of text.
package lvm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/decamp/decamp/internal/guest/budget"
)

const (
	sector      = 512                // bytes of a sector in LVM's metadata
	maxText     = 4 << 20            // bytes of one group's description; lvm2 creates areas of one MiB
	areaMagic   = " LVM2 x[5A%r0N*>" // magic number of a metadata area
	areaHeader  = 512                // bytes of a metadata area before the text
	crcBase     = 0xf597a6cf         // initial value of checksums
	uuidLen     = 32                 // characters of a UUID without dashes
	maxAreas    = 8                  // metadata areas of one physical volume
	labelSector = 4                  // number of sectors that may contain the label
)

// A PV is a physical volume with the metadata on it.
type PV struct {
	UUID  string        // 32 characters, without dashes
	group *text         // description of the group; nil if another physical volume has it
	r     budget.Reader // content of the physical volume
}

// An area is a range of bytes.
type area struct{ off, size int64 }

// ReadPV reads the label of the physical volume that begins at r's first byte, and the newest text of
// its metadata areas. It fails if all texts are damaged, but not if none exists.
func ReadPV(r budget.Reader) (PV, error) {
	head := make([]byte, labelSector*sector)
	if _, err := r.ReadAt(head, 0); err != nil {
		return PV{}, err
	}
	label, err := findLabel(head)
	if err != nil {
		return PV{}, err
	}
	pv := PV{UUID: string(label[:uuidLen]), r: r}
	var failed error
	// The areas follow the UUID and the size of the device.
	for _, a := range metadataAreas(label[uuidLen+8:]) {
		t, err := readArea(r, a)
		if err != nil {
			failed = err
			continue
		}
		if t != nil && (pv.group == nil || t.numberValue("seqno") > pv.group.numberValue("seqno")) {
			pv.group = t
		}
	}
	if pv.group == nil && failed != nil {
		return PV{}, failed
	}
	return pv, nil
}

// findLabel returns the physical volume header that the label refers to, up to the end of the sector.
func findLabel(head []byte) ([]byte, error) {
	for n := range labelSector {
		s := head[n*sector:][:sector]
		if string(s[:8]) != "LABELONE" || string(s[24:32]) != "LVM2 001" {
			continue
		}
		// Offsets in a label: 8 its sector, 16 checksum of the rest, 20 offset of the content, 24 type.
		if at := le64(s, 8); at != int64(n) {
			return nil, fmt.Errorf("the label in sector %d is that of sector %d", n, at)
		}
		if got, want := metadataChecksum(s[20:]), binary.LittleEndian.Uint32(s[16:]); got != want {
			return nil, fmt.Errorf("checksum of the label is %08x, expected %08x", got, want)
		}
		off := binary.LittleEndian.Uint32(s[20:])
		if off < 32 || off > sector-uuidLen-8-2*16 {
			return nil, fmt.Errorf("PV header at byte %d of the label", off)
		}
		return s[off:], nil
	}
	return nil, errors.New("no LVM2 label in the first four sectors")
}

// metadataAreas returns the metadata areas of a physical volume header. list contains two lists, each
// terminated by zeros: data areas and metadata areas.
func metadataAreas(list []byte) []area {
	var areas []area
	lists := 0
	for len(list) >= 16 && lists < 2 && len(areas) < maxAreas {
		a := area{le64(list, 0), le64(list, 8)}
		list = list[16:]
		switch {
		case a.off == 0:
			lists++
		case lists == 1:
			areas = append(areas, a)
		}
	}
	return areas
}

// readArea returns the newest text of a metadata area; nil if it has none or is marked as ignored.
func readArea(r budget.Reader, a area) (*text, error) {
	h := make([]byte, areaHeader)
	if _, err := r.ReadAt(h, a.off); err != nil {
		return nil, fmt.Errorf("metadata area at byte %d: %w", a.off, err)
	}
	if string(h[4:20]) != areaMagic {
		return nil, fmt.Errorf("metadata area at byte %d without its magic number", a.off)
	}
	if got, want := metadataChecksum(h[4:]), binary.LittleEndian.Uint32(h); got != want {
		return nil, fmt.Errorf("checksum of the metadata area is %08x, expected %08x", got, want)
	}
	// Offsets in the header: 32 size of the area, 40 offset of the text, 48 its length, 56 its checksum, 60 flags.
	off, length := le64(h, 40), le64(h, 48)
	size := le64(h, 32)
	const ignored = 1
	switch {
	case off == 0 || binary.LittleEndian.Uint32(h[60:])&ignored != 0:
		return nil, nil
	case size <= areaHeader || size > 1<<40 || off < areaHeader || off >= size || length <= 0 || length > min(maxText, size-areaHeader):
		return nil, fmt.Errorf("%d bytes of metadata at byte %d of an area of %d", length, off, size)
	}
	return readText(r, a.off, area{off, length}, size, binary.LittleEndian.Uint32(h[56:]))
}

// readText reads a text from the ring buffer that follows the header of the area at offset base. at is
// the range within the area, size the size of the area, and sum the expected checksum. It returns the
// section of the volume group.
func readText(r budget.Reader, base int64, at area, size int64, sum uint32) (*text, error) {
	if err := r.Budget().Hold(at.size); err != nil { // values refer to the memory of the text
		return nil, err
	}
	data := make([]byte, at.size)
	// A text that reaches the end of the ring continues after the header.
	first := min(at.size, size-at.off)
	if _, err := r.ReadAt(data[:first], base+at.off); err != nil {
		return nil, err
	}
	if first < at.size {
		if _, err := r.ReadAt(data[first:], base+areaHeader); err != nil {
			return nil, err
		}
	}
	if got := metadataChecksum(data); got != sum {
		return nil, fmt.Errorf("checksum of the metadata is %08x, expected %08x", got, sum)
	}
	t, err := parseText(r.Budget(), string(bytes.TrimRight(data, "\x00")))
	if err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	for _, name := range t.order {
		if group := t.sections[name]; group != nil && group.sections["physical_volumes"] != nil {
			group.name = name
			return group, nil
		}
	}
	return nil, errors.New("metadata without a volume group")
}

// metadataChecksum returns LVM's CRC-32, which has another initial value than the standard one and is
// not inverted.
func metadataChecksum(p []byte) uint32 { return ^crc32.Update(^uint32(crcBase), crc32.IEEETable, p) }

// stripDashes returns a UUID without dashes, as in a label.
func stripDashes(uuid string) string { return strings.ReplaceAll(uuid, "-", "") }

// le64 reads a little-endian number. Numbers that exceed int64 become the largest one, which fails all
// checks.
func le64(p []byte, at int) int64 {
	return int64(min(binary.LittleEndian.Uint64(p[at:]), 1<<63-1))
}
