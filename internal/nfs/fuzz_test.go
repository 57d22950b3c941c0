package nfs_test

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/decamp/decamp/internal/nfs/rpctest"
)

// FuzzArguments calls every procedure with any bytes after a good handle. Whatever they
// are, the reply has a shape, the folder beside the export stays as it is, and the server
// goes on.
func FuzzArguments(f *testing.F) {
	rig := newRig(f, nil)
	outside := filepath.Join(filepath.Dir(rig.dir), "outside")
	if err := os.Mkdir(outside, 0o755); err != nil {
		f.Fatal(err)
	}
	beside := func(t *testing.T) []string {
		entries, err := os.ReadDir(filepath.Dir(rig.dir))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	file := rig.create(rig.root, "file")
	for procedure, seeds := range map[uint32][][]byte{
		pGetattr: {nil}, pFsstat: {nil}, pFsinfo: {nil}, pPathconf: {nil}, pReadlink: {nil},
		pSetattr:     {args(sized(10), 0), args(moded(0o600), raw(args(1, 5, 6)))},
		pLookup:      {args("file"), args("..")},
		pAccess:      {args(0x3f)},
		pRead:        {args(uint64(0), 100)},
		pWrite:       {args(uint64(0), 4, 2, "data")},
		pCreate:      {args("new", 0, keep), args("new", 2, uint64(77)), args("../x", 1, keep)},
		pMkdir:       {args("dir", keep)},
		pSymlink:     {args("link", keep, "../../outside")},
		pMknod:       {args("dev", 4, keep, 1, 3)},
		pRemove:      {args("new")},
		pRmdir:       {args("dir")},
		pRename:      {args("new", rig.root, "newer")},
		pLink:        {args(rig.root, "other")},
		pReaddir:     {args(uint64(0), uint64(0), 4096)},
		pReaddirplus: {args(uint64(0), uint64(0), 512, 4096)},
		pCommit:      {args(uint64(0), 0)},
	} {
		for _, seed := range seeds {
			f.Add(uint8(procedure), false, seed)
			f.Add(uint8(procedure), true, seed)
		}
	}
	f.Fuzz(func(t *testing.T, procedure uint8, onFile bool, rest []byte) {
		if len(rest) > 32<<10 || procedure > 22 {
			t.Skip()
		}
		handle := rig.root
		if onFile {
			handle = file
		}
		before := beside(t)
		c := rpctest.Dial(t, rig.addr)
		c.Send(100003, 3, uint32(procedure), append(args(handle), rest...))
		reply := c.Receive()
		c.Close()
		if len(reply) < 24 || len(reply)%4 != 0 || binary.BigEndian.Uint32(reply[4:]) != 1 || binary.BigEndian.Uint32(reply[8:]) != 0 {
			t.Fatalf("reply % x", reply)
		}
		if !slices.Equal(beside(t), before) {
			t.Fatal("something beside the export changed")
		}
	})
}

// FuzzMountPath mounts any path: it is refused, or a folder of the export.
func FuzzMountPath(f *testing.F) {
	rig := newRig(f, nil)
	rig.mkdir(rig.mkdir(rig.root, "a"), "b")
	if err := os.Symlink("/", rig.path("a/link")); err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{"/land", "/land/a", "/land/a/b", "/land/../..", "/land/a/link", "/land//a/", "", "/"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		if len(path) > 1024 {
			t.Skip()
		}
		c := rpctest.Dial(t, rig.addr)
		defer c.Close()
		d := c.Call(100005, 3, 1, args(path))
		if d.Uint32() != 0 {
			return
		}
		handle := d.Opaque(64)
		e := c.Call(100003, 3, pGetattr, args(handle))
		if e.Uint32() != 0 || e.Uint32() != 2 {
			t.Fatalf("%q mounts what is no folder", path)
		}
	})
}
