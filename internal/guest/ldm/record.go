package ldm

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
)

// Kinds of records in the lower half of a byte; the upper half is a revision.
const (
	kindVolume    = 1 // volume
	kindComponent = 2 // component: one copy of a volume
	kindPartition = 3 // partition: one piece of a component
	kindDisk      = 4 // disk of the group
)

// records contains the records of a group that are required here, by their ID.
type records struct {
	volumes    map[uint64]volume    // volumes by ID
	components map[uint64]component // components by ID
	partitions []partition          // partitions in the order of the database
	disks      map[uint64]string    // GUIDs of disks by ID
}

// A volume is a record of kindVolume.
type volume struct {
	name, hint string
	size       uint64 // size in sectors
}

// A component is a record of kindComponent.
type component struct {
	layout byte   // 1 striped, 2 simple or spanned, 3 RAID 5
	volume uint64 // ID of the volume
}

// A partition is a record of kindPartition.
type partition struct {
	start, size     uint64 // range on the disk in sectors, relative to Header.data
	component, disk uint64 // IDs of the component and of the disk
}

// A fragment is one block of a record. Records that exceed a block have several.
type fragment struct {
	record uint32 // number of the record
	index  uint16 // position within the record, from 0
	data   []byte // content without the block's header
}

// parseDatabase parses the records of a database, which begins at byte 17*512.
func parseDatabase(b []byte) (*records, error) {
	const most = 8 << 10  // number of blocks of the minimum size that fit the database
	at := 17 * sectorSize // position in databases of Windows
	if len(b) < at+sectorSize || string(b[at:at+4]) != "VMDB" {
		return nil, fmt.Errorf("%w: it does not begin at byte %d", errCorrupt, at)
	}
	head := b[at:]
	count, size, first := binary.BigEndian.Uint32(head[4:]), binary.BigEndian.Uint32(head[8:]), binary.BigEndian.Uint32(head[12:])
	if size < 128 || size > sectorSize || int64(first) > int64(len(head)) {
		return nil, fmt.Errorf("%w: blocks of %d bytes at %d", errCorrupt, size, first)
	}
	var all []fragment
	rest := head[first:]
	for range min(count, most) {
		if len(rest) < int(size) {
			break
		}
		block := rest[:size]
		rest = rest[size:]
		if string(block[:4]) == "VBLK" && binary.BigEndian.Uint16(block[14:]) > 0 {
			all = append(all, fragment{binary.BigEndian.Uint32(block[8:]), binary.BigEndian.Uint16(block[12:]), block[16:]})
		}
	}
	return joinFragments(all)
}

// joinFragments joins the fragments of each record, which may be in any order, and parses the records.
func joinFragments(all []fragment) (*records, error) {
	slices.SortStableFunc(all, func(a, b fragment) int {
		return cmp.Or(cmp.Compare(a.record, b.record), cmp.Compare(a.index, b.index))
	})
	out := &records{volumes: map[uint64]volume{}, components: map[uint64]component{}, disks: map[uint64]string{}}
	for len(all) > 0 {
		var b []byte
		record := all[0].record
		for len(all) > 0 && all[0].record == record {
			b, all = append(b, all[0].data...), all[1:]
		}
		if err := out.addRecord(b); err != nil {
			return nil, fmt.Errorf("record %d: %w", record, err)
		}
	}
	return out, nil
}

// addRecord parses one record. It ignores records of unfinished transactions and of other kinds.
func (out *records) addRecord(b []byte) error {
	const unborn = 1
	if binary.BigEndian.Uint16(b) == unborn {
		return nil
	}
	f := &fieldReader{b: b[8:]}
	flags, kind := b[2], b[3]
	id, name := f.takeNumber(), f.takeText()
	switch kind & 15 {
	case kindVolume:
		out.volumes[id] = f.parseVolume(name, flags)
	case kindComponent:
		out.components[id] = f.parseComponent()
	case kindPartition:
		out.partitions = append(out.partitions, f.parsePartition())
	case kindDisk:
		out.disks[id] = f.parseDisk(kind >> 4)
	default:
		return nil // the group itself, and unknown records
	}
	return f.err
}

// A fieldReader reads the fields of a record in order. After an error it returns zeros.
type fieldReader struct {
	b   []byte // rest of the record
	err error  // first error
}

// takeBytes returns the next n bytes; zeros after an error.
func (f *fieldReader) takeBytes(n int) []byte {
	if f.err == nil && n > len(f.b) {
		f.err = fmt.Errorf("%w: a field of %d bytes, where %d are left", errCorrupt, n, len(f.b))
	}
	if f.err != nil {
		return make([]byte, n)
	}
	field := f.b[:n]
	f.b = f.b[n:]
	return field
}

// takeCounted returns a field that is preceded by a byte with its length.
func (f *fieldReader) takeCounted() []byte { return f.takeBytes(int(f.takeBytes(1)[0])) }

// takeText returns a counted field as text.
func (f *fieldReader) takeText() string { return zeroTerminated(f.takeCounted()) }

// takeNumber returns a counted field as a big-endian number of at most 8 bytes.
func (f *fieldReader) takeNumber() uint64 {
	b := f.takeCounted()
	if len(b) > 8 && f.err == nil {
		f.err = fmt.Errorf("%w: a number of %d bytes", errCorrupt, len(b))
	}
	n := uint64(0)
	for _, c := range b {
		n = n<<8 | uint64(c)
	}
	return n
}

// parseVolume reads the fields of a volume after its name. flags determines the optional fields.
func (f *fieldReader) parseVolume(name string, flags byte) volume {
	const (
		hasHint = 2
		hasSize = 0x80
		hasID   = 8
		hasID2  = 0x20
	)
	v := volume{name: name}
	f.takeCounted() // "gen" or "raid5"; the components are more precise
	f.takeCounted()
	f.takeBytes(14 + 7) // state, type, number, flags
	f.takeNumber()      // components
	f.takeBytes(16)     // transactions
	v.size = f.takeNumber()
	f.takeBytes(4 + 1 + 16) // partition type and GUID
	for _, has := range []byte{hasID, hasID2, hasSize} {
		if flags&has != 0 {
			f.takeCounted()
		}
	}
	if flags&hasHint != 0 {
		v.hint = f.takeText()
	}
	return v
}

// parseComponent reads the fields of a component after its name.
func (f *fieldReader) parseComponent() component {
	f.takeCounted() // state of the component
	c := component{layout: f.takeBytes(1)[0]}
	f.takeBytes(4)
	f.takeNumber()  // partitions
	f.takeBytes(16) // transactions
	c.volume = f.takeNumber()
	return c
}

// parsePartition reads the fields of a partition after its name.
func (f *fieldReader) parsePartition() partition {
	f.takeBytes(12) // transactions
	p := partition{start: binary.BigEndian.Uint64(f.takeBytes(8))}
	f.takeBytes(8) // skips the offset in the volume
	p.size, p.component, p.disk = f.takeNumber(), f.takeNumber(), f.takeNumber()
	return p
}

// parseDisk returns the GUID of a disk in the notation of private headers. Before revision 4 it is
// stored as text.
func (f *fieldReader) parseDisk(revision byte) string {
	if revision < 4 {
		return f.takeText()
	}
	h := hex.EncodeToString(f.takeBytes(16))
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
