// Package ldmtest writes databases of dynamic disks for tests, in the form that Windows
// Server 2003 and 2008 write.
package ldmtest

import (
	"encoding/binary"
	"fmt"
)

const (
	sector    = 512 // bytes of a sector
	blockSize = 128 // bytes of a block of the database
	configAt  = 17  // sector of the database at which its records begin
)

// Group and GroupID identify the group of all disks in this package.
const (
	Group   = "ACCOUNTS-Dg0"                         // name of the disk group
	GroupID = "03c0c4fc-0000-4000-8000-000000000000" // GUID of the disk group
)

// A Part is a range of sectors of a disk.
type Part struct {
	Disk        int // number of the disk, from 0
	Start, Size int64
}

// A Component is one copy of a volume.
type Component struct {
	Kind  byte   // 1 striped, 2 parts one after the other, 3 RAID 5
	Parts []Part // parts in the order of the component
}

// A Volume is a volume of the group.
type Volume struct {
	Name, Hint string
	Components []Component // copies; more than one make a mirror
}

// A Disk is one disk of the group with the positions of its metadata, in sectors.
type Disk struct {
	Number int   // number of the disk, from 0
	Head   int64 // position of the private header
	Data   int64 // position that parts are relative to
	Base   int64 // position of the database
}

// diskID returns the GUID of a disk.
func diskID(number int) string { return fmt.Sprintf("%08x-1111-4222-8333-444444444444", number+1) }

// Write writes the private header of d and the database of its group to image, the content of the disk.
func Write(image []byte, d Disk, volumes []Volume) {
	d.writeHeader(image[d.Head*sector:])
	base := image[d.Base*sector:]
	for _, at := range []int{1, 2} {
		writeContents(base[at*sector:])
	}
	w := &writer{to: base[(configAt+1)*sector:], sequence: 4}
	w.writeGroup()
	for number := range 4 {
		w.writeDisk(number)
	}
	for _, v := range volumes {
		w.writeVolume(v)
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

// writeHeader writes the private header to b.
func (d Disk) writeHeader(b []byte) {
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

// writeContents writes a table of contents, which locates records and log.
func writeContents(b []byte) {
	copy(b, "TOCBLOCK")
	copy(b[0x24:], "config")
	binary.BigEndian.PutUint64(b[0x2e:], configAt)
	binary.BigEndian.PutUint64(b[0x36:], 1481)
	copy(b[0x46:], "log")
	binary.BigEndian.PutUint64(b[0x50:], configAt+1481)
	binary.BigEndian.PutUint64(b[0x58:], 224)
}

// A writer writes records to consecutive blocks.
type writer struct {
	to       []byte     // space for the next block
	sequence uint32     // number of the next block
	id       uint64     // last ID that was assigned
	kinds    [16]uint32 // number of records of each kind
}

// writeRecord writes one record to as many blocks as it requires.
func (w *writer) writeRecord(flags, kind byte, fields ...[]byte) {
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

// nextID assigns an ID. Disks have 1 to 4, and the group has 9.
func (w *writer) nextID() uint64 {
	w.id++
	return w.id
}

// encodeNumber returns a big-endian number of minimal length, preceded by its length.
func encodeNumber(n uint64) []byte {
	b := binary.BigEndian.AppendUint64(nil, n)
	for len(b) > 1 && b[0] == 0 {
		b = b[1:]
	}
	return append([]byte{byte(len(b))}, b...)
}

// encodeText returns a text preceded by its length.
func encodeText(s string) []byte { return append([]byte{byte(len(s))}, s...) }

// zeroBytes returns n zeros.
func zeroBytes(n int) []byte { return make([]byte, n) }

// writeGroup writes the record of the group.
func (w *writer) writeGroup() {
	w.writeRecord(0, 0x35, encodeNumber(9), encodeText(Group), encodeText(GroupID), zeroBytes(12), encodeNumber(0), encodeNumber(0))
}

// writeDisk writes the record of a disk. Its name is so long that the record has two blocks.
func (w *writer) writeDisk(n int) {
	w.writeRecord(0, 0x34, encodeNumber(w.nextID()), encodeText(fmt.Sprintf("Disk%d", n+1)), encodeText(diskID(n)), encodeText(`SCSI\Disk&Ven_VMware&Prod_Virtual_disk&Rev_2.0\4&3c2b1a00&0&000100`),
		zeroBytes(12))
	if n == 3 {
		w.id = 9
	}
}

// writeVolume writes the records of a volume, its components and its partitions.
func (w *writer) writeVolume(v Volume) {
	volume, size, kind, flavour := w.nextID(), int64(0), "gen", byte(3)
	for _, c := range v.Components {
		size = 0
		for _, p := range c.Parts {
			size += p.Size
		}
		if c.Kind == 3 {
			size, kind, flavour = c.Parts[0].Size*int64(len(c.Parts)-1), "raid5", 4
		}
	}
	state := append([]byte("ACTIVE"), zeroBytes(8)...)
	w.writeRecord(2, 0x51, encodeNumber(volume), encodeText(v.Name), encodeText(kind), encodeText(""), state, []byte{flavour, 1, 1, 0, 0, 0, 0x11},
		encodeNumber(uint64(len(v.Components))), zeroBytes(16), encodeNumber(uint64(size)), zeroBytes(4), []byte{7}, zeroBytes(16), encodeText(v.Hint))
	for i, c := range v.Components {
		w.writeComponent(fmt.Sprintf("%s-%02d", v.Name, i+1), volume, c)
	}
}

// writeComponent writes the records of a component and of its partitions.
func (w *writer) writeComponent(name string, volume uint64, c Component) {
	component, flags, columns := w.nextID(), byte(0), []byte(nil)
	if c.Kind != 2 {
		flags, columns = 0x10, append(encodeNumber(128), encodeNumber(uint64(len(c.Parts)))...)
	}
	w.writeRecord(flags, 0x32, encodeNumber(component), encodeText(name), encodeText("ACTIVE"), []byte{c.Kind}, zeroBytes(4), encodeNumber(uint64(len(c.Parts))), zeroBytes(16),
		encodeNumber(volume), zeroBytes(1), columns)
	offset := int64(0)
	for i, p := range c.Parts {
		place := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(p.Start)), uint64(offset))
		flags, column := byte(0), []byte(nil)
		if c.Kind != 2 && i > 0 {
			flags, column = 8, encodeNumber(uint64(i))
		}
		w.writeRecord(flags, 0x33, encodeNumber(w.nextID()), encodeText(fmt.Sprintf("%s-%02d", name, i+1)), zeroBytes(12), place, encodeNumber(uint64(p.Size)), encodeNumber(component),
			encodeNumber(uint64(p.Disk+1)), column)
		if offset += p.Size; c.Kind != 2 {
			offset = 0
		}
	}
}
