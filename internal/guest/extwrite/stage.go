package extwrite

import (
	"fmt"

	"github.com/decamp/decamp/internal/fault"
)

// A stage is a cache of blocks in three layers: changes of the current call (pending), changes of
// earlier calls (staged), and unchanged blocks (clean).
type stage struct {
	disk      Disk             // disk that the blocks are read from and written to
	blockSize int64            // bytes of a block
	blocks    int64            // number of blocks of the file system
	staged    map[int64][]byte // blocks that earlier calls changed, written by flush
	pending   map[int64][]byte // blocks that the current call changed; a failed call drops them
	clean     map[int64][]byte // blocks as read from the disk, at most maxClean bytes
}

// maxClean limits the bytes of unchanged blocks in memory. The cache is emptied when it is full.
const maxClean = 16 << 20

// newStage returns an empty stage for a file system of blocks blocks.
func newStage(disk Disk, blockSize, blocks int64) *stage {
	return &stage{disk: disk, blockSize: blockSize, blocks: blocks,
		staged: map[int64][]byte{}, pending: map[int64][]byte{}, clean: map[int64][]byte{}}
}

// readBlock returns block n with all staged changes. The caller must not change it. Each call is
// charged to the disk's budget.
func (s *stage) readBlock(n int64) ([]byte, error) {
	if err := s.disk.Budget().Step(1 + s.blockSize>>9); err != nil { // callers parse all entries of the block
		return nil, err
	}
	// The newest layer that contains the block wins.
	for _, layer := range []map[int64][]byte{s.pending, s.staged, s.clean} {
		if b, ok := layer[n]; ok {
			return b, nil
		}
	}
	if n < 0 || n >= s.blocks {
		return nil, corrupt("block %d of %d is referred to", n, s.blocks)
	}
	if int64(len(s.clean)) >= maxClean/s.blockSize {
		s.clearLayer(s.clean)
	}
	b, err := s.newBlock()
	if err != nil {
		return nil, err
	}
	if _, err := s.disk.ReadAt(b, n*s.blockSize); err != nil {
		s.disk.Budget().Release(s.blockSize)
		return nil, fmt.Errorf("read block %d: %w", n, err)
	}
	s.clean[n] = b
	return b, nil
}

// newBlock returns memory for one block, which is charged to the disk's budget until clearLayer.
func (s *stage) newBlock() ([]byte, error) {
	if err := s.disk.Budget().Hold(s.blockSize); err != nil {
		return nil, err
	}
	return make([]byte, s.blockSize), nil
}

// clearLayer removes all blocks of a layer, and releases their memory.
func (s *stage) clearLayer(layer map[int64][]byte) {
	s.disk.Budget().Release(int64(len(layer)) * s.blockSize)
	clear(layer)
}

// editBlock returns block n for changes in place. They are part of the current call.
func (s *stage) editBlock(n int64) ([]byte, error) {
	if b, ok := s.pending[n]; ok {
		return b, nil
	}
	old, err := s.readBlock(n)
	if err != nil {
		return nil, err
	}
	b, err := s.zeroBlock(n)
	if err != nil {
		return nil, err
	}
	copy(b, old)
	return b, nil
}

// zeroBlock returns block n filled with zeros, for changes in place, without reading the disk. It fails
// if the staged blocks exceed maxStaged, or if n is outside the file system.
func (s *stage) zeroBlock(n int64) ([]byte, error) {
	// Block 0 of a file system with blocks of 1 KiB is the boot sector, which is not part of it.
	if n <= 0 && s.blockSize == 1024 || n < 0 || n >= s.blocks {
		return nil, corrupt("write to block %d of %d", n, s.blocks)
	}
	if int64(len(s.pending)+len(s.staged)) >= maxStaged/s.blockSize {
		return nil, fault.New(fault.Unsupported, "more than %d MiB would be changed", maxStaged>>20)
	}
	if s.pending[n] != nil {
		s.disk.Budget().Release(s.blockSize) // the older version is replaced
	}
	b, err := s.newBlock()
	if err != nil {
		delete(s.pending, n)
		return nil, err
	}
	s.pending[n] = b
	return b, nil
}

// stagePending makes the changes of the current call part of the next flush.
func (s *stage) stagePending() {
	for n, b := range s.pending {
		if s.staged[n] != nil {
			s.disk.Budget().Release(s.blockSize) // the older version is replaced
		}
		s.staged[n] = b
	}
	clear(s.pending)
}

// dropPending discards the changes of the current call.
func (s *stage) dropPending() { s.clearLayer(s.pending) }

// flush writes the staged blocks in ascending order and empties the cache.
func (s *stage) flush() error {
	for _, n := range sortedKeys(s.staged) {
		if _, err := s.disk.WriteAt(s.staged[n], n*s.blockSize); err != nil {
			return fmt.Errorf("write block %d: %w", n, err)
		}
	}
	s.clearLayer(s.staged)
	s.clearLayer(s.clean)
	return nil
}
