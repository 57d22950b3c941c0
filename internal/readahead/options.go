package readahead

import (
	"cmp"
	"time"
)

const (
	LeastPageSize = 1 << 20 // smallest Options.PageSize in bytes

	defaultPageSize = 4 << 20   // default of Options.PageSize in bytes
	mostPageSize    = 8 << 20   // largest page in bytes
	leastPages      = 4         // smallest number of pages
	mostMemory      = 128 << 20 // largest memory of all pages in bytes

	blockSize     = 64 << 10 // size of a block in bytes
	defaultBlocks = 256      // default of Options.Blocks, and the largest number: 16 MiB
	leastBlocks   = 16       // smallest number of blocks

	defaultReadTimeout = 2 * time.Minute // default of Options.ReadTimeout
	defaultMapPatience = 5 * time.Second // default of Options.mapPatience; some hosts compute maps for minutes
)

// Options change the memory of a cache and the duration of reads. The zero value is right for a mount.
type Options struct {
	// PageSize is the number of bytes that one request reads ahead for a sequential reader. The default is
	// 4 MiB. With smaller pages the latency of requests is visible; with larger ones fewer fit into the
	// memory, and connections are idle when several files are read at the same time. It is limited to 1 to
	// 8 MiB, and rounded up to a power of two.
	PageSize int64

	// Pages is the number of pages for all files together. The default is 32. It is limited to at least 4,
	// and to what fits in 128 MiB.
	Pages int

	// Blocks is the number of blocks of 64 KiB for random readers. The default is 256, and it is limited to
	// 16 to 256.
	Blocks int

	// ReadTimeout is the time after which a read fails. The default is 2 minutes, longer than a restart of
	// the host's management agents.
	ReadTimeout time.Duration

	Now func() time.Time // clock; tests replace it

	mapPatience time.Duration // how long read-ahead waits for the allocation map; tests change it
}

// withDefaults returns o with its zero values replaced and its limits applied.
func (o Options) withDefaults() Options {
	o.PageSize = powerOfTwo(min(max(cmp.Or(o.PageSize, defaultPageSize), LeastPageSize), mostPageSize))
	o.Pages = cmp.Or(max(o.Pages, 0), int(mostMemory/defaultPageSize))
	o.Pages = max(min(o.Pages, int(mostMemory/o.PageSize)), leastPages)
	o.Blocks = max(min(cmp.Or(max(o.Blocks, 0), defaultBlocks), defaultBlocks), leastBlocks)
	o.ReadTimeout = cmp.Or(o.ReadTimeout, defaultReadTimeout)
	o.mapPatience = cmp.Or(o.mapPatience, defaultMapPatience)
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// powerOfTwo rounds n up to a power of two.
func powerOfTwo(n int64) int64 {
	p := int64(1)
	for p < n {
		p <<= 1
	}
	return p
}

// ExportOptions returns the options of a cache for one disk that is served to other programs: 24 MiB of
// pages and 4 MiB of blocks.
func ExportOptions() Options { return Options{PageSize: 1 << 20, Pages: 24, Blocks: 64} }
