package nfs

import (
	"context"

	"github.com/decamp/decamp/internal/nfs/xdr"
)

// maxListing bounds the reply of READDIR and READDIRPLUS, in bytes. Clients request less.
const maxListing = 64 << 10

// Sizes in a listing's reply (RFC 1813 sections 3.3.16 and 3.3.17).
const (
	wordBytes    = 4                        // XDR integer or boolean
	hyperBytes   = 8                        // XDR hyper integer
	verfBytes    = 8                        // cookie verifier
	listingEnd   = 2 * wordBytes            // end of the list: no further entry, and the eof flag
	fixedOfEntry = wordBytes + 2*hyperBytes // entry without its name: "follows" flag, fileid and cookie
)

// listProcedures answers READDIR and READDIRPLUS. It has no lock. A folder's names are read with the
// folder's changing held.
type listProcedures struct{ files *fileCache }

// readdirArgs is READDIR3args or READDIRPLUS3args. The cookie verifier is ignored: cookies never
// expire, see cookieOf.
type readdirArgs struct {
	target
	cookie   uint64 // the listing continues after it; 0 starts it
	names    int    // limit for names, fileids and cookies in bytes: dircount. READDIR has no such limit.
	all      int    // limit for the whole result, in bytes
	withAttr bool   // READDIRPLUS: entries have attributes and handles
}

// decodeReaddirArgs decodes READDIR3args (RFC 1813 section 3.3.16).
func (ad *argDecoder) decodeReaddirArgs(d *xdr.Decoder) readdirArgs {
	a := readdirArgs{target: ad.decodeTarget(d), cookie: d.Uint64()}
	_ = d.Uint64()
	a.all = int(min(d.Uint32(), maxListing))
	a.names = a.all
	return a
}

// decodeReaddirplusArgs decodes READDIRPLUS3args (RFC 1813 section 3.3.17).
func (ad *argDecoder) decodeReaddirplusArgs(d *xdr.Decoder) readdirArgs {
	a := readdirArgs{target: ad.decodeTarget(d), cookie: d.Uint64(), withAttr: true}
	_ = d.Uint64()
	a.names, a.all = int(min(d.Uint32(), maxListing)), int(min(d.Uint32(), maxListing))
	return a
}

// replySize returns the memory that the reply may need, in bytes.
func (a readdirArgs) replySize() int { return a.all + replyRoom }

// serveReaddir answers READDIR.
func (p *listProcedures) serveReaddir(_ context.Context, _ caller, a readdirArgs) result {
	return p.listFolder(a)
}

// serveReaddirplus answers READDIRPLUS.
func (p *listProcedures) serveReaddirplus(_ context.Context, _ caller, a readdirArgs) result {
	return p.listFolder(a)
}

// listFolder returns one page of a folder. It fails with statusTooSmall if the limits exclude even one
// entry.
func (p *listProcedures) listFolder(a readdirArgs) result {
	if err := checkFolder(a.target); err != nil {
		return result{err: err, fail: p.files.postOpAttrOf(a.target).encode}
	}
	folder, err := a.node.export.openNode(a.node)
	if err != nil {
		return result{err: err, fail: postOpAttr{}.encode}
	}
	defer folder.close()
	v := postOpAttr{folder.attr, a.node.export.id}
	entries, err := entriesFrom(a, folder)
	if err != nil {
		return result{err: err, fail: v.encode}
	}
	page := p.encodePage(a, folder, entries)
	if page == nil {
		return result{err: statusTooSmall, fail: v.encode}
	}
	return result{ok: func(e *xdr.Encoder) {
		v.encode(e)
		e.Uint64(0) // the verifier
		e.Raw(page)
	}}
}

// entriesFrom returns the entries after a.cookie, including "." and "..". It locks the folder while it
// reads the names.
func entriesFrom(a readdirArgs, folder *object) ([]entry, error) {
	a.node.changing.Lock()
	listed, err := a.node.listNames(folder)
	a.node.changing.Unlock()
	if err != nil {
		return nil, err
	}
	var out []entry
	if a.cookie < cookieDot {
		out = append(out, entry{name: ".", ino: a.node.id.ino, cookie: cookieDot})
	}
	if a.cookie < cookieDotDot {
		out = append(out, entry{name: "..", ino: a.node.export.parentOf(a.node).id.ino, cookie: cookieDotDot})
	}
	return append(out, behindCookie(listed, a.cookie)...), nil
}

// encodePage encodes as many entries as the limits of a allow, and the end of the list. It returns nil
// if not even one entry fits.
func (p *listProcedures) encodePage(a readdirArgs, folder *object, entries []entry) []byte {
	room := a.all - postOpAttrSize - verfBytes - listingEnd
	var e xdr.Encoder
	names := 0
	for i, entry := range entries {
		size := fixedOfEntry + xdr.OpaqueSize(len(entry.name))
		before := e.Len()
		e.Bool(true)
		e.Uint64(entry.ino)
		e.String(entry.name)
		e.Uint64(entry.cookie)
		if a.withAttr {
			p.encodeEntry(&e, a.node, folder, entry.name)
		}
		if names += size; names > a.names || e.Len() > room {
			e.Truncate(before)
			if i == 0 {
				return nil
			}
			e.Bool(false)
			e.Bool(false) // not the end
			return e.Bytes()
		}
	}
	e.Bool(false)
	e.Bool(true)
	return e.Bytes()
}

// postOpAttrSize is the size of a post_op_attr with attributes, in bytes: a flag and fattr3.
const postOpAttrSize = wordBytes + 84

// encodeEntry appends the attributes and the handle of an entry. It appends neither if the file was
// removed meanwhile.
func (p *listProcedures) encodeEntry(e *xdr.Encoder, parent *node, folder *object, name string) {
	n := listedNode(parent, folder, name)
	if n == nil {
		postOpAttr{}.encode(e)
		e.Bool(false)
		return
	}
	p.files.postOpAttrOf(target{node: n}).encode(e)
	e.Bool(true)
	e.Opaque(n.export.handleOf(n))
}

// listedNode returns the node of an entry in an open folder; nil if it does not exist any more.
func listedNode(parent *node, folder *object, name string) *node {
	switch name {
	case ".":
		return parent
	case "..":
		return parent.export.parentOf(parent)
	}
	n, _, err := parent.export.lookUpName(parent, folder, name)
	if err != nil {
		return nil
	}
	return n
}
