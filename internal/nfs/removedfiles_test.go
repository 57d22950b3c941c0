package nfs_test

import "testing"

// Files that are created and removed within a clock tick have different handles, even if they get the same inode.
func TestHandlesAreUnique(t *testing.T) {
	r := newRig(t, nil)
	seen := map[string]string{}
	check := func(kind string, h []byte) {
		t.Helper()
		if was, ok := seen[string(h)]; ok {
			t.Fatalf("%s has the same handle as %s before", kind, was)
		}
		seen[string(h)] = kind
	}
	for range 200 {
		check("a file", r.create(r.root, "x"))
		r.callNFS(pRemove, r.root, "x").requireOK()
		check("a folder", r.mkdir(r.root, "x"))
		r.callNFS(pRmdir, r.root, "x").requireOK()
		h, _ := r.callNFS(pSymlink, r.root, "x", emptySattr, "y").decodeCreated()
		check("a link", h)
		r.callNFS(pRemove, r.root, "x").requireOK()
		h = r.create(r.root, "x")
		check("a file that was replaced", h)
		check("a file that replaced it", r.create(r.root, "y"))
		r.callNFS(pRename, r.root, "y", r.root, "x").requireOK()
		r.callNFS(pGetattr, h).wantStatus(70) // NFS3ERR_STALE
		r.callNFS(pRemove, r.root, "x").requireOK()
	}
}

// BenchmarkLockFile measures the calls of ESXi for the lock file each time it opens and closes a file.
func BenchmarkLockFile(b *testing.B) {
	r := newRig(b, nil)
	for b.Loop() {
		r.create(r.root, ".lck-0102030405060708")
		r.callNFS(pRemove, r.root, ".lck-0102030405060708").requireOK()
	}
}
