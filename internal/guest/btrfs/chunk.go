package btrfs

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/decamp/decamp/internal/guest/budget"
)

// maxChunks limits the chunks; most have 1 GiB.
const maxChunks = 1 << 16

// Reasons why a chunk cannot be read. A disk has thousands of chunks, which share them.
var (
	errOtherDevice = errors.New("on another device")
	errStriped     = errors.New("profiles that stripe are not supported")
	errOutOfRange  = errors.New("its addresses exceed 2^60")
)

// A chunk maps a range of logical addresses to the device.
type chunk struct {
	logical, length uint64 // range of logical addresses in bytes
	at              uint64 // offset on the device in bytes
	err             error  // reason why the chunk cannot be read; nil if it can
}

// readChunks reads the chunks in the superblock (system) and then, through them, the chunk tree at
// root.
func (fs *FS) readChunks(system []byte, root blockRef) error {
	for len(system) > 0 {
		if len(system) < keySize+chunkHead+stripeSize {
			return errors.New("truncated list in the superblock")
		}
		// The chunk tree itself is in system chunks, so the superblock contains those.
		c, size := fs.parseChunk(parseKey(system), system[keySize:])
		fs.chunks = append(fs.chunks, c)
		if keySize+size > len(system) {
			return errors.New("truncated list in the superblock")
		}
		system = system[keySize+size:]
	}
	fs.sortChunks()
	var all []chunk
	var failed error
	err := fs.walkTree(root, key{}, func(k key, data []byte) bool {
		if k.kind == keyChunk && len(data) >= chunkHead+stripeSize {
			c, _ := fs.parseChunk(k, data)
			if all, failed = budget.Grow(fs.r.Budget(), all, 1); failed == nil {
				all = append(all, c)
			}
		}
		return failed == nil && len(all) < maxChunks
	})
	if err = cmp.Or(err, failed); err != nil {
		return err
	}
	// The chunks of the superblock come first, because they are valid if both differ.
	if all, err = budget.Grow(fs.r.Budget(), all, len(fs.chunks)); err != nil {
		return err
	}
	fs.chunks = slices.Insert(all, 0, fs.chunks...)
	fs.sortChunks()
	return nil
}

// sortChunks sorts the chunks and removes duplicates.
func (fs *FS) sortChunks() {
	slices.SortStableFunc(fs.chunks, func(a, b chunk) int { return cmp.Compare(a.logical, b.logical) })
	fs.chunks = slices.CompactFunc(fs.chunks, func(a, b chunk) bool { return a.logical == b.logical })
}

const (
	chunkHead  = 48 // bytes of a chunk item before its stripes
	stripeSize = 32 // bytes of a stripe in a chunk item

	typeStriped = 0x8 | 0x40 | 0x80 | 0x100 // flags of RAID0, RAID10, RAID5 and RAID6
)

// parseChunk parses a chunk item and returns its size. Of several copies it uses the one on this
// device. If the chunk cannot be read, chunk.err is the reason.
func (fs *FS) parseChunk(k key, data []byte) (_ chunk, size int) {
	c := chunk{logical: k.offset, length: le64(data, 0), err: errOtherDevice}
	// Offsets in a chunk item: 0 length, 24 type, 44 number of stripes; a stripe has device and offset.
	stripes := int(le16(data, 44))
	size = chunkHead + stripes*stripeSize
	for i := range stripes {
		at := chunkHead + i*stripeSize
		if at+stripeSize > len(data) {
			break
		}
		// Copies on other devices are not available here.
		if le64(data, at) == fs.device {
			c.at, c.err = le64(data, at+8), nil
			break
		}
	}
	if le64(data, 24)&typeStriped != 0 {
		c.err = errStriped
	}
	const max = 1 << 60
	if c.length > max || c.logical > max || c.at > max {
		c.err = errOutOfRange
	}
	return c, size
}

// readLogical fills p from a logical address. The range must be within one chunk.
func (fs *FS) readLogical(p []byte, logical uint64) error {
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
