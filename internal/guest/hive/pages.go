package hive

import (
	"errors"
	"io"

	"github.com/decamp/decamp/internal/guest/budget"
)

const (
	pageSize = 16 << 10 // bytes read at once
	maxPages = 256      // cached pages: 4 MiB
)

// pages reads a hive in pages and caches them. Cells are small, and cells that belong together are
// usually close to each other.
type pages struct {
	r      io.ReaderAt      // file of the hive
	budget *budget.Budget   // budget that the cache's memory is charged to
	cached map[int64][]byte // content of pages by number; emptied when it has maxPages
}

// readAt fills p from offset off of the file. It returns io.ErrUnexpectedEOF after the end.
func (c *pages) readAt(p []byte, off int64) error {
	for len(p) > 0 {
		page, err := c.readPage(off / pageSize)
		if err != nil {
			return err
		}
		within := off % pageSize
		if within >= int64(len(page)) {
			return io.ErrUnexpectedEOF
		}
		n := copy(p, page[within:])
		p, off = p[n:], off+int64(n)
	}
	return nil
}

// readPage returns page i; the last page of a file is shorter.
func (c *pages) readPage(i int64) ([]byte, error) {
	if page, ok := c.cached[i]; ok {
		return page, nil
	}
	page := make([]byte, pageSize)
	n, err := c.r.ReadAt(page, i*pageSize)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(c.cached) == maxPages {
		clear(c.cached)
		c.budget.Release(maxPages * pageSize)
	}
	if err := c.budget.Hold(pageSize); err != nil {
		return nil, err
	}
	c.cached[i] = page[:n]
	return page[:n], nil
}
