package btrfs

import (
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"

	"github.com/decamp/decamp/internal/guest/budget"
)

const (
	keySize   = 17  // bytes of a key
	headSize  = 101 // bytes of a tree block before its items
	itemSize  = 25  // bytes of an item in a leaf: key, offset, size
	linkSize  = 33  // bytes of a link in an inner block: key, address, generation
	maxCached = 64  // tree blocks in memory

	keyInode  = 1   // inode
	keyDir    = 84  // entry of a folder by the hash of its name
	keyIndex  = 96  // entry of a folder by its sequence number
	keyExtent = 108 // extent of a file
	keyRoot   = 132 // root of a subvolume's tree
	keyChunk  = 228 // chunk
)

// A key identifies an item of a tree. Trees are sorted by key.
type key struct {
	object uint64 // number of an inode, or another object
	kind   byte   // type of the item
	offset uint64 // offset, hash or number, depending on kind
}

// parseKey parses the key that p begins with.
func parseKey(p []byte) key { return key{le64(p, 0), p[8], le64(p, 9)} }

// compareKeys compares two keys by object, kind and offset, in this order.
func compareKeys(a, b key) int {
	return cmp.Or(cmp.Compare(a.object, b.object), cmp.Compare(a.kind, b.kind), cmp.Compare(a.offset, b.offset))
}

// readBlock returns a tree block and verifies its address and level. The caller must not change it.
// Each call counts as a read, even if the block is cached, because trees with loops must end.
func (f *FS) readBlock(b blockRef) ([]byte, error) {
	if err := f.r.Budget().Step(1 + f.nodeSize>>9); err != nil { // callers parse all items of the block
		return nil, err
	}
	if f.reads++; f.reads > MaxReads { // blocks in memory count as well: trees could form cycles
		return nil, budget.Exceeded("more than %d blocks would be read", MaxReads)
	}
	if p := f.cached[b.at]; p != nil && p[100] == b.level {
		return p, nil
	}
	p := make([]byte, f.nodeSize)
	if err := f.readLogical(p, b.at); err != nil {
		return nil, err
	}
	if at := le64(p, 48); at != b.at || p[100] != b.level || b.level > maxLevel {
		return nil, fmt.Errorf("block %d contains the number %d, and level %d instead of %d", b.at, at, p[100], b.level)
	}
	if len(f.cached) == maxCached {
		clear(f.cached)
		f.r.Budget().Release(maxCached * f.nodeSize)
	}
	if err := f.r.Budget().Hold(f.nodeSize); err != nil {
		return nil, err
	}
	f.cached[b.at] = p
	return p, nil
}

// walkTree calls yield for the items of a tree from a key on, in order, until yield returns false.
func (f *FS) walkTree(b blockRef, from key, yield func(k key, data []byte) bool) error {
	_, err := f.walkBlock(b, from, yield)
	return err
}

// walkBlock does the same for the tree below one block. more is false if yield returned false.
func (f *FS) walkBlock(b blockRef, from key, yield func(k key, data []byte) bool) (more bool, err error) {
	p, err := f.readBlock(b)
	if err != nil {
		return false, err
	}
	count := int(le32(p, 96))
	if b.level == 0 {
		return walkLeaf(p, count, from, yield)
	}
	if count < 0 || count > (len(p)-headSize)/linkSize {
		return false, fmt.Errorf("block %d with %d branches", b.at, count)
	}
	for i := range count {
		link := p[headSize+i*linkSize:]
		// The next child also begins before from, so this one ends before it.
		if i+1 < count && compareKeys(parseKey(link[linkSize:]), from) <= 0 {
			continue // the whole child precedes from
		}
		more, err := f.walkBlock(blockRef{le64(link, keySize), b.level - 1}, from, yield)
		if err != nil || !more {
			return false, err
		}
	}
	return true, nil
}

// walkLeaf does the same for the leaf p with count items.
func walkLeaf(p []byte, count int, from key, yield func(k key, data []byte) bool) (more bool, err error) {
	if count < 0 || count > (len(p)-headSize)/itemSize {
		return false, fmt.Errorf("a leaf with %d items", count)
	}
	for i := range count {
		item := p[headSize+i*itemSize:]
		k := parseKey(item)
		if compareKeys(k, from) < 0 {
			continue
		}
		// The offset counts from the end of the block's header.
		off, size := int64(le32(item, keySize)), int64(le32(item, keySize+4))
		if off+size > int64(len(p)-headSize) {
			return false, fmt.Errorf("an item of %d bytes at byte %d of a leaf", size, off)
		}
		if !yield(k, p[headSize+off:][:size]) {
			return false, nil
		}
	}
	return true, nil
}

// findItem returns the first item with the object and kind of from and at least its offset. The error
// is fs.ErrNotExist if none exists.
func (f *FS) findItem(b blockRef, from key) (found key, data []byte, err error) {
	err = f.walkTree(b, from, func(k key, d []byte) bool {
		if k.object == from.object && k.kind == from.kind {
			found, data = k, d
		}
		return false
	})
	if err == nil && data == nil {
		err = fs.ErrNotExist
	}
	return found, data, err
}

// A dirEntry is one name of a folder. Its key is that of an inode or of the root of a subvolume.
type dirEntry struct {
	key
	name  string // name without its path
	ftype byte   // kind of the file: 1 file, 2 folder, 7 symbolic link
}

// parseEntries parses one item of a folder. It has several names if their hashes are equal.
func parseEntries(data []byte) ([]dirEntry, error) {
	var all []dirEntry
	for len(data) > 0 {
		if len(data) < 30 {
			return nil, errors.New("truncated entry of a folder")
		}
		// An entry has a key, a generation, the lengths of data and name, a type, and the name.
		extra, name := int(le16(data, 25)), int(le16(data, 27))
		if len(data) < 30+name+extra {
			return nil, fmt.Errorf("a folder's entry with a name of %d bytes", name)
		}
		all = append(all, dirEntry{parseKey(data), string(data[30 : 30+name]), data[29]})
		data = data[30+name+extra:]
	}
	return all, nil
}

// findName returns the entry of a name in a folder, by its hash. The error is fs.ErrNotExist if none
// exists.
func (f *FS) findName(b blockRef, dir uint64, name string) (dirEntry, error) {
	// Names with the same hash are in one item.
	at := key{dir, keyDir, uint64(hashName(name))}
	k, data, err := f.findItem(b, at)
	if err != nil {
		return dirEntry{}, err
	}
	all, err := parseEntries(data)
	for _, e := range all {
		if k == at && e.name == name {
			return e, nil
		}
	}
	return dirEntry{}, cmp.Or(err, error(fs.ErrNotExist))
}

// hashName returns the CRC-32C of a name. btrfs starts it with -2 and does not invert the result.
func hashName(name string) uint32 {
	return ^crc32.Update(1, crc32.MakeTable(crc32.Castagnoli), []byte(name))
}
