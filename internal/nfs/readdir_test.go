package nfs_test

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// listed is an entry of a listing.
type listed struct {
	fileid uint64
	name   string
	cookie uint64
	attr   attr
	handle []byte
}

// page returns one reply's entries, and whether they are the last.
func (r *rig) page(procedure uint32, dir []byte, cookie uint64, count int) ([]listed, bool) {
	r.Helper()
	counts := []any{dir, cookie, uint64(0), count}
	if procedure == pReaddirplus {
		counts = append(counts, count)
	}
	p := r.nfs(procedure, counts...).ok()
	if p.post().kind != 2 || p.Uint64() != 0 {
		r.Fatal("the folder's attributes or the verifier are wrong")
	}
	var out []listed
	for p.Bool() {
		e := listed{fileid: p.Uint64(), name: p.String(255), cookie: p.Uint64()}
		if procedure == pReaddirplus {
			e.attr = p.post()
			if !p.Bool() {
				r.Fatal("no handle")
			}
			e.handle = p.Opaque(64)
		}
		out = append(out, e)
	}
	eof := p.Bool()
	p.end()
	return out, eof
}

func (r *rig) list(procedure uint32, dir []byte, count int) []listed {
	r.Helper()
	var all []listed
	for cookie := uint64(0); ; {
		page, eof := r.page(procedure, dir, cookie, count)
		all = append(all, page...)
		if eof {
			return all
		}
		cookie = page[len(page)-1].cookie
	}
}

func (r *rig) names(dir []byte, count int) []string {
	r.Helper()
	var names []string
	for _, e := range r.list(pReaddir, dir, count) {
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
		if err := os.WriteFile(r.path("sub/"+name), make([]byte, i), 0o644); err != nil {
			t.Fatal(err)
		}
		want = append(want, name)
	}
	if err := unix.Mkfifo(r.path("sub/fifo"), 0o644); err != nil { // not shown
		t.Fatal(err)
	}
	slices.Sort(want)
	for _, procedure := range []uint32{pReaddir, pReaddirplus} {
		for _, count := range []int{512, 4096, 32 << 10, 1 << 20} {
			all := r.list(procedure, sub, count)
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
				t.Error("the first two are not the folder and the one above")
			}
		}
	}
	r.nfs(pReaddir, sub, uint64(0), uint64(0), 100).is(errTooSmall)
	r.nfs(pReaddirplus, sub, uint64(0), uint64(0), 10, 4096).is(errTooSmall)
	r.nfs(pReaddirplus, sub, uint64(0), uint64(0), 4096, 100).is(errTooSmall)
	if page, eof := r.page(pReaddir, sub, 1<<64-1, 4096); len(page) != 0 || !eof {
		t.Error("there is something behind the end")
	}
}

func (r *rig) sameAsLookup(dir []byte, e listed) {
	r.Helper()
	if h := r.lookup(dir, e.name); !bytes.Equal(h, e.handle) {
		r.Errorf("%q has another handle in a listing", e.name)
	}
	if a := r.getattr(e.handle); a != e.attr || a.fileid != e.fileid {
		r.Errorf("%q has other attributes in a listing: %+v, %+v", e.name, e.attr, a)
	}
}

// A reply is never longer than the client asked for.
func TestListingsKeepTheirBound(t *testing.T) {
	r := newRig(t, nil)
	for i := range 100 {
		r.put(fmt.Sprintf("%0*d", 1+i%60, i), "")
	}
	for _, count := range []int{300, 512, 1000, 1024, 4096} {
		r.Send(100003, 3, pReaddir, args(r.root, uint64(0), uint64(0), count))
		const header = 28 // of RPC, and the status
		if n := len(r.Receive()) - header; n > count {
			t.Errorf("READDIR of %d bytes has %d", count, n)
		}
		r.Send(100003, 3, pReaddirplus, args(r.root, uint64(0), uint64(0), count, count))
		if n := len(r.Receive()) - header; n > count {
			t.Errorf("READDIRPLUS of %d bytes has %d", count, n)
		}
	}
}

// What cthon04's telldir test does: names are removed and made while the folder is read,
// and reading goes on from every cookie there was. What was there all the time is shown
// exactly once.
func TestCookiesHoldWhileTheFolderChanges(t *testing.T) {
	r := newRig(t, nil)
	const files = 200
	for i := range files {
		r.put(fmt.Sprint(i), "")
	}
	seen := map[string]int{}
	var cookies []uint64
	for cookie, round := uint64(0), 0; ; round++ {
		page, eof := r.page(pReaddir, r.root, cookie, 512)
		for _, e := range page {
			seen[e.name]++
			cookies = append(cookies, e.cookie)
			cookie = e.cookie
		}
		if eof {
			break
		}
		// Every third name goes and comes back, and others come.
		for i := 0; i < files; i += 3 {
			r.nfs(pRemove, r.root, fmt.Sprint(i)).ok()
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
			t.Errorf("%d was shown %d times", i, n)
		}
	}
	// From each cookie on, the listing has what it had: fewer and fewer.
	left := len(r.names(r.root, 4096))
	for _, c := range cookies {
		page, _ := r.page(pReaddir, r.root, c, 64<<10)
		if len(page) >= left {
			t.Fatalf("%d names behind a cookie, %d behind the one before", len(page), left)
		}
		left = len(page)
	}
}
