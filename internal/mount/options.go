package mount

import (
	"cmp"
	"log/slog"
	"time"
)

const (
	defaultPageSize = 4 << 20   // default of Options.PageSize in bytes
	leastPageSize   = 1 << 20   // smallest page in bytes: the largest request of the kernel
	mostPageSize    = 8 << 20   // largest page in bytes
	leastPages      = 4         // smallest number of pages
	mostMemory      = 128 << 20 // largest memory of all pages in bytes

	blockSize = 64 << 10 // size of a block in bytes
	blocks    = 256      // number of blocks: 16 MiB

	defaultReadTimeout = 2 * time.Minute // default of Options.ReadTimeout
)

// Options change how a mount behaves. The zero value is right for most.
type Options struct {
	// PageSize is the number of bytes that one request reads ahead for a sequential reader. The default is
	// 4 MiB. With smaller pages the latency of requests is visible; with larger ones fewer fit into the
	// memory, and connections are idle when several files are read at the same time. It is limited to 1 to
	// 8 MiB, and rounded up to a power of two.
	PageSize int64

	// Pages is the number of pages for all files together. The default is 32. It is limited to at least 4,
	// and to what fits in 128 MiB.
	Pages int

	// ReadTimeout is the time after which a read fails. The default is 2 minutes, longer than a restart of
	// the host's management agents.
	ReadTimeout time.Duration

	// AllowOther lets other users than the one who mounts see the files.
	AllowOther bool

	// Name is the type of the file system after "fuse.", which identifies a stale mount. The default is
	// decamp.
	Name string

	// Source is the device in the table of mounts: the URL of the host.
	Source string

	// Replace detaches any FUSE file system that is mounted there, even if it is served.
	Replace bool

	Log *slog.Logger // default discards

	Now func() time.Time // the clock; tests replace it
}

// withDefaults returns o with its zero values replaced and its limits applied.
func (o Options) withDefaults() Options {
	o.PageSize = powerOfTwo(min(max(cmp.Or(o.PageSize, defaultPageSize), leastPageSize), mostPageSize))
	o.Pages = cmp.Or(max(o.Pages, 0), int(mostMemory/defaultPageSize))
	o.Pages = max(min(o.Pages, int(mostMemory/o.PageSize)), leastPages)
	o.ReadTimeout = cmp.Or(o.ReadTimeout, defaultReadTimeout)
	o.Name = cmp.Or(o.Name, "decamp")
	o.Source = cmp.Or(o.Source, o.Name)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
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
