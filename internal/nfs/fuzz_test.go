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

// fencedRig is a rig with a folder beside the export and links from the export to it, as another user of this
// machine could create.
type fencedRig struct {
	*rig
	outside            string
	surroundingsBefore string // listing before the calls
}

func newFencedRig(f *testing.F) *fencedRig {
	f.Helper()
	r := &fencedRig{rig: newRig(f, nil)}
	r.outside = filepath.Join(filepath.Dir(r.dir), "outside")
	for _, err := range []error{
		os.Mkdir(r.outside, 0o755),
		os.WriteFile(filepath.Join(r.outside, "secret"), []byte("not for clients"), 0o640),
		os.Symlink("../outside", r.filePath("out")),
		os.Symlink("../outside/secret", r.filePath("outfile")),
		os.Symlink("/", r.filePath("slash")),
	} {
		if err != nil {
			f.Fatal(err)
		}
	}
	r.surroundingsBefore = r.listSurroundings(f)
	return r
}

// listSurroundings lists all files beside the export with their identity, content and times.
func (r *fencedRig) listSurroundings(t testing.TB) string {
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
			st.Mtim, st.Ctim = unix.Timespec{}, unix.Timespec{} // changes of the export affect them
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

// requireUntouched fails if a file beside the export has changed.
func (r *fencedRig) requireUntouched(t *testing.T) {
	t.Helper()
	if now := r.listSurroundings(t); now != r.surroundingsBefore {
		t.Fatalf("files beside the export changed from\n%sto\n%s", r.surroundingsBefore, now)
	}
}

// FuzzArguments calls each procedure with random bytes after a valid handle. The reply has the layout of the
// procedure or is GARBAGE_ARGS, the files beside the export do not change, and the server continues.
func FuzzArguments(f *testing.F) {
	rig := newFencedRig(f)
	file := rig.create(rig.root, "file")
	for procedure, seeds := range map[uint32][][]byte{
		pGetattr: {nil}, pFsstat: {nil}, pFsinfo: {nil}, pPathconf: {nil}, pReadlink: {nil},
		pSetattr:     {args(sizeSattr(10), 0), args(modeSattr(0o600), raw(args(1, 5, 6)))},
		pLookup:      {args("file"), args(".."), args("out"), args("out/secret")},
		pAccess:      {args(0x3f)},
		pRead:        {args(uint64(0), 100)},
		pWrite:       {args(uint64(0), 4, 2, "data")},
		pCreate:      {args("new", 0, emptySattr), args("new", 2, uint64(77)), args("../x", 1, emptySattr), args("outfile", 0, sizeSattr(0))},
		pMkdir:       {args("dir", emptySattr)},
		pSymlink:     {args("link", emptySattr, "../../outside")},
		pMknod:       {args("dev", 4, emptySattr, 1, 3)},
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
		rig.requireUntouched(t)
	})
}

// callScript derives a sequence of calls from the input of a fuzzer.
type callScript struct {
	*bytes.Reader
	handles [][]byte
}

func (s *callScript) nextByte() byte {
	b, _ := s.ReadByte() // 0 at the end
	return b
}

func (s *callScript) nextHandle() []byte { return s.handles[int(s.nextByte())%len(s.handles)] }

func (s *callScript) nextName() string {
	names := []string{"a", "b", "out", "outfile", "slash", "..", ".", "", "a/b", "/", "\x00", strings.Repeat("n", 255), strings.Repeat("n", 256), "c"}
	return names[int(s.nextByte())%len(names)]
}

// nextOffset returns an offset that is small or near a limit.
func (s *callScript) nextOffset() uint64 {
	edges := []uint64{0, 4095, 1 << 20, 1 << 32, 1<<63 - 1, 1 << 63, 1<<64 - 1}
	b := s.nextByte()
	return edges[int(b)%len(edges)] + uint64(b/8)
}

func (s *callScript) nextSattr() raw {
	switch s.nextByte() % 4 {
	case 0:
		return sizeSattr(uint64(s.nextByte()) * 1000)
	case 1:
		return modeSattr(int(s.nextByte()) << 4)
	case 2:
		return sizeSattr(s.nextOffset())
	}
	return emptySattr
}

// nextCall returns the procedure and the arguments of one call.
func (s *callScript) nextCall() (procedure uint32, in []byte) {
	procedure = uint32(s.nextByte()) % (pCommit + 1)
	h := s.nextHandle()
	switch procedure {
	case 0:
		return procedure, nil
	case pSetattr:
		return procedure, args(h, s.nextSattr(), 0)
	case pLookup, pRemove, pRmdir:
		return procedure, args(h, s.nextName())
	case pAccess:
		return procedure, args(h, int(s.nextByte()))
	case pRead:
		return procedure, args(h, s.nextOffset(), int(s.nextByte())<<9)
	case pWrite:
		n := int(s.nextByte()) << 3
		return procedure, args(h, s.nextOffset(), n, int(s.nextByte()%4), make([]byte, n))
	case pCreate:
		if how := int(s.nextByte() % 4); how == 2 {
			return procedure, args(h, s.nextName(), how, uint64(s.nextByte()))
		} else {
			return procedure, args(h, s.nextName(), how, s.nextSattr())
		}
	case pMkdir:
		return procedure, args(h, s.nextName(), s.nextSattr())
	case pSymlink:
		return procedure, args(h, s.nextName(), emptySattr, "../"+s.nextName())
	case pMknod:
		return procedure, args(h, s.nextName(), int(s.nextByte()%9), emptySattr)
	case pRename:
		return procedure, args(h, s.nextName(), s.nextHandle(), s.nextName())
	case pLink:
		return procedure, args(h, s.nextHandle(), s.nextName())
	case pReaddir:
		return procedure, args(h, s.nextOffset(), uint64(0), int(s.nextByte())<<4)
	case pReaddirplus:
		return procedure, args(h, s.nextOffset(), uint64(0), int(s.nextByte())<<4, int(s.nextByte())<<6)
	case pCommit:
		return procedure, args(h, s.nextOffset(), int(s.nextByte()))
	}
	return procedure, args(h)
}

// addHandle adds the handle that a call returned.
func (s *callScript) addHandle(procedure uint32, results []byte) {
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

// FuzzCalls makes sequences of calls with handles that earlier calls returned, also of removed files and of links
// out of the export. Each reply has the layout of its procedure, and the files beside the export do not change.
func FuzzCalls(f *testing.F) {
	rig := newFencedRig(f)
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
		s := &callScript{Reader: bytes.NewReader(in), handles: [][]byte{rig.root, make([]byte, 32)}}
		for s.Len() > 0 {
			procedure, arguments := s.nextCall()
			xid := c.Send(100003, 3, procedure, arguments)
			reply := c.Receive()
			results, err := checkReply(procedure, reply)
			if err != nil || binary.BigEndian.Uint32(reply) != xid {
				t.Fatalf("procedure %d, arguments % x: %v", procedure, arguments, err)
			}
			s.addHandle(procedure, results)
		}
		rig.requireUntouched(t)
	})
}

// FuzzMount calls each procedure of MOUNT with random bytes.
func FuzzMount(f *testing.F) {
	rig := newFencedRig(f)
	rig.mkdir(rig.mkdir(rig.root, "a"), "b")
	for _, path := range []string{"/land", "/land/a", "/land/a/b", "/land/../..", "/land/out", "/land//a/", "", "/", "/land/a\x00b"} {
		for procedure := range uint8(6) {
			f.Add(procedure, args(path))
		}
	}
	mounts := map[uint8]layout{
		0: sequenceOf(), 2: linkedList(sequenceOf(opaqueLayout(1, 255), opaqueLayout(1, 1024))), 3: sequenceOf(), 4: sequenceOf(),
		5: linkedList(sequenceOf(opaqueLayout(1, 1024), linkedList(opaqueLayout(1, 255)))),
	}
	f.Fuzz(func(t *testing.T, procedure uint8, in []byte) {
		if len(in) > 2<<10 || procedure > 5 {
			t.Skip()
		}
		c := rpctest.Dial(t, rig.addr)
		defer c.Close()
		c.Send(100005, 3, uint32(procedure), in)
		results, garbage, err := acceptedResults(c.Receive())
		if err != nil {
			t.Fatalf("procedure %d: %v", procedure, err)
		}
		if garbage {
			return
		}
		r := bytes.NewReader(results)
		d := xdr.NewDecoder(r)
		if procedure == 1 {
			requireFolderMount(t, c, d)
		} else {
			mounts[procedure](d)
		}
		if d.Err() != nil || checkNoRest(r) != nil {
			t.Fatalf("procedure %d returns % x: %v", procedure, results, d.Err())
		}
	})
}

// requireFolderMount decodes the results of MNT: an error status, or the handle of a folder of the export.
func requireFolderMount(t *testing.T, c *rpctest.Client, d *xdr.Decoder) {
	t.Helper()
	if d.Uint32() != 0 {
		return
	}
	handle := d.Opaque(64)
	wordsLayout(int(d.Uint32()))(d)
	e := c.Call(100003, 3, pGetattr, args(handle))
	if e.Uint32() != 0 || e.Uint32() != 2 {
		t.Fatal("MNT returned a handle that is not of a folder")
	}
}

// FuzzMountPath mounts random paths. MNT refuses the path or returns a folder of the export.
func FuzzMountPath(f *testing.F) {
	rig := newFencedRig(f)
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
		requireFolderMount(t, c, c.Call(100005, 3, 1, args(path)))
	})
}
