package nfs_test

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// listEntry is an entry of a listing.
type listEntry struct {
	fileid uint64
	name   string
	cookie uint64
	attr   attr
	handle []byte
}

// readPage returns the entries of one reply and its eof.
func (r *rig) readPage(procedure uint32, dir []byte, cookie uint64, count int) ([]listEntry, bool) {
	r.Helper()
	counts := []any{dir, cookie, uint64(0), count}
	if procedure == pReaddirplus {
		counts = append(counts, count)
	}
	p := r.callNFS(procedure, counts...).requireOK()
	if p.decodePostAttr().kind != 2 || p.Uint64() != 0 {
		r.Fatal("the folder's attributes or the verifier are wrong")
	}
	var out []listEntry
	for p.Bool() {
		e := listEntry{fileid: p.Uint64(), name: p.String(255), cookie: p.Uint64()}
		if procedure == pReaddirplus {
			e.attr = p.decodePostAttr()
			if !p.Bool() {
				r.Fatal("no handle")
			}
			e.handle = p.Opaque(64)
		}
		out = append(out, e)
	}
	eof := p.Bool()
	p.requireEnd()
	return out, eof
}

func (r *rig) listFolder(procedure uint32, dir []byte, count int) []listEntry {
	r.Helper()
	var all []listEntry
	for cookie := uint64(0); ; {
		page, eof := r.readPage(procedure, dir, cookie, count)
		all = append(all, page...)
		if eof {
			return all
		}
		cookie = page[len(page)-1].cookie
	}
}

func (r *rig) listNames(dir []byte, count int) []string {
	r.Helper()
	var names []string
	for _, e := range r.listFolder(pReaddir, dir, count) {
		names = append(names, e.name)
	}
	return names
}

func TestListings(t *testing.T) {
	r := newRig(t, nil)
	sub := r.mkdir(r.root, "sub")
	const files = 300
	want := []string{".", ".."}
	for i := range files {
		name := fmt.Sprintf("file %d", i)
		if err := os.WriteFile(r.filePath("sub/"+name), make([]byte, i), 0o644); err != nil {
			t.Fatal(err)
		}
		want = append(want, name)
	}
	if err := unix.Mkfifo(r.filePath("sub/fifo"), 0o644); err != nil { // not listed
		t.Fatal(err)
	}
	slices.Sort(want)
	for _, procedure := range []uint32{pReaddir, pReaddirplus} {
		for _, count := range []int{512, 4096, 32 << 10, 1 << 20} {
			all := r.listFolder(procedure, sub, count)
			var names []string
			for _, e := range all {
				names = append(names, e.name)
				if procedure == pReaddirplus {
					r.sameAsLookup(sub, e)
				}
			}
			slices.Sort(names)
			if !slices.Equal(names, want) {
				t.Errorf("procedure %d with %d bytes: %d names, want %d", procedure, count, len(names), len(want))
			}
			if all[0].fileid != r.getattr(sub).fileid || all[1].fileid != r.getattr(r.root).fileid {
				t.Error("the first two entries are not the folder and its parent")
			}
		}
	}
	r.callNFS(pReaddir, sub, uint64(0), uint64(0), 100).wantStatus(errTooSmall)
	r.callNFS(pReaddirplus, sub, uint64(0), uint64(0), 10, 4096).wantStatus(errTooSmall)
	r.callNFS(pReaddirplus, sub, uint64(0), uint64(0), 4096, 100).wantStatus(errTooSmall)
	if page, eof := r.readPage(pReaddir, sub, 1<<64-1, 4096); len(page) != 0 || !eof {
		t.Error("got entries after the last cookie")
	}
}

func (r *rig) sameAsLookup(dir []byte, e listEntry) {
	r.Helper()
	if h := r.lookup(dir, e.name); !bytes.Equal(h, e.handle) {
		r.Errorf("the handle of %q in a listing differs from that of LOOKUP", e.name)
	}
	if a := r.getattr(e.handle); a != e.attr || a.fileid != e.fileid {
		r.Errorf("the attributes of %q in a listing are %+v, want %+v", e.name, e.attr, a)
	}
}

// A reply is at most as long as the client requested.
func TestListingLengthIsBounded(t *testing.T) {
	r := newRig(t, nil)
	for i := range 100 {
		r.writeFile(fmt.Sprintf("%0*d", 1+i%60, i), "")
	}
	for _, count := range []int{300, 512, 1000, 1024, 4096} {
		r.Send(100003, 3, pReaddir, args(r.root, uint64(0), uint64(0), count))
		const header = 28 // RPC header and status
		if n := len(r.Receive()) - header; n > count {
			t.Errorf("READDIR returned %d bytes, want at most %d", n, count)
		}
		r.Send(100003, 3, pReaddirplus, args(r.root, uint64(0), uint64(0), count, count))
		if n := len(r.Receive()) - header; n > count {
			t.Errorf("READDIRPLUS returned %d bytes, want at most %d", n, count)
		}
	}
}

// Cookies stay valid while names are created and removed, as in the telldir test of cthon04. Each name that exists
// during the whole listing is listed exactly once.
func TestCookiesOfChangingFolder(t *testing.T) {
	r := newRig(t, nil)
	const files = 200
	for i := range files {
		r.writeFile(fmt.Sprint(i), "")
	}
	seen := map[string]int{}
	var cookies []uint64
	for cookie, round := uint64(0), 0; ; round++ {
		page, eof := r.readPage(pReaddir, r.root, cookie, 512)
		for _, e := range page {
			seen[e.name]++
			cookies = append(cookies, e.cookie)
			cookie = e.cookie
		}
		if eof {
			break
		}
		// Every third name is removed and created again, and new names are added.
		for i := 0; i < files; i += 3 {
			r.callNFS(pRemove, r.root, fmt.Sprint(i)).requireOK()
		}
		if round == 2 {
			r.restart()
		}
		for i := 0; i < files; i += 3 {
			r.create(r.root, fmt.Sprint(i))
		}
		r.create(r.root, fmt.Sprint("new", round))
	}
	for i := range files {
		if n := seen[fmt.Sprint(i)]; n != 1 {
			t.Errorf("name %d was listed %d times, want once", i, n)
		}
	}
	// The listing after each cookie is shorter than that after the previous one.
	left := len(r.listNames(r.root, 4096))
	for _, c := range cookies {
		page, _ := r.readPage(pReaddir, r.root, c, 64<<10)
		if len(page) >= left {
			t.Fatalf("%d names after a cookie, want fewer than the %d after the previous one", len(page), left)
		}
		left = len(page)
	}
}
