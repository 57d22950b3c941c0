package nfsclient

import (
	"context"
	"errors"
	"fmt"

	"github.com/decamp/decamp/internal/lab/xdr"
)

// Entry is an entry of a directory.
type Entry struct {
	Name string // name without a path
	Attr Attr   // attributes of the file
}

const (
	dirCount   = 8 << 10  // bytes of names wanted in one READDIRPLUS
	dirMax     = 32 << 10 // bytes of its whole reply
	maxEntries = 1 << 20  // most entries of a directory: a longer listing is considered endless
)

// A page is the position in a listing, and the entries of one READDIRPLUS.
type page struct {
	cookie  uint64           // cookie of the last entry; 0 at the beginning
	verf    [cookieVerf]byte // cookie verifier of the server
	entries []dirEntry       // entries of the last reply
	eof     bool             // whether the last reply ended the listing
}

// A dirEntry is an entry as the server sent it.
type dirEntry struct {
	name   string // name without a path
	fileID uint64 // fileid in the entry itself
	attr   postOp // attributes; the server may omit them
	handle Handle // handle; empty if the server omits it
}

// readDir lists a directory without "." and "..". Duplicate names are an error.
func (d *Datastore) readDir(ctx context.Context, dir Handle) (all []Entry, err error) {
	p := page{}
	names := map[string]bool{}
	for !p.eof {
		if err := d.readPage(ctx, dir, &p); err != nil {
			return nil, err
		}
		for _, e := range p.entries {
			if names[e.name] || len(names) > maxEntries {
				return nil, fmt.Errorf("READDIRPLUS: %q comes twice, or the listing does not end", e.name)
			}
			names[e.name] = true
			if e.name == "." || e.name == ".." {
				continue
			}
			entry, err := d.completeEntry(ctx, dir, e)
			if err != nil {
				return nil, err
			}
			all = append(all, entry)
		}
	}
	return all, nil
}

// completeEntry returns the entry with attributes, which a LOOKUP gets if the server omitted them. It
// fails if fileids contradict each other.
func (d *Datastore) completeEntry(ctx context.Context, dir Handle, e dirEntry) (Entry, error) {
	if !e.attr.present {
		_, a, err := d.lookup(ctx, dir, e.name)
		return Entry{e.name, a}, err
	}
	if e.fileID != e.attr.FileID {
		return Entry{}, fmt.Errorf("READDIRPLUS: %q has fileid %d in the listing, %d in its attributes: %w", e.name, e.fileID, e.attr.FileID, ErrFileID)
	}
	return Entry{e.name, e.attr.Attr}, d.checkFileID(e.handle, e.attr)
}

// readPage reads the entries after p into p.
func (d *Datastore) readPage(ctx context.Context, dir Handle, p *page) error {
	from := *p
	err := d.call(ctx, request{
		proc: procReadDir,
		args: func(e *xdr.Encoder) {
			e.Opaque([]byte(dir))
			e.Uint64(from.cookie)
			e.Fixed(from.verf[:])
			e.Uint32(dirCount)
			e.Uint32(dirMax)
		},
		ok: p.readFrom, failed: ignorePostOp,
	})
	if err == nil && len(p.entries) == 0 && !p.eof {
		err = errors.New("READDIRPLUS: no entries and not the end")
	}
	return err
}

// readFrom decodes the results of a READDIRPLUS.
func (p *page) readFrom(x *xdr.Decoder) {
	readPostOp(x)
	copy(p.verf[:], x.Fixed(cookieVerf))
	p.entries = nil
	for x.Bool() {
		var e dirEntry
		e.fileID, e.name = x.Uint64(), x.String(maxName)
		p.cookie = x.Uint64()
		e.attr = readPostOp(x)
		if x.Bool() {
			e.handle = readHandle(x)
		}
		p.entries = append(p.entries, e)
	}
	p.eof = x.Bool()
}
