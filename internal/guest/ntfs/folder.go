package ntfs

import (
	"errors"
	"fmt"
	"slices"
	"unicode/utf16"

	"github.com/decamp/decamp/internal/guest/tree"
)

const (
	maxDepth   = 32       // levels of a folder's tree; it doubles at least with each
	maxIndex   = 64 << 10 // bytes of an index block
	entryDown  = 1        // an entry with a block below it
	entryLast  = 2        // the end of a block's entries, without a name
	nameOnly83 = 2        // the namespace of short names that go with a long one
)

// An index is a folder's tree of names.
type index struct {
	v         *Volume
	blocks    *stream // blocks of names; nil if all names are in the root
	blockSize int64
	unit      int64 // bytes that block numbers count
}

// openIndex returns a folder's tree and the entries of its root.
func (v *Volume) openIndex(r *record) (*index, []byte, error) {
	if !r.folder() {
		return nil, nil, ErrNotFound
	}
	root, err := v.stream(r, typeIndexRoot, "$I30")
	if err != nil {
		return nil, nil, fmt.Errorf("folder: %w", err)
	}
	if len(root.resident) < 32 {
		return nil, nil, fmt.Errorf("%w: the root of a folder has %d bytes", errCorrupt, len(root.resident))
	}
	t := &index{v: v, blockSize: int64(le32(root.resident, 8)), unit: v.clusterSize}
	if t.blockSize < 512 || t.blockSize > maxIndex || t.blockSize&(t.blockSize-1) != 0 {
		return nil, nil, fmt.Errorf("%w: a folder's blocks have %d bytes", errCorrupt, t.blockSize)
	}
	if t.unit > t.blockSize {
		t.unit = 512
	}
	t.blocks, err = v.stream(r, typeIndexAlloc, "$I30")
	if err != nil && !errors.Is(err, ErrNotFound) {
		return nil, nil, fmt.Errorf("folder: %w", err)
	}
	entries, err := entriesOf(root.resident[16:])
	return t, entries, err
}

// entriesOf cuts the entries out of what begins with an index header.
func entriesOf(b []byte) ([]byte, error) {
	at, used := int64(le32(b, 0)), int64(le32(b, 4))
	if at < 16 || at > used || used > int64(len(b)) {
		return nil, fmt.Errorf("%w: a folder's entries are at %d to %d of %d bytes", errCorrupt, at, used, len(b))
	}
	return b[at:used], nil
}

// block reads the entries of block vcn.
func (t *index) block(vcn int64) ([]byte, error) {
	if err := t.v.spend(); err != nil {
		return nil, err
	}
	if t.blocks == nil || vcn < 0 || vcn > t.blocks.size/t.unit {
		return nil, fmt.Errorf("%w: a folder has no block %d", errCorrupt, vcn)
	}
	raw := make([]byte, t.blockSize)
	if err := t.blocks.readAt(raw, vcn*t.unit); err != nil {
		return nil, fmt.Errorf("block %d of a folder: %w", vcn, err)
	}
	if string(raw[:4]) != "INDX" || int64(le64(raw, 16)) != vcn {
		return nil, fmt.Errorf("%w: invalid block %d of a folder", errCorrupt, vcn)
	}
	if err := fixUp(raw); err != nil {
		return nil, err
	}
	return entriesOf(raw[24:])
}

// A line is one entry of a block: a name or the end, and possibly a child block with smaller names.
type line struct {
	ref    uint64   // the file's record
	key    []uint16 // the name
	kind   tree.Kind
	short  bool
	last   bool
	before int64 // the block of all that sorts before it, or -1
}

func (l line) entry() tree.Entry { return tree.Entry{Name: string(utf16.Decode(l.key)), Kind: l.kind} }

// next reads the entry that b begins with and returns the rest.
func next(b []byte) (line, []byte, error) {
	if len(b) < 16 {
		return line{}, nil, fmt.Errorf("%w: a folder's block has no end", errCorrupt)
	}
	length, keyLength, flags := int(le16(b, 8)), int(le16(b, 10)), le16(b, 12)
	if length < 16 || length > len(b) || keyLength > length-16 {
		return line{}, nil, fmt.Errorf("%w: an entry of %d bytes, where %d are left", errCorrupt, length, len(b))
	}
	l := line{last: flags&entryLast != 0, before: -1}
	if flags&entryDown != 0 {
		if length < 24 {
			return line{}, nil, fmt.Errorf("%w: an entry of %d bytes", errCorrupt, length)
		}
		l.before = int64(le64(b, length-8))
	}
	if l.last {
		return l, nil, nil
	}
	return l, b[length:], l.name(le64(b, 0), b[16:16+keyLength])
}

// name takes an entry's name from its key, which is a copy of the file's own.
func (l *line) name(ref uint64, key []byte) error {
	if len(key) < 0x42 || 0x42+2*int(key[0x40]) > len(key) {
		return fmt.Errorf("%w: a name of %d bytes", errCorrupt, len(key))
	}
	const reparse, folder = 0x400, 0x10000000
	l.ref, l.key, l.short = ref, units(key[0x42:0x42+2*int(key[0x40])]), key[0x41] == nameOnly83
	switch flags := le32(key, 0x38); {
	case flags&reparse != 0:
		l.kind = tree.Other
	case flags&folder != 0:
		l.kind = tree.Folder
	default:
		l.kind = tree.File
	}
	return nil
}

// find looks a name up and returns the reference of its record.
func (t *index) find(entries []byte, name []uint16) (uint64, error) {
	for range maxDepth {
		l, err := t.seek(entries, name)
		switch {
		case err != nil:
			return 0, err
		case !l.last && t.v.compare(name, l.key) == 0:
			return l.ref, nil
		case l.before < 0:
			return 0, ErrNotFound
		}
		if entries, err = t.block(l.before); err != nil {
			return 0, err
		}
	}
	return 0, fmt.Errorf("%w: a folder's tree has more than %d levels", errCorrupt, maxDepth)
}

// seek returns the first line of a block that does not sort before name.
func (t *index) seek(entries []byte, name []uint16) (line, error) {
	for {
		if err := t.v.step(1); err != nil {
			return line{}, err
		}
		l, rest, err := next(entries)
		if err != nil || l.last || t.v.compare(name, l.key) <= 0 {
			return l, err
		}
		entries = rest
	}
}

// list adds the names of a block, and of those below it, to all.
func (t *index) list(all []tree.Entry, entries []byte, depth int) ([]tree.Entry, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("%w: a folder's tree has more than %d levels", errCorrupt, maxDepth)
	}
	for {
		if err := t.v.step(2); err != nil {
			return nil, err
		}
		l, rest, err := next(entries)
		if err != nil {
			return nil, err
		}
		if l.before >= 0 {
			below, err := t.block(l.before)
			if err == nil {
				all, err = t.list(all, below, depth+1)
			}
			if err != nil {
				return nil, err
			}
		}
		if l.last {
			return all, nil
		}
		if entries = rest; l.short || slices.Equal(l.key, []uint16{'.'}) { // the root has itself
			continue
		}
		if len(all) == maxNames {
			return nil, fmt.Errorf("a folder of more than %d names", maxNames)
		}
		all = append(all, l.entry())
	}
}

// compare orders names as NTFS does: by UTF-16 unit, in upper case.
func (v *Volume) compare(a, b []uint16) int {
	return slices.CompareFunc(a, b, func(x, y uint16) int { return int(v.upcase[x]) - int(v.upcase[y]) })
}

// readUpCase reads the table of upper case letters.
func (v *Volume) readUpCase() error {
	r, err := v.record(recordUpCase)
	if err != nil {
		return err
	}
	s, err := v.stream(r, typeData, "")
	if err != nil {
		return err
	}
	const size = 2 << 16
	if s.size != size {
		return fmt.Errorf("%w: %d bytes, not %d", errCorrupt, s.size, size)
	}
	if err := v.r.Budget().Hold(size); err != nil {
		return err
	}
	b := make([]byte, size)
	if err := s.readAt(b, 0); err != nil {
		return err
	}
	v.upcase = units(b)
	return nil
}
