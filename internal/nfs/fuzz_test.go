package nfs_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/nfs/rpctest"
	"github.com/decamp/decamp/internal/nfs/xdr"
)

// fenced is a rig whose export has a neighbour, and links that lead there: what another
// user of this machine may put in the way.
type fenced struct {
	*rig
	outside string
	before  string // what it is
}

func newFenced(f *testing.F) *fenced {
	f.Helper()
	r := &fenced{rig: newRig(f, nil)}
	r.outside = filepath.Join(filepath.Dir(r.dir), "outside")
	for _, err := range []error{
		os.Mkdir(r.outside, 0o755),
		os.WriteFile(filepath.Join(r.outside, "secret"), []byte("not for clients"), 0o640),
		os.Symlink("../outside", r.path("out")),
		os.Symlink("../outside/secret", r.path("outfile")),
		os.Symlink("/", r.path("slash")),
	} {
		if err != nil {
			f.Fatal(err)
		}
	}
	r.before = r.surroundings(f)
	return r
}

// surroundings lists everything beside the export with its identity, content and times.
func (r *fenced) surroundings(t testing.TB) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(filepath.Dir(r.dir), func(path string, d fs.DirEntry, err error) error {
		if path == r.dir {
			return fs.SkipDir
		}
		var st unix.Stat_t
		if err == nil {
			err = unix.Lstat(path, &st)
		}
		if d.IsDir() {
			st.Mtim, st.Ctim = unix.Timespec{}, unix.Timespec{} // the export is in it
		}
		var text []byte
		if err == nil && d.Type().IsRegular() {
			text, err = os.ReadFile(path)
		}
		fmt.Fprintln(&all, path, st.Ino, st.Mode, st.Nlink, st.Uid, st.Size, st.Mtim, st.Ctim, text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// untouched fails if anything beside the export changed.
func (r *fenced) untouched(t *testing.T) {
	t.Helper()
	if now := r.surroundings(t); now != r.before {
		t.Fatalf("what is beside the export was\n%sand is\n%s", r.before, now)
	}
}

// FuzzArguments calls every procedure with any bytes after a good handle. Whatever they
// are, the reply is one of that procedure or says that the arguments are garbage, what is
// beside the export stays as it is, and the server goes on.
func FuzzArguments(f *testing.F) {
	rig := newFenced(f)
	file := rig.create(rig.root, "file")
	for procedure, seeds := range map[uint32][][]byte{
		pGetattr: {nil}, pFsstat: {nil}, pFsinfo: {nil}, pPathconf: {nil}, pReadlink: {nil},
		pSetattr:     {args(sized(10), 0), args(moded(0o600), raw(args(1, 5, 6)))},
		pLookup:      {args("file"), args(".."), args("out"), args("out/secret")},
		pAccess:      {args(0x3f)},
		pRead:        {args(uint64(0), 100)},
		pWrite:       {args(uint64(0), 4, 2, "data")},
		pCreate:      {args("new", 0, keep), args("new", 2, uint64(77)), args("../x", 1, keep), args("outfile", 0, sized(0))},
		pMkdir:       {args("dir", keep)},
		pSymlink:     {args("link", keep, "../../outside")},
		pMknod:       {args("dev", 4, keep, 1, 3)},
		pRemove:      {args("new")},
		pRmdir:       {args("dir")},
		pRename:      {args("new", rig.root, "newer"), args("out", rig.root, "newer")},
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
		if len(rest) > 32<<10 || procedure > pCommit {
			t.Skip()
		}
		handle := rig.root
		if onFile {
			handle = file
		}
		c := rpctest.Dial(t, rig.addr)
		defer c.Close()
		c.Send(100003, 3, uint32(procedure), append(args(handle), rest...))
		if _, err := checkReply(uint32(procedure), c.Receive()); err != nil {
			t.Fatalf("procedure %d: %v", procedure, err)
		}
		rig.untouched(t)
	})
}

// script takes from a fuzzer's input what a sequence of calls needs.
type script struct {
	*bytes.Reader
	handles [][]byte
}

func (s *script) byte() byte {
	b, _ := s.ReadByte() // 0 at the end
	return b
}

func (s *script) handle() []byte { return s.handles[int(s.byte())%len(s.handles)] }

func (s *script) name() string {
	names := []string{"a", "b", "out", "outfile", "slash", "..", ".", "", "a/b", "/", "\x00", strings.Repeat("n", 255), strings.Repeat("n", 256), "c"}
	return names[int(s.byte())%len(names)]
}

// offset is small, or near one of the bounds.
func (s *script) offset() uint64 {
	edges := []uint64{0, 4095, 1 << 20, 1 << 32, 1<<63 - 1, 1 << 63, 1<<64 - 1}
	b := s.byte()
	return edges[int(b)%len(edges)] + uint64(b/8)
}

func (s *script) attributes() raw {
	switch s.byte() % 4 {
	case 0:
		return sized(uint64(s.byte()) * 1000)
	case 1:
		return moded(int(s.byte()) << 4)
	case 2:
		return sized(s.offset())
	}
	return keep
}

// call makes the arguments of one call.
func (s *script) call() (procedure uint32, in []byte) {
	procedure = uint32(s.byte()) % (pCommit + 1)
	h := s.handle()
	switch procedure {
	case 0:
		return procedure, nil
	case pSetattr:
		return procedure, args(h, s.attributes(), 0)
	case pLookup, pRemove, pRmdir:
		return procedure, args(h, s.name())
	case pAccess:
		return procedure, args(h, int(s.byte()))
	case pRead:
		return procedure, args(h, s.offset(), int(s.byte())<<9)
	case pWrite:
		n := int(s.byte()) << 3
		return procedure, args(h, s.offset(), n, int(s.byte()%4), make([]byte, n))
	case pCreate:
		if how := int(s.byte() % 4); how == 2 {
			return procedure, args(h, s.name(), how, uint64(s.byte()))
		} else {
			return procedure, args(h, s.name(), how, s.attributes())
		}
	case pMkdir:
		return procedure, args(h, s.name(), s.attributes())
	case pSymlink:
		return procedure, args(h, s.name(), keep, "../"+s.name())
	case pMknod:
		return procedure, args(h, s.name(), int(s.byte()%9), keep)
	case pRename:
		return procedure, args(h, s.name(), s.handle(), s.name())
	case pLink:
		return procedure, args(h, s.handle(), s.name())
	case pReaddir:
		return procedure, args(h, s.offset(), uint64(0), int(s.byte())<<4)
	case pReaddirplus:
		return procedure, args(h, s.offset(), uint64(0), int(s.byte())<<4, int(s.byte())<<6)
	case pCommit:
		return procedure, args(h, s.offset(), int(s.byte()))
	}
	return procedure, args(h)
}

// learn keeps the handle that a call returned.
func (s *script) learn(procedure uint32, results []byte) {
	d := xdr.NewDecoder(bytes.NewReader(results))
	const most = 8
	if len(results) == 0 || d.Uint32() != 0 || len(s.handles) == most {
		return
	}
	switch procedure {
	case pLookup:
	case pCreate, pMkdir, pSymlink:
		if !d.Bool() {
			return
		}
	default:
		return
	}
	s.handles = append(s.handles, d.Opaque(64))
}

// FuzzCalls makes calls one after the other with handles that earlier ones returned, on
// files that have gone meanwhile, too, and links that lead out of the export. Every reply
// has its shape, and nothing beside the export changes.
func FuzzCalls(f *testing.F) {
	rig := newFenced(f)
	f.Add([]byte{pCreate, 0, 0, 0, 0, 3, pWrite, 2, 0, 9, 2, pRead, 2, 0, 1, pRemove, 0, 0, pRead, 2, 0, 1})
	f.Add([]byte{pMkdir, 0, 1, 3, pRename, 0, 2, 2, 0, pLookup, 0, 2, pLookup, 3, 0, pReaddirplus, 0, 0, 255, 255})
	f.Add([]byte{pLookup, 0, 2, pLookup, 2, 0, pReadlink, 2, pCreate, 2, 0, 0, 3, pLookup, 0, 3, pWrite, 2, 0, 4, 2, pSetattr, 2, 0, 0})
	f.Add([]byte{pSymlink, 0, 0, 2, pLink, 2, 0, 1, pSymlink, 0, 0, 5, pRename, 0, 0, 0, 1, pRemove, 0, 1})
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > 1<<10 {
			t.Skip()
		}
		c := rpctest.Dial(t, rig.addr)
		defer c.Close()
		s := &script{Reader: bytes.NewReader(in), handles: [][]byte{rig.root, make([]byte, 32)}}
		for s.Len() > 0 {
			procedure, arguments := s.call()
			xid := c.Send(100003, 3, procedure, arguments)
			reply := c.Receive()
			results, err := checkReply(procedure, reply)
			if err != nil || binary.BigEndian.Uint32(reply) != xid {
				t.Fatalf("procedure %d, arguments % x: %v", procedure, arguments, err)
			}
			s.learn(procedure, results)
		}
		rig.untouched(t)
	})
}

// FuzzMount calls every procedure of MOUNT with any bytes.
func FuzzMount(f *testing.F) {
	rig := newFenced(f)
	rig.mkdir(rig.mkdir(rig.root, "a"), "b")
	for _, path := range []string{"/land", "/land/a", "/land/a/b", "/land/../..", "/land/out", "/land//a/", "", "/", "/land/a\x00b"} {
		for procedure := range uint8(6) {
			f.Add(procedure, args(path))
		}
	}
	mounts := map[uint8]shape{
		0: list(), 2: chain(list(opaque(1, 255), opaque(1, 1024))), 3: list(), 4: list(),
		5: chain(list(opaque(1, 1024), chain(opaque(1, 255)))),
	}
	f.Fuzz(func(t *testing.T, procedure uint8, in []byte) {
		if len(in) > 2<<10 || procedure > 5 {
			t.Skip()
		}
		c := rpctest.Dial(t, rig.addr)
		defer c.Close()
		c.Send(100005, 3, uint32(procedure), in)
		results, garbage, err := accepted(c.Receive())
		if err != nil {
			t.Fatalf("procedure %d: %v", procedure, err)
		}
		if garbage {
			return
		}
		r := bytes.NewReader(results)
		d := xdr.NewDecoder(r)
		if procedure == 1 {
			mountsAFolder(t, c, d)
		} else {
			mounts[procedure](d)
		}
		if d.Err() != nil || rest(r) != nil {
			t.Fatalf("procedure %d answers % x: %v", procedure, results, d.Err())
		}
	})
}

// mountsAFolder takes what MNT returns: a refusal, or the handle of a folder of the export.
func mountsAFolder(t *testing.T, c *rpctest.Client, d *xdr.Decoder) {
	t.Helper()
	if d.Uint32() != 0 {
		return
	}
	handle := d.Opaque(64)
	words(int(d.Uint32()))(d)
	e := c.Call(100003, 3, pGetattr, args(handle))
	if e.Uint32() != 0 || e.Uint32() != 2 {
		t.Fatal("it mounts what is no folder")
	}
}

// FuzzMountPath mounts any path: it is refused, or a folder of the export.
func FuzzMountPath(f *testing.F) {
	rig := newFenced(f)
	rig.mkdir(rig.mkdir(rig.root, "a"), "b")
	for _, seed := range []string{"/land", "/land/a", "/land/a/b", "/land/../..", "/land/slash", "/land/out", "/land//a/", "", "/"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		if len(path) > 1024 {
			t.Skip()
		}
		c := rpctest.Dial(t, rig.addr)
		defer c.Close()
		mountsAFolder(t, c, c.Call(100005, 3, 1, args(path)))
	})
}
