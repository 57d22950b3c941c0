package ldm

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
)

// Kinds of records; the other half of their byte is a revision.
const (
	kindVolume    = 1
	kindComponent = 2
	kindPartition = 3
	kindDisk      = 4
)

// records are those of a group that are needed here, by their id.
type records struct {
	volumes    map[uint64]volume
	components map[uint64]component
	partitions []partition
	disks      map[uint64]string // GUIDs
}

type volume struct {
	name, hint string
	size       uint64 // sectors
}

type component struct {
	layout byte
	volume uint64
}

type partition struct {
	start, size     uint64 // sectors
	component, disk uint64
}

// A fragment is one block of a record: records longer than a block have several.
type fragment struct {
	record uint32
	index  uint16
	data   []byte
}

// parseDatabase reads the records of a database.
func parseDatabase(b []byte) (*records, error) {
	const most = 8 << 10  // blocks of the smallest size that fit
	at := 17 * sectorSize // where Windows has it
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
	return assemble(all)
}

// assemble joins fragments, which may be anywhere, and parses the records.
func assemble(all []fragment) (*records, error) {
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
		if err := out.add(b); err != nil {
			return nil, fmt.Errorf("record %d: %w", record, err)
		}
	}
	return out, nil
}

// add reads one record. One that Windows was about to make is not one yet.
func (out *records) add(b []byte) error {
	const unborn = 1
	if binary.BigEndian.Uint16(b) == unborn {
		return nil
	}
	f := &fields{b: b[8:]}
	flags, kind := b[2], b[3]
	id, name := f.number(), f.text()
	switch kind & 15 {
	case kindVolume:
		out.volumes[id] = f.volume(name, flags)
	case kindComponent:
		out.components[id] = f.component()
	case kindPartition:
		out.partitions = append(out.partitions, f.partition())
	case kindDisk:
		out.disks[id] = f.disk(kind >> 4)
	default:
		return nil // the group itself, and unknown records
	}
	return f.err
}

// fields reads a record from its beginning; the first error stays.
type fields struct {
	b   []byte
	err error
}

// take returns the next n bytes.
func (f *fields) take(n int) []byte {
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

// long reads bytes that one before them counts.
func (f *fields) long() []byte { return f.take(int(f.take(1)[0])) }

func (f *fields) text() string { return padded(f.long()) }

func (f *fields) number() uint64 {
	b := f.long()
	if len(b) > 8 && f.err == nil {
		f.err = fmt.Errorf("%w: a number of %d bytes", errCorrupt, len(b))
	}
	n := uint64(0)
	for _, c := range b {
		n = n<<8 | uint64(c)
	}
	return n
}

func (f *fields) volume(name string, flags byte) volume {
	const (
		hasHint = 2
		hasSize = 0x80
		hasID   = 8
		hasID2  = 0x20
	)
	v := volume{name: name}
	f.long() // "gen" or "raid5": the components tell it better
	f.long()
	f.take(14 + 7) // its state, its kind, its number, flags
	f.number()     // components
	f.take(16)     // transactions
	v.size = f.number()
	f.take(4 + 1 + 16) // a type of partition, a GUID
	for _, has := range []byte{hasID, hasID2, hasSize} {
		if flags&has != 0 {
			f.long()
		}
	}
	if flags&hasHint != 0 {
		v.hint = f.text()
	}
	return v
}

func (f *fields) component() component {
	f.long() // its state
	c := component{layout: f.take(1)[0]}
	f.take(4)
	f.number() // partitions
	f.take(16) // transactions
	c.volume = f.number()
	return c
}

func (f *fields) partition() partition {
	f.take(12) // transactions
	p := partition{start: binary.BigEndian.Uint64(f.take(8))}
	f.take(8) // skips the offset in the volume
	p.size, p.component, p.disk = f.number(), f.number(), f.number()
	return p
}

// disk returns the GUID of a disk as private headers spell it.
func (f *fields) disk(revision byte) string {
	if revision < 4 {
		return f.text()
	}
	h := hex.EncodeToString(f.take(16))
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
