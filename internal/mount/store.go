package mount

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// store is memory cut into pages of one size. The cache's lock guards it.
type store struct {
	size  int64 // of a page
	most  int   // pages
	free  [][]byte
	made  int
	slabs [][]byte // as mapped
	pages map[pageKey]*page
}

func newStore(size int64, most int) *store {
	return &store{size: size, most: most, pages: map[pageKey]*page{}}
}

// slab is how much memory is mapped at a time, at least.
const slab = 1 << 20

// memory returns memory that nobody uses; nil if there is none. It lies outside of Go's
// heap, which would grow to twice as much before it was collected.
func (s *store) memory() []byte {
	if len(s.free) == 0 && s.made < s.most {
		s.grow()
	}
	if len(s.free) == 0 {
		return nil
	}
	b := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	return b
}

func (s *store) grow() {
	b, err := unix.Mmap(-1, 0, int(max(s.size, slab)), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return // as if all were in use: reads go on without
	}
	s.slabs = append(s.slabs, b)
	for ; int64(len(b)) >= s.size && s.made < s.most; b = b[s.size:] {
		s.free = append(s.free, b[:s.size:s.size])
		s.made++
	}
}

// close gives the memory back. Nobody may use it any more.
func (s *store) close() error {
	if len(s.pages) > 0 || len(s.free) < s.made {
		return fmt.Errorf("%d pages of %d bytes are still in use", s.made-len(s.free), s.size)
	}
	for _, b := range s.slabs {
		if err := unix.Munmap(b); err != nil {
			return fmt.Errorf("give back memory: %w", err)
		}
	}
	s.slabs, s.free, s.made = nil, nil, 0
	return nil
}
