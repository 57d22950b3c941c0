package hive

import (
	"errors"
	"io"

	"github.com/decamp/decamp/internal/guest/budget"
)

const (
	pageSize = 16 << 10
	maxPages = 256 // held: 4 MiB
)

// pages reads a hive in pages and holds the last ones: cells are small, and what belongs
// together was mostly written together.
type pages struct {
	r      io.ReaderAt
	budget *budget.Budget
	held   map[int64][]byte
}

// read fills p from off.
func (c *pages) read(p []byte, off int64) error {
	for len(p) > 0 {
		page, err := c.page(off / pageSize)
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

// page returns page i; the last one of a file is short.
func (c *pages) page(i int64) ([]byte, error) {
	if page, ok := c.held[i]; ok {
		return page, nil
	}
	page := make([]byte, pageSize)
	n, err := c.r.ReadAt(page, i*pageSize)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(c.held) == maxPages {
		clear(c.held)
		c.budget.Release(maxPages * pageSize)
	}
	if err := c.budget.Hold(pageSize); err != nil {
		return nil, err
	}
	c.held[i] = page[:n]
	return page[:n], nil
}
