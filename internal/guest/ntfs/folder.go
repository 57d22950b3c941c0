package ntfs

import (
	"errors"
	"fmt"
	"slices"
	"unicode/utf16"

	"github.com/decamp/decamp/internal/guest/tree"
)

const (
	maxDepth   = 32       // levels of a folder's tree; each level at least doubles the number of names
	maxIndex   = 64 << 10 // bytes of an index block
	entryDown  = 1        // flag of an entry with a child block
	entryLast  = 2        // flag of the last entry of a block, which has no name
	nameOnly83 = 2        // namespace of a short name whose file also has a long name
)

// An index is a folder's B+ tree of names, sorted by compareNames.
type index struct {
	v         *Volume // volume that contains the folder
	blocks    *stream // blocks of the tree; nil if all names are in the root
	blockSize int64   // bytes of a block, a power of two from 512 to maxIndex
	vcnUnit   int64   // bytes that block numbers count: a cluster, or 512 if clusters are larger than blocks
}

// openIndex returns a folder's tree and the entries of its root. The error is ErrNotFound if r is not
// a folder. The caller must release the tree.
func (v *Volume) openIndex(r *record) (*index, []byte, error) {
	if !r.isFolder() {
		return nil, nil, ErrNotFound
	}
	root, err := v.openStream(r, typeIndexRoot, "$I30")
	if err != nil {
		return nil, nil, fmt.Errorf("folder: %w", err)
	}
	defer root.release()
	// 16 bytes of $INDEX_ROOT precede the index header. Offset 8 is the size of a block.
	if len(root.resident) < 32 {
		return nil, nil, fmt.Errorf("%w: the root of a folder has %d bytes", errCorrupt, len(root.resident))
	}
	t := &index{v: v, blockSize: int64(le32(root.resident, 8)), vcnUnit: v.clusterSize}
	if t.blockSize < 512 || t.blockSize > maxIndex || t.blockSize&(t.blockSize-1) != 0 {
		return nil, nil, fmt.Errorf("%w: a folder's blocks have %d bytes", errCorrupt, t.blockSize)
	}
	// If a block is smaller than a cluster, block numbers count units of 512 bytes.
	if t.vcnUnit > t.blockSize {
		t.vcnUnit = 512
	}
	entries, err := indexEntries(root.resident[16:])
	if err != nil {
		return nil, nil, err
	}
	t.blocks, err = v.openStream(r, typeIndexAlloc, "$I30")
	if err != nil && !errors.Is(err, ErrNotFound) {
		return nil, nil, fmt.Errorf("folder: %w", err)
	}
	return t, entries, nil
}

// release returns the memory of the folder's runs to the budget.
func (t *index) release() {
	if t.blocks != nil {
		t.blocks.release()
	}
}

// indexEntries returns the bytes of the entries after the index header that b begins with.
func indexEntries(b []byte) ([]byte, error) {
	// The header has the offset of the first entry and the end of the used bytes.
	at, used := int64(le32(b, 0)), int64(le32(b, 4))
	if at < 16 || at > used || used > int64(len(b)) {
		return nil, fmt.Errorf("%w: a folder's entries are at %d to %d of %d bytes", errCorrupt, at, used, len(b))
	}
	return b[at:used], nil
}

// readBlock returns the entries of the block with number vcn. It applies the fixups and fails if the
// block has another number.
func (t *index) readBlock(vcn int64) ([]byte, error) {
	if err := t.v.countRead(); err != nil {
		return nil, err
	}
	if t.blocks == nil || vcn < 0 || vcn > t.blocks.size/t.vcnUnit {
		return nil, fmt.Errorf("%w: a folder has no block %d", errCorrupt, vcn)
	}
	// A block has a signature, fixups, and its number at offset 16; the index header follows at 24.
	raw := make([]byte, t.blockSize)
	if err := t.blocks.readAt(raw, vcn*t.vcnUnit); err != nil {
		return nil, fmt.Errorf("block %d of a folder: %w", vcn, err)
	}
	if string(raw[:4]) != "INDX" || int64(le64(raw, 16)) != vcn {
		return nil, fmt.Errorf("%w: invalid block %d of a folder", errCorrupt, vcn)
	}
	if err := applyFixups(raw); err != nil {
		return nil, err
	}
	return indexEntries(raw[24:])
}

// An indexEntry is one entry of a block: a name or the end of the block.
type indexEntry struct {
	ref   uint64    // reference to the file's record: number and sequence
	key   []uint16  // name in UTF-16
	kind  tree.Kind // kind according to the copy of the file's flags in the folder
	short bool      // the name is a short name and the file also has a long one
	last  bool      // the entry is the end of the block and has no name
	child int64     // number of the block with all names that sort before this one; -1 if none exists
}

// treeEntry converts the entry for List. It decodes invalid UTF-16 to replacement characters.
func (l indexEntry) treeEntry() tree.Entry {
	return tree.Entry{Name: string(utf16.Decode(l.key)), Kind: l.kind}
}

// parseIndexEntry parses the first entry of b and returns the remaining bytes. The last entry of a
// block has no remaining bytes.
func parseIndexEntry(b []byte) (indexEntry, []byte, error) {
	if len(b) < 16 {
		return indexEntry{}, nil, fmt.Errorf("%w: a folder's block has no end", errCorrupt)
	}
	// An entry has the file reference, its length, the length of its key, and flags.
	length, keyLength, flags := int(le16(b, 8)), int(le16(b, 10)), le16(b, 12)
	if length < 16 || length > len(b) || keyLength > length-16 {
		return indexEntry{}, nil, fmt.Errorf("%w: an entry of %d bytes, where %d are left", errCorrupt, length, len(b))
	}
	l := indexEntry{last: flags&entryLast != 0, child: -1}
	if flags&entryDown != 0 {
		if length < 24 {
			return indexEntry{}, nil, fmt.Errorf("%w: an entry of %d bytes", errCorrupt, length)
		}
		// The number of the child block is the last word of the entry.
		l.child = int64(le64(b, length-8))
	}
	if l.last {
		return l, nil, nil
	}
	return l, b[length:], l.parseName(le64(b, 0), b[16:16+keyLength])
}

// parseName parses the key of an entry, a copy of the file's $FILE_NAME attribute: name, namespace
// and flags.
func (l *indexEntry) parseName(ref uint64, key []byte) error {
	if len(key) < 0x42 || 0x42+2*int(key[0x40]) > len(key) {
		return fmt.Errorf("%w: a name of %d bytes", errCorrupt, len(key))
	}
	// $FILE_NAME: file flags at 0x38, length of the name at 0x40, namespace at 0x41, then the name.
	const reparse, folder = 0x400, 0x10000000
	l.ref, l.key, l.short = ref, utf16Units(key[0x42:0x42+2*int(key[0x40])]), key[0x41] == nameOnly83
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

// findName returns the record reference of a name. entries are those of the root. The error is
// ErrNotFound if the name does not exist.
func (t *index) findName(entries []byte, name []uint16) (uint64, error) {
	// Each iteration descends one level, so a loop between blocks ends.
	for range maxDepth {
		l, err := t.seekName(entries, name)
		switch {
		case err != nil:
			return 0, err
		case !l.last && t.v.compareNames(name, l.key) == 0:
			return l.ref, nil
		case l.child < 0:
			return 0, ErrNotFound
		}
		if entries, err = t.readBlock(l.child); err != nil {
			return 0, err
		}
	}
	return 0, fmt.Errorf("%w: a folder's tree has more than %d levels", errCorrupt, maxDepth)
}

// seekName returns the first entry of a block that does not sort before the name.
func (t *index) seekName(entries []byte, name []uint16) (indexEntry, error) {
	for {
		if err := t.v.step(1); err != nil {
			return indexEntry{}, err
		}
		l, rest, err := parseIndexEntry(entries)
		if err != nil || l.last || t.v.compareNames(name, l.key) <= 0 {
			return l, err
		}
		entries = rest
	}
}

// listBlock adds the names of a block, and of the blocks below it, to all. It fails below maxDepth
// levels, so that a loop ends.
func (t *index) listBlock(all *tree.Listing, entries []byte, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%w: a folder's tree has more than %d levels", errCorrupt, maxDepth)
	}
	for {
		if err := t.v.step(2); err != nil {
			return err
		}
		l, rest, err := parseIndexEntry(entries)
		if err != nil {
			return err
		}
		if l.child >= 0 {
			below, err := t.readBlock(l.child)
			if err == nil {
				err = t.listBlock(all, below, depth+1)
			}
			if err != nil {
				return err
			}
		}
		if l.last {
			return nil
		}
		if entries = rest; l.short || slices.Equal(l.key, []uint16{'.'}) { // the root contains an entry for itself
			continue
		}
		if all.Len() == maxNames {
			return fmt.Errorf("a folder of more than %d names", maxNames)
		}
		if err := all.Add(l.treeEntry()); err != nil {
			return err
		}
	}
}

// compareNames compares names like NTFS: by UTF-16 unit after conversion to upper case. The result is
// negative, zero or positive.
func (v *Volume) compareNames(a, b []uint16) int {
	return slices.CompareFunc(a, b, func(x, y uint16) int { return int(v.upcase[x]) - int(v.upcase[y]) })
}

// readUpCase reads $UpCase, the volume's table of 65,536 upper case letters.
func (v *Volume) readUpCase() error {
	r, err := v.readRecord(recordUpCase)
	if err != nil {
		return err
	}
	s, err := v.openStream(r, typeData, "")
	if err != nil {
		return err
	}
	defer s.release()
	const size = 2 << 16
	if s.size != size {
		return fmt.Errorf("%w: %d bytes, not %d", errCorrupt, s.size, size)
	}
	if err := v.r.Budget().Hold(size); err != nil {
		return err
	}
	// The table stays in memory as long as the volume, so it is charged to the budget.
	b := make([]byte, size)
	if err := s.readAt(b, 0); err != nil {
		return err
	}
	v.upcase = utf16Units(b)
	return nil
}
