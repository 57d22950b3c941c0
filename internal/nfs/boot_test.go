package nfs_test

import (
	"bytes"
	"testing"

	"github.com/decamp/decamp/internal/nfs"
)

// After a reboot, acknowledged data of a file may be lost. A client that continues to write with FILE_SYNC does not
// check the verifier, so its file handle must be stale. Handles of folders stay valid, and LOOKUP returns a new
// file handle.
func TestFileHandlesAreStaleAfterReboot(t *testing.T) {
	r := newRig(t, func(o *nfs.Options) { o.Boot = "first" })
	d := r.mkdir(r.root, "d")
	h := r.create(d, "web01-flat.vmdk")
	r.write(h, 0, []byte("half a disk"))
	root := r.root
	r.restart()
	r.write(h, 100, []byte("within one boot it goes on"))
	r.opts.Boot = "second"
	r.restart()
	r.callNFS(pWrite, h, uint64(200), 1, 2, "x").wantStatus(errStale)
	r.callNFS(pGetattr, h).wantStatus(errStale)
	r.callNFS(pRead, h, uint64(0), 10).wantStatus(errStale)
	if !bytes.Equal(r.root, root) {
		t.Error("the handle of the root changed")
	}
	r.getattr(root)
	again := r.lookup(d, "web01-flat.vmdk")
	if bytes.Equal(again, h) {
		t.Error("the handle of the file is the same, want a new one")
	}
	r.write(again, 0, []byte("x"))
}

// With Durable no acknowledged data is lost, so file handles stay valid after a reboot.
func TestDurableHandlesSurviveReboot(t *testing.T) {
	r := newRig(t, func(o *nfs.Options) { o.Boot, o.Durable = "first", true })
	h := r.create(r.root, "a")
	r.opts.Boot = "second"
	r.restart()
	r.write(h, 0, []byte("x"))
}
