package mount

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/decamp/decamp/internal/readahead"
)

const defaultReadTimeout = 2 * time.Minute // default of Options.ReadTimeout

// Options change how a mount behaves. The zero value is right for most.
type Options struct {
	// PageSize and Pages are the memory for sequential readers: see readahead.Options.
	PageSize int64
	Pages    int // number of pages for all files together

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

// newCache returns the cache of a mount with these options.
func (o Options) newCache() *readahead.Cache {
	return readahead.New(readahead.Options{PageSize: o.PageSize, Pages: o.Pages, ReadTimeout: o.ReadTimeout, Now: o.Now})
}
