package nfs_test

import "testing"

// Files that are made and removed faster than the clock ticks have handles of their own,
// whatever inode they get; and nobody waits for the clock.
func TestHandlesAreNotUsedAgain(t *testing.T) {
	r := newRig(t, nil)
	seen := map[string]string{}
	check := func(what string, h []byte) {
		t.Helper()
		if was, ok := seen[string(h)]; ok {
			t.Fatalf("%s has the handle that %s had", what, was)
		}
		seen[string(h)] = what
	}
	for range 200 {
		check("a file", r.create(r.root, "x"))
		r.nfs(pRemove, r.root, "x").ok()
		check("a folder", r.mkdir(r.root, "x"))
		r.nfs(pRmdir, r.root, "x").ok()
		h, _ := r.nfs(pSymlink, r.root, "x", keep, "y").made()
		check("a link", h)
		r.nfs(pRemove, r.root, "x").ok()
		h = r.create(r.root, "x")
		check("a file that was replaced", h)
		check("a file that replaced it", r.create(r.root, "y"))
		r.nfs(pRename, r.root, "y", r.root, "x").ok()
		r.nfs(pGetattr, h).is(70) // NFS3ERR_STALE
		r.nfs(pRemove, r.root, "x").ok()
	}
}

// BenchmarkLockFile is what ESXi does each time it opens a file and closes it.
func BenchmarkLockFile(b *testing.B) {
	r := newRig(b, nil)
	for b.Loop() {
		r.create(r.root, ".lck-0102030405060708")
		r.nfs(pRemove, r.root, ".lck-0102030405060708").ok()
	}
}
