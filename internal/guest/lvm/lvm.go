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
	sector      = 512
	maxText     = 4 << 20 // bytes of one group's description; lvm2 makes areas of one MiB
	areaMagic   = " LVM2 x[5A%r0N*>"
	areaHeader  = 512
	crcBase     = 0xf597a6cf
	uuidLen     = 32
	maxAreas    = 8
	labelSector = 4 // the label is in one of so many first sectors
)

// A PV is a physical volume.
type PV struct {
	UUID  string // 32 characters, without dashes
	group *text  // group of the PV; nil if it has no description: another PV of its group has it
	r     budget.Reader
}

// An area is a part of a PV, in bytes.
type area struct{ off, size int64 }

// ReadPV reads the label of the PV that starts at r's first byte, and the newest text of
// its metadata areas. A damaged text is an error; a PV without one is not.
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
	for _, a := range metadataAreas(label[uuidLen+8:]) {
		t, err := readArea(r, a)
		if err != nil {
			failed = err
			continue
		}
		if t != nil && (pv.group == nil || t.number("seqno") > pv.group.number("seqno")) {
			pv.group = t
		}
	}
	if pv.group == nil && failed != nil {
		return PV{}, failed
	}
	return pv, nil
}

// findLabel returns the PV header that a label points to, to the end of its sector.
func findLabel(head []byte) ([]byte, error) {
	for n := range labelSector {
		s := head[n*sector:][:sector]
		if string(s[:8]) != "LABELONE" || string(s[24:32]) != "LVM2 001" {
			continue
		}
		if at := le64(s, 8); at != int64(n) {
			return nil, fmt.Errorf("the label in sector %d is that of sector %d", n, at)
		}
		if got, want := checksum(s[20:]), binary.LittleEndian.Uint32(s[16:]); got != want {
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

// metadataAreas reads two lists, each ended by zeros: the areas of data, and those of
// metadata.
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

// readArea returns the newest text of a metadata area, nil if it has none.
func readArea(r budget.Reader, a area) (*text, error) {
	h := make([]byte, areaHeader)
	if _, err := r.ReadAt(h, a.off); err != nil {
		return nil, fmt.Errorf("metadata area at byte %d: %w", a.off, err)
	}
	if string(h[4:20]) != areaMagic {
		return nil, fmt.Errorf("metadata area at byte %d without its magic number", a.off)
	}
	if got, want := checksum(h[4:]), binary.LittleEndian.Uint32(h); got != want {
		return nil, fmt.Errorf("checksum of the metadata area is %08x, expected %08x", got, want)
	}
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

// readText reads a description out of the ring that follows an area's header.
func readText(r budget.Reader, base int64, at area, size int64, sum uint32) (*text, error) {
	if err := r.Budget().Hold(at.size); err != nil { // values are parts of the text
		return nil, err
	}
	data := make([]byte, at.size)
	first := min(at.size, size-at.off)
	if _, err := r.ReadAt(data[:first], base+at.off); err != nil {
		return nil, err
	}
	if first < at.size {
		if _, err := r.ReadAt(data[first:], base+areaHeader); err != nil {
			return nil, err
		}
	}
	if got := checksum(data); got != sum {
		return nil, fmt.Errorf("checksum of the metadata is %08x, expected %08x", got, sum)
	}
	t, err := parse(r.Budget(), string(bytes.TrimRight(data, "\x00")))
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

// checksum is CRC-32 with LVM's own start, and not inverted at the end.
func checksum(p []byte) uint32 { return ^crc32.Update(^uint32(crcBase), crc32.IEEETable, p) }

// bare returns a UUID without its dashes, as the label has it.
func bare(uuid string) string { return strings.ReplaceAll(uuid, "-", "") }

// le64 reads a number that must fit int64; one that does not becomes the largest, which
// no check lets through.
func le64(p []byte, at int) int64 {
	return int64(min(binary.LittleEndian.Uint64(p[at:]), 1<<63-1))
}
