package mount

import (
	"cmp"
	"log/slog"
	"time"
)

const (
	defaultPageSize = 4 << 20
	leastPageSize   = 1 << 20 // the largest request of the kernel
	mostPageSize    = 8 << 20
	leastPages      = 4
	mostMemory      = 128 << 20 // memory of all pages

	blockSize = 64 << 10
	blocks    = 256 // 16 MiB

	defaultReadTimeout = 2 * time.Minute
)

// Options change how a mount behaves. The zero value is right for most.
type Options struct {
	// PageSize is how much is asked of the host with one request when a file is read
	// sequentially, in bytes. Default 4 MiB: less shows the latency of requests; with more,
	// fewer fit in the memory, and connections stand idle when several files are read at
	// once. It is bounded to 1 to 8 MiB and rounded up to a power of two.
	PageSize int64

	// Pages is how many pages there are, for all files together. Default 32. It is bounded
	// to at least 4, and to what fits in 128 MiB.
	Pages int

	// ReadTimeout is how long a read waits before it fails. Default 2 minutes: longer than a
	// restart of the host's management agents.
	ReadTimeout time.Duration

	// AllowOther lets users other than the one who mounts see the files.
	AllowOther bool

	// Name is the file system's type after "fuse.", by which a stale mount is known. Default
	// decamp.
	Name string

	// Source is what the table of mounts shows as the device: the URL of the host.
	Source string

	// Replace detaches whatever FUSE file system is mounted there, also a living one.
	Replace bool

	Log *slog.Logger // default discards

	Now func() time.Time // the clock; tests replace it
}

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

// powerOfTwo rounds n up.
func powerOfTwo(n int64) int64 {
	p := int64(1)
	for p < n {
		p <<= 1
	}
	return p
}
