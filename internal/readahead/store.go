package readahead

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// A pageStore is memory that is divided into pages of one size. The cache's lock guards it.
type pageStore struct {
	size  int64             // size of a page in bytes
	most  int               // number of pages
	free  [][]byte          // unused pages
	made  int               // number of pages that exist, used and unused
	slab  []byte            // mapping of all pages; nil until needed
	pages map[pageKey]*page // pages in use, by their key
}

// newPageStore returns a store without memory.
func newPageStore(size int64, most int) *pageStore {
	return &pageStore{size: size, most: most, pages: map[pageKey]*page{}}
}

// takeFree returns an unused page, or nil. The memory is outside the Go heap, which would
// grow to twice its size before a collection.
func (s *pageStore) takeFree() []byte {
	if s.slab == nil {
		s.mapSlab()
	}
	if len(s.free) == 0 {
		return nil
	}
	b := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	return b
}

// mapSlab maps the memory of all pages. The kernel provides it when it is first used, in huge pages if
// there are some: then copies have fewer TLB misses.
func (s *pageStore) mapSlab() {
	b, err := unix.Mmap(-1, 0, int(s.size)*s.most, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return // reads continue without it, as if all were in use
	}
	if s.size >= hugePage {
		_ = unix.Madvise(b, unix.MADV_HUGEPAGE) // advice: without it things are slower, not wrong
	}
	s.slab = b
	for ; len(b) > 0; b = b[s.size:] {
		s.free = append(s.free, b[:s.size:s.size])
		s.made++
	}
}

// hugePage is the size of a huge page in bytes.
const hugePage = 2 << 20

// close unmaps the memory. It fails if pages are in use.
func (s *pageStore) close() error {
	if len(s.pages) > 0 || len(s.free) < s.made {
		return fmt.Errorf("%d pages of %d bytes are still in use", s.made-len(s.free), s.size)
	}
	if s.slab == nil {
		return nil
	}
	if err := unix.Munmap(s.slab); err != nil {
		return fmt.Errorf("unmap memory: %w", err)
	}
	s.slab, s.free, s.made = nil, nil, 0
	return nil
}
