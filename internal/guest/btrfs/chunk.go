package btrfs

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// maxChunks bounds the map: chunks are a GiB mostly.
const maxChunks = 1 << 16

// A chunk maps logical bytes to the device.
type chunk struct {
	logical, length uint64
	at              uint64 // byte of the device
	err             error  // why it cannot be read
}

// readChunks reads those that stand in the superblock, and by them the tree of all.
func (fs *FS) readChunks(system []byte, root block) error {
	for len(system) > 0 {
		if len(system) < keySize+chunkHead+stripeSize {
			return errors.New("the list in the superblock is cut short")
		}
		c, size := fs.chunk(keyAt(system), system[keySize:])
		fs.chunks = append(fs.chunks, c)
		if keySize+size > len(system) {
			return errors.New("the list in the superblock is cut short")
		}
		system = system[keySize+size:]
	}
	fs.sortChunks()
	var all []chunk
	err := fs.walk(root, key{}, func(k key, data []byte) bool {
		if k.kind == keyChunk && len(data) >= chunkHead+stripeSize {
			c, _ := fs.chunk(k, data)
			all = append(all, c)
		}
		return len(all) < maxChunks
	})
	if err != nil {
		return err
	}
	const chunkMemory = 64 // bytes, with room to grow
	if err := fs.r.Budget().Hold(chunkMemory * int64(len(all))); err != nil {
		return err
	}
	fs.chunks = append(fs.chunks, all...)
	fs.sortChunks()
	return nil
}

func (fs *FS) sortChunks() {
	slices.SortStableFunc(fs.chunks, func(a, b chunk) int { return cmp.Compare(a.logical, b.logical) })
	fs.chunks = slices.CompactFunc(fs.chunks, func(a, b chunk) bool { return a.logical == b.logical })
}

const (
	chunkHead  = 48
	stripeSize = 32

	typeStriped = 0x8 | 0x40 | 0x80 | 0x100 // RAID0, 10, 5 and 6
)

// chunk reads one item. Of copies, that on this device counts.
func (fs *FS) chunk(k key, data []byte) (_ chunk, size int) {
	c := chunk{logical: k.offset, length: le64(data, 0), err: errors.New("on another device")}
	stripes := int(le16(data, 44))
	size = chunkHead + stripes*stripeSize
	for i := range stripes {
		at := chunkHead + i*stripeSize
		if at+stripeSize > len(data) {
			break
		}
		if le64(data, at) == fs.device {
			c.at, c.err = le64(data, at+8), nil
			break
		}
	}
	if le64(data, 24)&typeStriped != 0 {
		c.err = errors.New("profiles that stripe are not understood")
	}
	const max = 1 << 60
	if c.length > max || c.logical > max || c.at > max {
		c.err = fmt.Errorf("%d bytes at %d", c.length, c.at)
	}
	return c, size
}

// read fills p from a logical byte. It must lie in one chunk.
func (fs *FS) read(p []byte, logical uint64) error {
	i, exact := slices.BinarySearchFunc(fs.chunks, logical, func(c chunk, l uint64) int { return cmp.Compare(c.logical, l) })
	if !exact {
		i--
	}
	if i < 0 || logical-fs.chunks[i].logical >= fs.chunks[i].length || uint64(len(p)) > fs.chunks[i].length-(logical-fs.chunks[i].logical) {
		return fmt.Errorf("%d bytes at %d are in no chunk", len(p), logical)
	}
	c := fs.chunks[i]
	if c.err != nil {
		return fmt.Errorf("chunk at %d: %w", c.logical, c.err)
	}
	_, err := fs.r.ReadAt(p, int64(c.at+logical-c.logical))
	return err
}
