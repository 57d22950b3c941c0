package esx

import (
	"slices"
	"strings"
	"sync"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// datastoreKey identifies a datastore in the query of a /folder URI.
type datastoreKey struct{ datacenter, datastore string }

// encodings contains the datastores whose names must be encoded twice. It is safe for
// concurrent use; the zero value is empty.
type encodings struct {
	mu    sync.Mutex            // protects twice
	twice map[datastoreKey]bool // true for names that the server decodes twice; nil until the first
}

// get reports whether the names of p must be encoded twice.
func (e *encodings) get(p datastoreKey) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.twice[p]
}

// set records that the names of p must be encoded twice.
func (e *encodings) set(p datastoreKey) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.twice == nil {
		e.twice = map[datastoreKey]bool{}
	}
	e.twice[p] = true
}

// FileURI returns the request URI of a datastore file: the path encoded once, the
// datacenter (an inventory path, as in inventory.VM) and the datastore as query.
//
// libvirt and virt-v2v encode these two query values twice for a vCenter, because some
// decode them twice. ESXi and other vCenters decode them once. ReadFile therefore tries
// the plain form first and, if a vCenter refuses it, the other. FileURI uses the form
// that worked for the datastore. A transport reads the descriptor of a disk before its
// data, so the form is known by then.
func (s *fileReader) FileURI(datacenter string, p inventory.Path) (string, error) {
	return folderURI(datastoreKey{datacenter, p.Datastore}, p.File, s.encoded.get(datastoreKey{datacenter, p.Datastore}))
}

// folderURI returns the URI of a file, with datacenter and datastore encoded once or
// twice. It fails for paths that could leave the datastore.
func folderURI(at datastoreKey, file string, twice bool) (string, error) {
	if err := checkFile(at, file); err != nil {
		return "", err
	}
	segments := strings.Split(file, "/")
	for i, seg := range segments {
		segments[i] = percentEncode(seg)
	}
	dc, ds := percentEncode(at.datacenter), percentEncode(at.datastore)
	if twice {
		dc, ds = percentEncode(dc), percentEncode(ds)
	}
	return "/folder/" + strings.Join(segments, "/") + "?dcPath=" + dc + "&dsName=" + ds, nil
}

// checkFile returns fault.Invalid for a path with empty, "." or ".." elements or a NUL,
// which could name a file outside the datastore.
func checkFile(at datastoreKey, file string) error {
	// An empty element could start an absolute path or end a folder's path.
	bad := func(seg string) bool { return seg == "" || seg == "." || seg == ".." }
	switch {
	case at.datastore == "":
		return fault.New(fault.Invalid, "file %q: no datastore named", file)
	case strings.ContainsRune(file+at.datastore+at.datacenter, 0):
		return fault.New(fault.Invalid, "file %q on datastore %q: a NUL in the name", file, at.datastore)
	case slices.ContainsFunc(strings.Split(file, "/"), bad):
		return fault.New(fault.Invalid, "file %q on datastore %q: not a plain relative path", file, at.datastore)
	}
	return nil
}

// percentEncode encodes all bytes of s except RFC 3986's unreserved characters.
// url.PathEscape and QueryEscape keep or produce characters that servers interpret
// differently: + & $ ' ( ) *.
func percentEncode(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; isUnreserved(c) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	return b.String()
}

// isUnreserved reports whether c is an unreserved character of RFC 3986, section 2.3.
func isUnreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}
