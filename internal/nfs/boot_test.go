package nfs_test

import (
	"bytes"
	"testing"

	"github.com/decamp/decamp/internal/nfs"
)

// After the machine was off, a file may lack what was acknowledged: a client that writes on
// with FILE_SYNC, and so never looks at the verifier, must not get far. Its mount and
// its folders are as good as before, and so is a file that it looks for again.
func TestFileHandlesAreStaleAfterAnotherBoot(t *testing.T) {
	r := newRig(t, func(o *nfs.Options) { o.Boot = "first" })
	d := r.mkdir(r.root, "d")
	h := r.create(d, "web01-flat.vmdk")
	r.write(h, 0, []byte("half a disk"))
	root := r.root
	r.restart()
	r.write(h, 100, []byte("within one boot it goes on"))
	r.opts.Boot = "second"
	r.restart()
	r.nfs(pWrite, h, uint64(200), 1, 2, "x").is(errStale)
	r.nfs(pGetattr, h).is(errStale)
	r.nfs(pRead, h, uint64(0), 10).is(errStale)
	if !bytes.Equal(r.root, root) {
		t.Error("the root's handle is another one")
	}
	r.getattr(root)
	again := r.lookup(d, "web01-flat.vmdk")
	if bytes.Equal(again, h) {
		t.Error("the file's handle is the same")
	}
	r.write(again, 0, []byte("x"))
}

// With Durable nothing that was acknowledged is lost, and clients go on.
func TestDurableHandlesOutliveBoots(t *testing.T) {
	r := newRig(t, func(o *nfs.Options) { o.Boot, o.Durable = "first", true })
	h := r.create(r.root, "a")
	r.opts.Boot = "second"
	r.restart()
	r.write(h, 0, []byte("x"))
}
