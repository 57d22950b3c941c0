// Package ldmtest writes databases of dynamic disks for tests, in the form that Windows
// Server 2003 and 2008 write.
package ldmtest

import (
	"encoding/binary"
	"fmt"
)

const (
	sector    = 512
	blockSize = 128
	configAt  = 17 // the sector of the database that its records begin in
)

// Group and GroupID name the group of all disks here.
const (
	Group   = "ACCOUNTS-Dg0"
	GroupID = "03c0c4fc-0000-4000-8000-000000000000"
)

// A Part is a row of sectors of a disk; disks are numbered from 0.
type Part struct {
	Disk        int
	Start, Size int64
}

// A Component is a mirror of a volume: 1 is striped, 2 is one part after the other, 3 is
// RAID 5.
type Component struct {
	Kind  byte
	Parts []Part
}

// A Volume is a volume of the group.
type Volume struct {
	Name, Hint string
	Components []Component
}

// A Disk is one disk of the group and where things are on it, in sectors.
type Disk struct {
	Number int
	Head   int64 // the private header
	Data   int64 // base of the offsets of parts
	Base   int64 // the database
}

// diskID is the GUID of a disk.
func diskID(number int) string { return fmt.Sprintf("%08x-1111-4222-8333-444444444444", number+1) }

// Write writes the private header of a disk and the database of its group.
func Write(image []byte, d Disk, volumes []Volume) {
	d.header(image[d.Head*sector:])
	base := image[d.Base*sector:]
	for _, at := range []int{1, 2} {
		contents(base[at*sector:])
	}
	w := &writer{to: base[(configAt+1)*sector:], sequence: 4}
	w.group()
	for number := range 4 {
		w.disk(number)
	}
	for _, v := range volumes {
		w.volume(v)
	}
	head := base[configAt*sector:]
	copy(head, "VMDB")
	binary.BigEndian.PutUint32(head[4:], 5924)
	binary.BigEndian.PutUint32(head[8:], blockSize)
	binary.BigEndian.PutUint32(head[12:], sector)
	head[0x11], head[0x13], head[0x15] = 1, 4, 10
	copy(head[0x16:], Group)
	copy(head[0x35:], GroupID)
	for i, n := range []uint32{w.kinds[1], w.kinds[2], w.kinds[3], w.kinds[4]} {
		binary.BigEndian.PutUint32(head[0x85+4*i:], n) // committed
		binary.BigEndian.PutUint32(head[0xa1+4*i:], n) // pending
	}
}

func (d Disk) header(b []byte) {
	put := binary.BigEndian.PutUint64
	copy(b, "PRIVHEAD")
	b[0xd], b[0xf] = 2, 12
	copy(b[0x30:], diskID(d.Number))
	copy(b[0x70:], GroupID)
	copy(b[0xb0:], GroupID)
	copy(b[0xf0:], Group)
	put(b[0x11b:], uint64(d.Data))
	put(b[0x123:], uint64(d.Base-d.Data))
	put(b[0x12b:], uint64(d.Base))
	put(b[0x133:], 2048)
}

// contents writes a table of contents.
func contents(b []byte) {
	copy(b, "TOCBLOCK")
	copy(b[0x24:], "config")
	binary.BigEndian.PutUint64(b[0x2e:], configAt)
	binary.BigEndian.PutUint64(b[0x36:], 1481)
	copy(b[0x46:], "log")
	binary.BigEndian.PutUint64(b[0x50:], configAt+1481)
	binary.BigEndian.PutUint64(b[0x58:], 224)
}

// A writer writes records one after the other.
type writer struct {
	to       []byte
	sequence uint32
	id       uint64 // the last that was given
	kinds    [16]uint32
}

// record writes one record, in as many blocks as it needs.
func (w *writer) record(flags, kind byte, fields ...[]byte) {
	b := []byte{0, 0, flags, kind, 0, 0, 0, 0}
	w.kinds[kind&15]++
	for _, f := range fields {
		b = append(b, f...)
	}
	binary.BigEndian.PutUint32(b[4:], uint32(len(b)-8))
	const room = blockSize - 16
	record, count := w.sequence, (len(b)+room-1)/room
	for i := range count {
		copy(w.to, "VBLK")
		binary.BigEndian.PutUint32(w.to[4:], w.sequence)
		binary.BigEndian.PutUint32(w.to[8:], record)
		binary.BigEndian.PutUint16(w.to[12:], uint16(i))
		binary.BigEndian.PutUint16(w.to[14:], uint16(count))
		copy(w.to[16:blockSize], b[i*room:])
		w.to, w.sequence = w.to[blockSize:], w.sequence+1
	}
}

// next gives an id. Those of disks are 1 to 4, and that of the group is 9.
func (w *writer) next() uint64 {
	w.id++
	return w.id
}

func number(n uint64) []byte {
	b := binary.BigEndian.AppendUint64(nil, n)
	for len(b) > 1 && b[0] == 0 {
		b = b[1:]
	}
	return append([]byte{byte(len(b))}, b...)
}

func text(s string) []byte { return append([]byte{byte(len(s))}, s...) }

func zeros(n int) []byte { return make([]byte, n) }

func (w *writer) group() {
	w.record(0, 0x35, number(9), text(Group), text(GroupID), zeros(12), number(0), number(0))
}

// disk writes one with a name so long that the record has two blocks.
func (w *writer) disk(n int) {
	w.record(0, 0x34, number(w.next()), text(fmt.Sprintf("Disk%d", n+1)), text(diskID(n)), text(`SCSI\Disk&Ven_VMware&Prod_Virtual_disk&Rev_2.0\4&3c2b1a00&0&000100`),
		zeros(12))
	if n == 3 {
		w.id = 9
	}
}

func (w *writer) volume(v Volume) {
	volume, size, kind, flavour := w.next(), int64(0), "gen", byte(3)
	for _, c := range v.Components {
		size = 0
		for _, p := range c.Parts {
			size += p.Size
		}
		if c.Kind == 3 {
			size, kind, flavour = c.Parts[0].Size*int64(len(c.Parts)-1), "raid5", 4
		}
	}
	state := append([]byte("ACTIVE"), zeros(8)...)
	w.record(2, 0x51, number(volume), text(v.Name), text(kind), text(""), state, []byte{flavour, 1, 1, 0, 0, 0, 0x11},
		number(uint64(len(v.Components))), zeros(16), number(uint64(size)), zeros(4), []byte{7}, zeros(16), text(v.Hint))
	for i, c := range v.Components {
		w.component(fmt.Sprintf("%s-%02d", v.Name, i+1), volume, c)
	}
}

func (w *writer) component(name string, volume uint64, c Component) {
	component, flags, columns := w.next(), byte(0), []byte(nil)
	if c.Kind != 2 {
		flags, columns = 0x10, append(number(128), number(uint64(len(c.Parts)))...)
	}
	w.record(flags, 0x32, number(component), text(name), text("ACTIVE"), []byte{c.Kind}, zeros(4), number(uint64(len(c.Parts))), zeros(16),
		number(volume), zeros(1), columns)
	offset := int64(0)
	for i, p := range c.Parts {
		place := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(p.Start)), uint64(offset))
		flags, column := byte(0), []byte(nil)
		if c.Kind != 2 && i > 0 {
			flags, column = 8, number(uint64(i))
		}
		w.record(flags, 0x33, number(w.next()), text(fmt.Sprintf("%s-%02d", name, i+1)), zeros(12), place, number(uint64(p.Size)), number(component),
			number(uint64(p.Disk+1)), column)
		if offset += p.Size; c.Kind != 2 {
			offset = 0
		}
	}
}
