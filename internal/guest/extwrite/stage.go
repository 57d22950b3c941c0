package extwrite

import (
	"fmt"

	"github.com/decamp/decamp/internal/fault"
)

// A stage holds the blocks that were changed and not written yet, in two layers: those of
// the call under way, and those of calls that succeeded.
type stage struct {
	disk      Disk
	blockSize int64
	blocks    int64
	kept      map[int64][]byte
	pending   map[int64][]byte
	clean     map[int64][]byte // blocks as they were read
}

// maxClean bounds the blocks that are remembered unchanged.
const maxClean = 4096

func newStage(disk Disk, blockSize, blocks int64) *stage {
	return &stage{disk: disk, blockSize: blockSize, blocks: blocks,
		kept: map[int64][]byte{}, pending: map[int64][]byte{}, clean: map[int64][]byte{}}
}

// read returns block n, which the caller does not change.
func (s *stage) read(n int64) ([]byte, error) {
	if err := s.disk.Budget().Step(1 + s.blockSize>>9); err != nil { // its entries are looked at one by one
		return nil, err
	}
	for _, layer := range []map[int64][]byte{s.pending, s.kept, s.clean} {
		if b, ok := layer[n]; ok {
			return b, nil
		}
	}
	if n < 0 || n >= s.blocks {
		return nil, corrupt("block %d of %d is referred to", n, s.blocks)
	}
	b := make([]byte, s.blockSize)
	if _, err := s.disk.ReadAt(b, n*s.blockSize); err != nil {
		return nil, fmt.Errorf("read block %d: %w", n, err)
	}
	if len(s.clean) >= maxClean {
		clear(s.clean)
	}
	s.clean[n] = b
	return b, nil
}

// edit returns block n, to be changed in place.
func (s *stage) edit(n int64) ([]byte, error) {
	if b, ok := s.pending[n]; ok {
		return b, nil
	}
	old, err := s.read(n)
	if err != nil {
		return nil, err
	}
	b, err := s.blank(n)
	copy(b, old)
	return b, err
}

// blank returns block n, all zeros, without reading it.
func (s *stage) blank(n int64) ([]byte, error) {
	if n <= 0 && s.blockSize == 1024 || n < 0 || n >= s.blocks {
		return nil, corrupt("write to block %d of %d", n, s.blocks)
	}
	if int64(len(s.pending)+len(s.kept)) >= maxStaged/s.blockSize {
		return nil, fault.New(fault.Unsupported, "more than %d MiB would be changed", maxStaged>>20)
	}
	b := make([]byte, s.blockSize)
	s.pending[n] = b
	return b, nil
}

// keep makes the call's changes lasting, drop forgets them.
func (s *stage) keep() {
	for n, b := range s.pending {
		s.kept[n] = b
	}
	clear(s.pending)
}

func (s *stage) drop() { clear(s.pending) }

// flush writes the staged blocks in the order of the disk.
func (s *stage) flush() error {
	for _, n := range inOrder(s.kept) {
		if _, err := s.disk.WriteAt(s.kept[n], n*s.blockSize); err != nil {
			return fmt.Errorf("write block %d: %w", n, err)
		}
	}
	clear(s.kept)
	clear(s.clean)
	return nil
}
