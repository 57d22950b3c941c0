package esx

import (
	"slices"
	"strings"
	"sync"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// place is a datastore as /folder's query names it.
type datastoreKey struct{ datacenter, datastore string }

// encodings remembers the places whose names had to be encoded twice.
type encodings struct {
	mu    sync.Mutex
	twice map[datastoreKey]bool
}

func (e *encodings) get(p datastoreKey) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.twice[p]
}

func (e *encodings) set(p datastoreKey) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.twice == nil {
		e.twice = map[datastoreKey]bool{}
	}
	e.twice[p] = true
}

// FileURI returns the request URI of a datastore file: the path encoded once, the
// datacenter (an inventory path, as inventory.VM has it) and the datastore as query.
//
// libvirt and virt-v2v encode those two query values twice for a vCenter, because some
// decode them twice; ESXi and other vCenters decode once. Neither form suits both, so
// ReadFile finds out: it tries the plain form first and, where a vCenter refuses that,
// the other; FileURI then repeats what worked for that datastore. A transport reads a
// disk's descriptor before its data, so by then it is known.
func (s *fileReader) FileURI(datacenter string, p inventory.Path) (string, error) {
	return folderURI(datastoreKey{datacenter, p.Datastore}, p.File, s.encoded.get(datastoreKey{datacenter, p.Datastore}))
}

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

// checkFile refuses what could name a file outside the datastore.
func checkFile(at datastoreKey, file string) error {
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

// percentEncode encodes every byte of s but RFC 3986's unreserved ones. url.PathEscape and
// QueryEscape leave or make characters that servers read differently: + & $ ' ( ) *.
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

func isUnreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}
