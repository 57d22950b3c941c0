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
	keySize  = 17
	headSize = 101
	itemSize = 25
	linkSize = 33
	maxHeld  = 64 // blocks

	keyInode  = 1
	keyDir    = 84
	keyIndex  = 96
	keyExtent = 108
	keyRoot   = 132
	keyChunk  = 228
)

// A key is what the items of a tree are sorted by.
type key struct {
	object uint64
	kind   byte
	offset uint64
}

func keyAt(p []byte) key { return key{le64(p, 0), p[8], le64(p, 9)} }

func compare(a, b key) int {
	return cmp.Or(cmp.Compare(a.object, b.object), cmp.Compare(a.kind, b.kind), cmp.Compare(a.offset, b.offset))
}

// block reads a block of a tree, and checks that it is the one.
func (f *FS) block(b block) ([]byte, error) {
	if err := f.r.Budget().Step(1 + f.nodeSize>>9); err != nil { // its items are looked at one by one
		return nil, err
	}
	if f.reads++; f.reads > MaxReads { // blocks in memory count as well: trees could form cycles
		return nil, budget.Exceeded("more than %d blocks would be read", MaxReads)
	}
	if p := f.held[b.at]; p != nil && p[100] == b.level {
		return p, nil
	}
	p := make([]byte, f.nodeSize)
	if err := f.read(p, b.at); err != nil {
		return nil, err
	}
	if at := le64(p, 48); at != b.at || p[100] != b.level || b.level > maxLevel {
		return nil, fmt.Errorf("block %d contains the number %d, and level %d instead of %d", b.at, at, p[100], b.level)
	}
	if len(f.held) == maxHeld {
		clear(f.held)
		f.r.Budget().Release(maxHeld * f.nodeSize)
	}
	if err := f.r.Budget().Hold(f.nodeSize); err != nil {
		return nil, err
	}
	f.held[b.at] = p
	return p, nil
}

// walk gives the items of a tree from a key on to yield, until that returns false.
func (f *FS) walk(b block, from key, yield func(k key, data []byte) bool) error {
	_, err := f.descend(b, from, yield)
	return err
}

func (f *FS) descend(b block, from key, yield func(k key, data []byte) bool) (more bool, err error) {
	p, err := f.block(b)
	if err != nil {
		return false, err
	}
	count := int(le32(p, 96))
	if b.level == 0 {
		return leaf(p, count, from, yield)
	}
	if count < 0 || count > (len(p)-headSize)/linkSize {
		return false, fmt.Errorf("block %d with %d branches", b.at, count)
	}
	for i := range count {
		link := p[headSize+i*linkSize:]
		if i+1 < count && compare(keyAt(link[linkSize:]), from) <= 0 {
			continue // all of it is before
		}
		more, err := f.descend(block{le64(link, keySize), b.level - 1}, from, yield)
		if err != nil || !more {
			return false, err
		}
	}
	return true, nil
}

func leaf(p []byte, count int, from key, yield func(k key, data []byte) bool) (more bool, err error) {
	if count < 0 || count > (len(p)-headSize)/itemSize {
		return false, fmt.Errorf("a leaf with %d items", count)
	}
	for i := range count {
		item := p[headSize+i*itemSize:]
		k := keyAt(item)
		if compare(k, from) < 0 {
			continue
		}
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

// item returns the first item of an object and kind from an offset on.
func (f *FS) item(b block, from key) (found key, data []byte, err error) {
	err = f.walk(b, from, func(k key, d []byte) bool {
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

// An entry is where a name of a folder leads: to an inode, or to the root of a subvolume.
type entry struct {
	key
	name  string
	ftype byte
}

// entries reads the names in one item: several where their hashes are the same.
func entries(data []byte) ([]entry, error) {
	var all []entry
	for len(data) > 0 {
		if len(data) < 30 {
			return nil, errors.New("a folder's entry that is cut short")
		}
		extra, name := int(le16(data, 25)), int(le16(data, 27))
		if len(data) < 30+name+extra {
			return nil, fmt.Errorf("a folder's entry with a name of %d bytes", name)
		}
		all = append(all, entry{keyAt(data), string(data[30 : 30+name]), data[29]})
		data = data[30+name+extra:]
	}
	return all, nil
}

// find looks a name up in a folder, by its hash.
func (f *FS) find(b block, dir uint64, name string) (entry, error) {
	at := key{dir, keyDir, uint64(hash(name))}
	k, data, err := f.item(b, at)
	if err != nil {
		return entry{}, err
	}
	all, err := entries(data)
	for _, e := range all {
		if k == at && e.name == name {
			return e, nil
		}
	}
	return entry{}, cmp.Or(err, error(fs.ErrNotExist))
}

// hash is CRC-32C that starts at minus two and is not inverted at the end.
func hash(name string) uint32 {
	return ^crc32.Update(1, crc32.MakeTable(crc32.Castagnoli), []byte(name))
}
