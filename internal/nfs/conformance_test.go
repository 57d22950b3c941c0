package nfs_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/nfs"
	"github.com/decamp/decamp/internal/nfs/rpctest"
)

// Statuses of RFC 1813 section 2.6.
const (
	errNoEnt       = 2
	errAcces       = 13
	errExist       = 17
	errXDev        = 18
	errNotDir      = 20
	errIsDir       = 21
	errInval       = 22
	errFBig        = 27
	errNoSpc       = 28
	errROFS        = 30
	errNameTooLong = 63
	errNotEmpty    = 66
	errStale       = 70
	errBadHandle   = 10001
	errNotSync     = 10002
	errNotSupp     = 10004
	errTooSmall    = 10005
	errJukebox     = 10008
)

// The reply to GETATTR of a file of 5 bytes has the bytes of RFC 1813 sections 2.6 and 3.3.1.
func TestGetattrBytes(t *testing.T) {
	r := newRig(t, nil)
	h := r.create(r.root, "a")
	r.write(h, 0, []byte("bytes"))
	r.callNFS(pSetattr, h, raw(args(1, 0o640, 0, 0, 0, 2, 1000, 1, 2, 2000, 2)), 0).requireOK()
	var st unix.Stat_t
	if err := unix.Lstat(r.filePath("a"), &st); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4+84)
	d := r.Call(100003, 3, pGetattr, args(h))
	d.Read(got)
	fsid := binary.BigEndian.Uint64(r.root[4:]) // the same as in handles of folders
	want := args(0, 1, 0o640, 1, int(st.Uid), int(st.Gid), uint64(5), uint64(st.Blocks)*512, uint64(0), fsid, st.Ino,
		1000, 1, 2000, 2, int(st.Ctim.Sec), int(st.Ctim.Nsec))
	if d.Err() != nil || !bytes.Equal(got, want) {
		t.Errorf("got\n% x, want\n% x", got, want)
	}
}

// Calls and replies of WRITE, READ and COMMIT have the bytes of RFC 5531 section 9 and RFC 1813 section 3.3. H stands
// for the handle, A for the attributes.
func TestWriteAndReadBytes(t *testing.T) {
	r := newRig(t, func(o *nfs.Options) { o.Verifier = 0x0102030405060708 })
	h := r.create(r.root, "a")
	const attrLen = 84
	for _, c := range []struct{ name, call, reply string }{
		{"WRITE 5 bytes at 2, UNSTABLE",
			"80000068 0000beef 00000000 00000002 000186a3 00000003 00000007 00000000 00000000 00000000 00000000" +
				"00000020 H 00000000 00000002 00000005 00000000 00000005 62797465 73000000",
			"80000088 0000beef 00000001 00000000 00000000 00000000 00000000" +
				"00000000 00000000 00000001 A 00000005 00000002 01020304 05060708"},
		{"READ 4 bytes at 0",
			"80000058 0000bef0 00000000 00000002 000186a3 00000003 00000006 00000000 00000000 00000000 00000000" +
				"00000020 H 00000000 00000000 00000004",
			"80000084 0000bef0 00000001 00000000 00000000 00000000 00000000" +
				"00000000 00000001 A 00000004 00000000 00000004 00006279"},
		{"READ 9 bytes at 4, which ends early",
			"80000058 0000bef1 00000000 00000002 000186a3 00000003 00000006 00000000 00000000 00000000 00000000" +
				"00000020 H 00000000 00000004 00000009",
			"80000084 0000bef1 00000001 00000000 00000000 00000000 00000000" +
				"00000000 00000001 A 00000003 00000001 00000003 74657300"},
		{"COMMIT",
			"80000058 0000bef2 00000000 00000002 000186a3 00000003 00000015 00000000 00000000 00000000 00000000" +
				"00000020 H 00000000 00000000 00000000",
			"80000080 0000bef2 00000001 00000000 00000000 00000000 00000000" +
				"00000000 00000000 00000001 A 01020304 05060708"},
	} {
		call := strings.ReplaceAll(c.call, "H", fmt.Sprintf("%x", h))
		r.SendRaw(decodeHex(t, call))
		got := rpctest.Record(r.Receive())
		before, after, _ := strings.Cut(c.reply, "A")
		head, tail := decodeHex(t, before), decodeHex(t, after)
		if len(got) != len(head)+attrLen+len(tail) || !bytes.HasPrefix(got, head) || !bytes.HasSuffix(got, tail) {
			t.Errorf("%s:\n% x, want\n% x, attributes, % x", c.name, got, head, tail)
		}
	}
}

func decodeHex(t *testing.T, s string) []byte {
	t.Helper()
	p, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestHandles(t *testing.T) {
	r := newRig(t, nil)
	h := r.create(r.root, "a")
	if len(h) != 32 || len(r.root) != 32 {
		t.Fatalf("handles of %d and %d bytes, want 32", len(h), len(r.root))
	}
	for name, c := range map[string]struct {
		handle []byte
		status uint32
	}{
		"empty":         {nil, errBadHandle},
		"short":         {h[:31], errBadHandle},
		"long":          {append(slices.Clone(h), make([]byte, 32)...), errBadHandle},
		"changed":       {flipBit(h, 19), errBadHandle},
		"other export":  {forgeHandle(h, 4), errStale},
		"other inode":   {forgeHandle(h, 13), errStale}, // a lower byte could give the inode of the folder
		"other birth":   {forgeHandle(h, 21), errStale},
		"zero":          {make([]byte, 32), errBadHandle},
		"outside inode": {outsideHandle(t, h), errStale},
	} {
		p := r.callNFS(pGetattr, c.handle)
		if p.wantStatus(c.status); p.status != c.status {
			t.Errorf("wrong status for the handle %q", name)
		}
	}
	// A handle that is too long for NFS is GARBAGE_ARGS.
	r.Send(100003, 3, pGetattr, args(make([]byte, 65)))
	if p := r.Receive(); len(p) != 24 || p[23] != 4 {
		t.Errorf("handle of 65 bytes: got reply % x, want GARBAGE_ARGS", p)
	}
}

func flipBit(h []byte, i int) []byte {
	h = slices.Clone(h)
	h[i] ^= 1
	return h
}

// forgeHandle changes a byte of a handle and corrects its checksum.
func forgeHandle(h []byte, i int) []byte { return nfs.SignHandle(flipBit(h, i)) }

// outsideHandle returns a valid handle for a file outside the export.
func outsideHandle(t *testing.T, h []byte) []byte {
	t.Helper()
	name := t.TempDir() + "/secret"
	if err := os.WriteFile(name, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	var x unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, name, 0, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &x); err != nil {
		t.Fatal(err)
	}
	h = slices.Clone(h)
	binary.BigEndian.PutUint64(h[12:], x.Ino)
	binary.BigEndian.PutUint64(h[20:], uint64(x.Btime.Sec*1e9+int64(x.Btime.Nsec)))
	return nfs.SignHandle(h)
}

func TestLookup(t *testing.T) {
	r := newRig(t, nil)
	sub := r.mkdir(r.root, "sub")
	file := r.create(sub, "file")
	if got := r.lookup(sub, "file"); !bytes.Equal(got, file) {
		t.Error("the handles of LOOKUP and CREATE differ")
	}
	for _, c := range []struct {
		dir  []byte
		name string
		want []byte
	}{{sub, ".", sub}, {sub, "..", r.root}, {r.root, "..", r.root}, {r.root, "sub", sub}} {
		if got := r.lookup(c.dir, c.name); !bytes.Equal(got, c.want) {
			t.Errorf("LOOKUP of %q returned a wrong handle", c.name)
		}
	}
	p := r.callNFS(pLookup, sub, "file").requireOK()
	_ = p.Opaque(64)
	if a := p.decodePostAttr(); a.kind != 1 || p.decodePostAttr().kind != 2 {
		t.Error("LOOKUP returned wrong file types")
	}
	p.requireEnd()
	r.callNFS(pLookup, sub, "absent").wantStatus(errNoEnt)
	r.callNFS(pLookup, file, "x").wantStatus(errNotDir)
	if err := unix.Mkfifo(r.filePath("fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	r.callNFS(pLookup, r.root, "fifo").wantStatus(errAcces)
}

// Names that lead out of the folder, and other invalid names, are refused.
func TestInvalidFileNamesAreRefused(t *testing.T) {
	r := newRig(t, nil)
	sub := r.mkdir(r.root, "sub")
	file := r.create(r.root, "file")
	if err := os.WriteFile(r.dir+"/../outside", []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(r.dir + "/../outside")
	for name, status := range map[string]uint32{
		"": errAcces, "../outside": errAcces, "/etc/passwd": errAcces, "sub/x": errAcces, "a\x00b": errAcces,
		strings.Repeat("n", 256): errNameTooLong,
	} {
		r.callNFS(pLookup, sub, name).wantStatus(status)
		r.callNFS(pCreate, sub, name, 0, emptySattr).wantStatus(status)
		r.callNFS(pMkdir, sub, name, emptySattr).wantStatus(status)
		r.callNFS(pSymlink, sub, name, emptySattr, "to").wantStatus(status)
		r.callNFS(pRemove, sub, name).wantStatus(status)
		r.callNFS(pRmdir, sub, name).wantStatus(status)
		r.callNFS(pRename, r.root, "file", sub, name).wantStatus(status)
		r.callNFS(pRename, sub, name, r.root, "x").wantStatus(status)
		r.callNFS(pLink, file, sub, name).wantStatus(status)
	}
	for _, name := range []string{".", ".."} {
		r.callNFS(pCreate, sub, name, 0, emptySattr).wantStatus(errExist)
		r.callNFS(pMkdir, sub, name, emptySattr).wantStatus(errExist)
		r.callNFS(pSymlink, sub, name, emptySattr, "to").wantStatus(errExist)
		r.callNFS(pLink, file, sub, name).wantStatus(errExist)
		r.callNFS(pRemove, sub, name).wantStatus(errInval)
		r.callNFS(pRename, sub, name, r.root, "x").wantStatus(errInval)
		r.callNFS(pRename, r.root, "file", sub, name).wantStatus(errInval)
	}
	r.callNFS(pRmdir, sub, ".").wantStatus(errInval)
	r.callNFS(pRmdir, sub, "..").wantStatus(errExist)
}

func TestUnusualNames(t *testing.T) {
	r := newRig(t, nil)
	for _, name := range []string{" ", "..a", "a b", "größe", "\xff\xfe", "new\nline", "-rf", strings.Repeat("n", 255), ".lck-3a0f"} {
		h := r.create(r.root, name)
		r.write(h, 0, []byte(name))
		if got := r.readFile(name); got != name {
			t.Errorf("file %q contains %q, want its name", name, got)
		}
		if !bytes.Equal(r.lookup(r.root, name), h) {
			t.Errorf("the handles of CREATE and LOOKUP for %q differ", name)
		}
		r.callNFS(pRemove, r.root, name).requireOK()
	}
	if names := r.listNames(r.root, 4096); len(names) != 2 {
		t.Errorf("names after the removal: %q, want 2", names)
	}
}

// The server never follows links.
func TestLinksAreNotFollowed(t *testing.T) {
	r := newRig(t, nil)
	out := t.TempDir()
	if err := os.WriteFile(out+"/secret", []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(out, r.filePath("out")); err != nil { // a client cannot create this link
		t.Fatal(err)
	}
	link := r.lookup(r.root, "out")
	if a := r.getattr(link); a.kind != 5 {
		t.Errorf("file type %d, want 5", a.kind)
	}
	p := r.callNFS(pReadlink, link).requireOK()
	p.decodePostAttr()
	if to := p.String(4096); to != out {
		t.Errorf("READLINK returned %q, want %q", to, out)
	}
	r.callNFS(pLookup, link, "secret").wantStatus(errNotDir)
	r.callNFS(pCreate, link, "x", 0, emptySattr).wantStatus(errNotDir)
	r.callNFS(pReaddir, link, uint64(0), uint64(0), 4096).wantStatus(errNotDir)
	r.callNFS(pRead, link, uint64(0), 10).wantStatus(errInval)
	r.callNFS(pWrite, link, uint64(0), 1, 2, "x").wantStatus(errInval)
	r.callNFS(pSetattr, link, sizeSattr(0), 0).wantStatus(errInval)
	r.callNFS(pSetattr, link, modeSattr(0o777), 0).requireOK()
	r.callNFS(pCreate, r.root, "out", 0, emptySattr).wantStatus(errExist)

	// If a folder is replaced by a link, its handle and those of its files are stale.
	sub := r.mkdir(r.root, "sub")
	file := r.create(sub, "secret")
	if err := os.RemoveAll(r.filePath("sub")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(out, r.filePath("sub")); err != nil {
		t.Fatal(err)
	}
	r.callNFS(pLookup, sub, "secret").wantStatus(errStale)
	r.callNFS(pRead, file, uint64(0), 10).wantStatus(errStale)
	r.callNFS(pMkdir, sub, "x", emptySattr).wantStatus(errStale)
	// MNT does not follow links.
	d := r.Call(100005, 3, 1, args("/land/sub"))
	if stat := d.Uint32(); stat != errNotDir {
		t.Errorf("MNT of a link: status %d, want %d", stat, errNotDir)
	}
	if st, err := os.Stat(out + "/secret"); err != nil || st.Mode() != 0o644 || st.Size() != 6 {
		t.Errorf("the file outside was changed: %v, %v", st, err)
	}
}

func TestSetattr(t *testing.T) {
	r := newRig(t, nil)
	h := r.create(r.root, "a")
	p := r.callNFS(pSetattr, h, sizeSattr(3<<40), 0).requireOK()
	before, after := p.decodeWcc()
	if p.requireEnd(); before == nil || before[0] != 0 || after.size != 3<<40 {
		t.Errorf("size before %v, after %d, want 0 and %d", before, after.size, int64(3<<40))
	}
	if after.used > 1<<20 {
		t.Errorf("a sparse file uses %d bytes, want at most 1 MiB", after.used)
	}
	if p := r.callNFS(pSetattr, h, modeSattr(0o751), 0).requireOK(); true {
		if _, a := p.decodeWcc(); a.mode != 0o751 {
			t.Errorf("mode %o, want 751", a.mode)
		}
	}
	p = r.callNFS(pSetattr, h, raw(args(0, 0, 0, 0, 2, 5, 6, 1)), 0).requireOK()
	if _, a := p.decodeWcc(); a.atime != nfsTime(5)|6 || a.mtime <= nfsTime(1e9) {
		t.Errorf("atime %x, mtime %x", a.atime, a.mtime)
	}
	now := r.getattr(h)
	guard := func(ctime uint64) raw { return raw(args(1, ctime)) }
	r.callNFS(pSetattr, h, sizeSattr(7), guard(now.ctime+1)).wantStatus(errNotSync)
	r.callNFS(pSetattr, h, sizeSattr(7), guard(now.ctime)).requireOK()
	if a := r.getattr(h); a.size != 7 {
		t.Errorf("size %d, want 7", a.size)
	}
	r.callNFS(pSetattr, h, sizeSattr(1<<63), 0).wantStatus(errFBig)
	r.callNFS(pSetattr, r.root, sizeSattr(0), 0).wantStatus(errIsDir)
	r.callNFS(pSetattr, r.mkdir(r.root, "d"), modeSattr(0o700), 0).requireOK()
	for name, garbage := range map[string][]byte{
		"time_how 3":             args(h, 0, 0, 0, 0, 3, 0, 0),
		"a billion nanoseconds":  args(h, 0, 0, 0, 0, 2, 1, 1000000000, 0, 0),
		"UTIME_NOW in a request": args(h, 0, 0, 0, 0, 2, 1, 1<<30-1, 0, 0),
	} {
		r.Send(100003, 3, pSetattr, garbage)
		if p := r.Receive(); len(p) != 24 || p[23] != 4 {
			t.Errorf("%s: got reply % x, want GARBAGE_ARGS", name, p)
		}
	}
}

func TestAccess(t *testing.T) {
	r := newRig(t, func(o *nfs.Options) {
		o.Exports[0].Writable = func(name string) bool { return strings.HasPrefix(name, "w") }
	})
	r.writeFile("w", "")
	r.writeFile("r", "")
	for _, c := range []struct {
		handle []byte
		want   uint32
	}{{r.root, 0x03}, {r.lookup(r.root, "w"), 0x1d}, {r.lookup(r.root, "r"), 0x01}} {
		p := r.callNFS(pAccess, c.handle, 0x3f).requireOK()
		p.decodePostAttr()
		if got := p.Uint32(); got != c.want {
			t.Errorf("access %#x, want %#x", got, c.want)
		}
		p.requireEnd()
	}
}

func TestReadAndWrite(t *testing.T) {
	r := newRig(t, nil)
	h := r.create(r.root, "a")
	if data, eof := r.read(h, 0, 100); len(data) != 0 || !eof {
		t.Errorf("empty file: got %d bytes, eof %v, want 0 and true", len(data), eof)
	}
	want := testPattern(300<<10 + 5)
	for off := 0; off < len(want); off += 64 << 10 {
		r.write(h, uint64(off), want[off:min(off+64<<10, len(want))])
	}
	for _, c := range []struct {
		off, n, got int
		eof         bool
	}{
		{0, len(want), len(want), true},
		{0, 1 << 20, len(want), true}, // a short read at the end, with eof
		{0, 4096, 4096, false},
		{len(want) - 5, 5, 5, true},
		{len(want) - 5, 4, 4, false},
		{len(want), 5, 0, true},
		{len(want) + 1000, 5, 0, true},
		{3, 2 << 20, len(want) - 3, true}, // more than the limit of one READ
		{7, 0, 0, false},
	} {
		data, eof := r.read(h, uint64(c.off), c.n)
		if len(data) != c.got || eof != c.eof || len(data) > 0 && !bytes.Equal(data, want[c.off:c.off+c.got]) {
			t.Errorf("READ %d at %d: %d bytes, eof %v; want %d, %v", c.n, c.off, len(data), eof, c.got, c.eof)
		}
	}
	verf := r.write(h, 1<<40, []byte("far"))
	if a := r.getattr(h); a.size != 1<<40+3 {
		t.Errorf("size %d, want %d", a.size, int64(1<<40+3))
	}
	// The verifier does not change. A WRITE of 0 bytes is valid.
	if r.write(h, 0, nil) != verf || r.server.Verifier() != verf {
		t.Error("the verifier changed")
	}
	p := r.callNFS(pCommit, h, uint64(0), 0).requireOK()
	if p.decodeWcc(); p.Uint64() != verf {
		t.Error("COMMIT returned another verifier than WRITE")
	}
	p.requireEnd()
	p = r.callNFS(pWrite, h, uint64(0), 1, 0, "x").requireOK() // UNSTABLE
	if p.decodeWcc(); p.Uint32() != 1 || p.Uint32() != 2 {
		t.Error("an UNSTABLE write is not answered with FILE_SYNC")
	}
	r.callNFS(pWrite, h, uint64(1<<63-1), 1, 2, "x").wantStatus(errFBig)
	r.callNFS(pRead, h, uint64(1<<63), 1).wantStatus(errInval)
	r.callNFS(pWrite, r.root, uint64(0), 1, 2, "x").wantStatus(errIsDir)
	r.callNFS(pRead, r.root, uint64(0), 1).wantStatus(errIsDir)
	r.callNFS(pCommit, r.root, uint64(0), 0).wantStatus(errIsDir)
	for name, garbage := range map[string][]byte{
		"more bytes than announced":  args(h, uint64(0), 1, 2, "xx"),
		"fewer bytes than announced": args(h, uint64(0), 3, 2, "xx"),
		"stable_how 3":               args(h, uint64(0), 2, 3, "xx"),
		"a length beyond the record": args(h, uint64(0), 100, 2, 100),
	} {
		r.Send(100003, 3, pWrite, garbage)
		if p := r.Receive(); len(p) != 24 || p[23] != 4 {
			t.Errorf("%s: got reply % x, want GARBAGE_ARGS", name, p)
		}
	}
	if got, _ := r.read(h, 0, 2); string(got) != "x"+string(want[1:2]) {
		t.Errorf("a rejected WRITE changed the file to %q", got)
	}
}

func TestCreate(t *testing.T) {
	r := newRig(t, nil)
	h, a := r.callNFS(pCreate, r.root, "a", 1, modeSattr(0o600)).decodeCreated()
	if a.kind != 1 || a.mode != 0o600 || a.size != 0 || a.nlink != 1 {
		t.Errorf("CREATE returned attributes %+v", a)
	}
	r.callNFS(pCreate, r.root, "a", 1, emptySattr).wantStatus(errExist) // GUARDED
	r.write(h, 0, []byte("bytes"))
	again, a := r.callNFS(pCreate, r.root, "a", 0, modeSattr(0o777)).decodeCreated() // UNCHECKED
	if !bytes.Equal(again, h) || a.size != 5 || a.mode != 0o600 {
		t.Errorf("UNCHECKED of an existing file returned attributes %+v", a)
	}
	if _, a := r.callNFS(pCreate, r.root, "a", 0, sizeSattr(0)).decodeCreated(); a.size != 0 {
		t.Errorf("UNCHECKED with size 0 left %d bytes", a.size)
	}
	if _, a := r.callNFS(pCreate, r.root, "b", 0, sizeSattr(100)).decodeCreated(); a.size != 100 || a.mode != 0o644 {
		t.Errorf("UNCHECKED of a new file returned attributes %+v", a)
	}
	r.mkdir(r.root, "d")
	r.callNFS(pCreate, r.root, "d", 0, emptySattr).wantStatus(errExist)
	r.callNFS(pCreate, h, "x", 0, emptySattr).wantStatus(errNotDir)
	r.Send(100003, 3, pCreate, args(r.root, "x", 3, emptySattr))
	if p := r.Receive(); len(p) != 24 || p[23] != 4 {
		t.Errorf("createmode 3: got reply % x, want GARBAGE_ARGS", p)
	}
}

// If the reply to an exclusive CREATE is lost, a repetition with the same verifier succeeds, even after a restart of
// the server. A CREATE with another verifier fails.
func TestExclusiveCreate(t *testing.T) {
	r := newRig(t, nil)
	const mine, other = 0xfeedface_cafebabe, 0xfeedface_00000001
	h, a := r.callNFS(pCreate, r.root, "lock", 2, uint64(mine)).decodeCreated()
	if a.size != 0 {
		t.Errorf("size %d, want 0", a.size)
	}
	r.callNFS(pCreate, r.root, "lock", 2, uint64(other)).wantStatus(errExist)
	if again, _ := r.callNFS(pCreate, r.root, "lock", 2, uint64(mine)).decodeCreated(); !bytes.Equal(again, h) {
		t.Error("the repetition has another handle")
	}
	r.restart()
	if again, _ := r.callNFS(pCreate, r.root, "lock", 2, uint64(mine)).decodeCreated(); !bytes.Equal(again, h) {
		t.Error("the repetition after a restart has another handle")
	}
	r.callNFS(pCreate, r.root, "lock", 2, uint64(other)).wantStatus(errExist)
	r.callNFS(pSetattr, h, raw(args(1, 0o644, 0, 0, 0, 1, 1)), 0).requireOK()
	r.callNFS(pCreate, r.root, "lock", 2, uint64(mine)).wantStatus(errExist)
}

func TestMkdirAndRmdir(t *testing.T) {
	r := newRig(t, nil)
	d, a := r.callNFS(pMkdir, r.root, "d", modeSattr(0o711)).decodeCreated()
	if a.kind != 2 || a.mode != 0o711 {
		t.Errorf("MKDIR returned attributes %+v", a)
	}
	r.callNFS(pMkdir, r.root, "d", emptySattr).wantStatus(errExist)
	file := r.create(d, "x")
	r.callNFS(pRmdir, r.root, "d").wantStatus(errNotEmpty)
	r.callNFS(pRmdir, d, "x").wantStatus(errNotDir)
	r.callNFS(pRemove, r.root, "d").wantStatus(errIsDir)
	r.callNFS(pRemove, d, "x").requireOK()
	r.callNFS(pGetattr, file).wantStatus(errStale)
	p := r.callNFS(pRmdir, r.root, "d").requireOK()
	if before, after := p.decodeWcc(); before == nil || after.nlink != 2 {
		t.Errorf("RMDIR returned wcc_data %v, %+v", before, after)
	}
	p.requireEnd()
	r.callNFS(pGetattr, d).wantStatus(errStale)
	r.callNFS(pCreate, d, "x", 0, emptySattr).wantStatus(errStale)
	r.callNFS(pRmdir, r.root, "d").wantStatus(errNoEnt)
}

func TestRename(t *testing.T) {
	r := newRig(t, nil)
	d := r.mkdir(r.root, "d")
	a, b := r.create(r.root, "a"), r.create(r.root, "b")
	r.write(a, 0, []byte("a"))
	r.write(b, 0, []byte("b"))
	p := r.callNFS(pRename, r.root, "a", d, "b").requireOK()
	p.decodeWcc()
	p.decodeWcc()
	p.requireEnd()
	if got, _ := r.read(a, 0, 10); string(got) != "a" || r.readFile("d/b") != "a" {
		t.Errorf("the moved file contains %q, want %q", got, "a")
	}
	r.callNFS(pRename, d, "b", r.root, "b").requireOK() // replaces b
	if r.readFile("b") != "a" {
		t.Error("the file was not replaced")
	}
	r.callNFS(pGetattr, b).wantStatus(errStale)
	r.callNFS(pRename, r.root, "b", r.root, "b").requireOK() // no effect: the same name
	r.callNFS(pLink, a, r.root, "c").requireOK()
	r.callNFS(pRename, r.root, "b", r.root, "c").requireOK() // no effect: both names are of the same file
	if r.readFile("b") != "a" || r.readFile("c") != "a" {
		t.Error("a name of the file is gone")
	}
	r.callNFS(pRename, r.root, "absent", r.root, "x").wantStatus(errNoEnt)
	r.callNFS(pRename, r.root, "b", r.root, "d").wantStatus(errExist)
	r.callNFS(pRename, r.root, "d", r.root, "b").wantStatus(errExist)
	r.callNFS(pRename, a, "x", r.root, "x").wantStatus(errNotDir)
	r.callNFS(pRename, r.root, "d", d, "d").wantStatus(errInval)
	// The files of a folder move with it.
	inner := r.create(d, "inner")
	e := r.mkdir(r.root, "e")
	r.callNFS(pRename, r.root, "d", e, "moved").requireOK()
	r.write(inner, 0, []byte("inner"))
	if r.readFile("e/moved/inner") != "inner" {
		t.Error("the folder's file was not moved with it")
	}
	if !bytes.Equal(r.lookup(d, ".."), e) {
		t.Error("the parent of the moved folder is wrong")
	}
}

func TestLink(t *testing.T) {
	r := newRig(t, nil)
	a, d := r.create(r.root, "a"), r.mkdir(r.root, "d")
	p := r.callNFS(pLink, a, d, "b").requireOK()
	if file := p.decodePostAttr(); file.nlink != 2 {
		t.Errorf("%d links, want 2", file.nlink)
	}
	p.decodeWcc()
	p.requireEnd()
	r.callNFS(pLink, a, d, "b").wantStatus(errExist)
	r.callNFS(pLink, d, r.root, "e").wantStatus(errInval)
	// The handle is valid as long as the file has a name.
	r.callNFS(pRemove, r.root, "a").requireOK()
	r.write(a, 0, []byte("still there"))
	if r.readFile("d/b") != "still there" {
		t.Error("the other name of the file has other content")
	}
	r.callNFS(pRemove, d, "b").requireOK()
	r.callNFS(pGetattr, a).wantStatus(errStale)
}

func TestMknodIsNotSupported(t *testing.T) {
	r := newRig(t, nil)
	p := r.callNFS(pMknod, r.root, "dev", 4, emptySattr, 1, 3)
	p.wantStatus(errNotSupp)
	if p.Bool() || p.decodePostAttr().kind != 2 {
		t.Error("the folder's wcc_data is wrong")
	}
	p.requireEnd()
}

func TestFsinfoFsstatPathconf(t *testing.T) {
	r := newRig(t, nil)
	p := r.callNFS(pFsinfo, r.root).requireOK()
	p.decodePostAttr()
	var sizes []uint32
	for range 7 {
		sizes = append(sizes, p.Uint32())
	}
	if want := []uint32{1 << 20, 1 << 20, 4096, 1 << 20, 1 << 20, 4096, 32 << 10}; !slices.Equal(sizes, want) {
		t.Errorf("FSINFO returned sizes %d, want %d", sizes, want)
	}
	if largest := p.Uint64(); largest < 64<<40 {
		t.Errorf("FSINFO returned largest file %d, want at least 64 TiB", largest)
	}
	if p.Uint64() != 1 || p.Uint32() != 0x1b {
		t.Error("time_delta or properties are wrong")
	}
	p.requireEnd()

	var st unix.Statfs_t
	if err := unix.Statfs(r.dir, &st); err != nil {
		t.Fatal(err)
	}
	p = r.callNFS(pFsstat, r.root).requireOK()
	p.decodePostAttr()
	if total := p.Uint64(); total != st.Blocks*uint64(st.Frsize) {
		t.Errorf("FSSTAT returned %d total bytes, want %d", total, st.Blocks*uint64(st.Frsize))
	}
	if free, available := p.Uint64(), p.Uint64(); available > free || available == 0 {
		t.Errorf("FSSTAT returned %d free and %d available bytes", free, available)
	}
	for range 3 {
		p.Uint64()
	}
	p.Uint32()
	p.requireEnd()

	p = r.callNFS(pPathconf, r.root).requireOK()
	p.decodePostAttr()
	if p.Uint32() < 1000 || p.Uint32() != 255 || !p.Bool() || !p.Bool() || p.Bool() || !p.Bool() {
		t.Error("PATHCONF is wrong")
	}
	p.requireEnd()
	for _, proc := range []uint32{pFsinfo, pFsstat, pPathconf} {
		p := r.callNFS(proc, []byte("nonsense"))
		if p.wantStatus(errBadHandle); p.Bool() {
			t.Error("got attributes for an invalid handle")
		}
		p.requireEnd()
	}
}

func TestFsstatUsesSpace(t *testing.T) {
	r := newRig(t, func(o *nfs.Options) {
		o.Exports[0].Space = func() (int64, int64, error) { return 1000, 100, nil }
	})
	p := r.callNFS(pFsstat, r.root).requireOK()
	if p.decodePostAttr(); p.Uint64() != 1000 || p.Uint64() != 100 || p.Uint64() != 100 {
		t.Error("FSSTAT does not return the values of Space")
	}
}

func TestMount(t *testing.T) {
	var dirs [2]string
	for i := range dirs {
		dirs[i] = t.TempDir()
	}
	r := newRig(t, func(o *nfs.Options) {
		o.Exports = append(o.Exports, nfs.Export{Path: "/other", Dir: dirs[0]}, nfs.Export{Path: "/other/third", Dir: dirs[1]})
	})
	sub := r.mkdir(r.root, "sub")
	r.writeFile("file", "")
	if got := r.mount("/land/sub"); !bytes.Equal(got, sub) {
		t.Error("MNT of a folder of the export returned another handle")
	}
	if got := r.mount("/land/"); !bytes.Equal(got, r.root) {
		t.Error("MNT with a trailing slash returned another handle")
	}
	other := r.mount("/other")
	for path, status := range map[string]uint32{
		"/absent": errNoEnt, "/land/absent": errNoEnt, "/land/file": errNotDir, "/land/../other": errAcces,
		"land": errNoEnt, "": errNoEnt, "/lan": errNoEnt, "/landed": errNoEnt, "/": errNoEnt, "/land\x00": errNoEnt,
	} {
		if got := r.Call(100005, 3, 1, args(path)).Uint32(); got != status {
			t.Errorf("MNT %q: status %d, want %d", path, got, status)
		}
	}
	// Names cannot be moved or linked from one export to another.
	r.create(r.root, "a")
	r.callNFS(pRename, r.root, "a", other, "a").wantStatus(errXDev)
	r.callNFS(pLink, r.lookup(r.root, "a"), other, "a").wantStatus(errXDev)

	d := r.Call(100005, 3, 5, nil) // EXPORT
	for _, path := range []string{"/land", "/other", "/other/third"} {
		if !d.Bool() || d.String(1024) != path || d.Bool() {
			t.Errorf("EXPORT does not list %s", path)
		}
	}
	if d.Bool() || d.Err() != nil {
		t.Error("EXPORT lists more")
	}
	dump := func() (paths []string) {
		d := r.Call(100005, 3, 2, nil)
		for d.Bool() {
			if host := d.String(255); host != "127.0.0.1" {
				t.Errorf("DUMP lists host %q, want 127.0.0.1", host)
			}
			paths = append(paths, d.String(1024))
		}
		return paths
	}
	if got := dump(); !slices.Equal(got, []string{"/land", "/land/sub", "/land/", "/other"}) {
		t.Errorf("DUMP: %q", got)
	}
	r.Call(100005, 3, 3, args("/land/"))
	if got := dump(); !slices.Equal(got, []string{"/land", "/land/sub", "/other"}) {
		t.Errorf("DUMP after UMNT: %q", got)
	}
	r.Call(100005, 3, 4, nil)
	if got := dump(); len(got) != 0 {
		t.Errorf("DUMP after UMNTALL: %q", got)
	}
}

// The reply to MNT has the bytes of RFC 1813 appendix I.
func TestMountBytes(t *testing.T) {
	r := newRig(t, nil)
	d := r.Call(100005, 3, 1, args("/land"))
	got := make([]byte, 4+4+32+4+8)
	d.Read(got)
	want := append(append([]byte{0, 0, 0, 0, 0, 0, 0, 32}, r.root...), 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0)
	if d.Err() != nil || !bytes.Equal(got, want) {
		t.Errorf("got % x, want % x", got, want)
	}
}

func TestReadOnlyNames(t *testing.T) {
	writable := map[string]bool{"disk-flat.vmdk": true}
	r := newRig(t, func(o *nfs.Options) {
		o.Exports[0].Writable = func(name string) bool { return writable[name] }
	})
	r.writeFile("old", "old")
	disk, old := r.create(r.root, "disk-flat.vmdk"), r.lookup(r.root, "old")
	r.write(disk, 0, []byte("x"))
	r.callNFS(pWrite, old, uint64(0), 1, 2, "x").wantStatus(errROFS)
	r.callNFS(pSetattr, old, sizeSattr(0), 0).wantStatus(errROFS)
	r.callNFS(pCreate, r.root, "new", 0, emptySattr).wantStatus(errROFS)
	r.callNFS(pCreate, r.root, "old", 0, sizeSattr(0)).wantStatus(errROFS)
	r.callNFS(pMkdir, r.root, "new", emptySattr).wantStatus(errROFS)
	r.callNFS(pSymlink, r.root, "new", emptySattr, "to").wantStatus(errROFS)
	r.callNFS(pRemove, r.root, "old").wantStatus(errROFS)
	r.callNFS(pRmdir, r.root, "old").wantStatus(errROFS)
	r.callNFS(pRename, r.root, "old", r.root, "disk-flat.vmdk").wantStatus(errROFS)
	r.callNFS(pRename, r.root, "disk-flat.vmdk", r.root, "old").wantStatus(errROFS)
	r.callNFS(pLink, disk, r.root, "new").wantStatus(errROFS)
	if r.readFile("old") != "old" {
		t.Error("a read-only file was changed")
	}
	delete(writable, "disk-flat.vmdk") // the copy has ended
	r.callNFS(pWrite, disk, uint64(0), 1, 2, "y").wantStatus(errROFS)
	if got, _ := r.read(disk, 0, 1); string(got) != "x" {
		t.Errorf("the file contains %q, want %q", got, "x")
	}
}

// All handles of a client are valid after a restart of the server.
func TestHandlesSurviveRestart(t *testing.T) {
	r := newRig(t, nil)
	root := slices.Clone(r.root)
	var handles [][]byte
	dir := r.root
	for i := range 20 {
		dir = r.mkdir(dir, fmt.Sprint("d", i))
		handles = append(handles, dir, r.create(dir, "file"))
	}
	ids := map[string]uint64{}
	for _, h := range handles {
		ids[string(h)] = r.getattr(h).fileid
	}
	verf := r.write(handles[1], 0, []byte("x"))
	// A file that was moved while the server was stopped is found too.
	r.stop()
	if err := os.Rename(r.filePath("d0/file"), r.filePath("moved")); err != nil {
		t.Fatal(err)
	}
	r.start()
	if !bytes.Equal(root, r.root) {
		t.Error("the root's handle changed")
	}
	for _, h := range slices.Backward(handles) {
		if got := r.getattr(h).fileid; got != ids[string(h)] {
			t.Errorf("fileid %d, want %d", got, ids[string(h)])
		}
	}
	if got := r.write(handles[1], 1, []byte("y")); got == verf {
		t.Error("the verifier did not change with the restart")
	}
	if r.readFile("moved") != "xy" {
		t.Errorf("the moved file contains %q, want %q", r.readFile("moved"), "xy")
	}
}

// A file that was removed and created again has another handle.
func TestRecreatedFileHasNewHandle(t *testing.T) {
	r := newRig(t, nil)
	old := r.create(r.root, "a")
	r.callNFS(pRemove, r.root, "a").requireOK()
	for range 10 { // the inode number is likely to be used again
		h := r.create(r.root, "a")
		if bytes.Equal(h, old) {
			t.Fatal("the new file has the handle of the old one")
		}
		r.callNFS(pGetattr, old).wantStatus(errStale)
		r.callNFS(pWrite, old, uint64(0), 1, 2, "x").wantStatus(errStale)
		r.callNFS(pRemove, r.root, "a").requireOK()
	}
}

// A call that is repeated on another connection, after the first one has ended, gets the first reply and is not
// executed again.
func TestRepeatedCallsAreExecutedOnce(t *testing.T) {
	r := newRig(t, nil)
	h := r.create(r.root, "a")
	for name, c := range map[string]struct {
		proc uint32
		args []byte
	}{
		"REMOVE": {pRemove, args(r.root, "a")},
		"MKDIR":  {pMkdir, args(r.root, "d", emptySattr)},
		"CREATE": {pCreate, args(r.root, "g", 1, emptySattr)},
	} {
		var replies [2][]byte
		for i := range replies {
			client := rpctest.Dial(t, r.addr)
			client.SendRaw(rpctest.Record(append(client.Header(0x5000+c.proc, 100003, 3, c.proc), c.args...)))
			replies[i] = client.Receive()
			client.Close()
		}
		if !bytes.Equal(replies[0], replies[1]) || binary.BigEndian.Uint32(replies[0][24:]) != 0 {
			t.Errorf("%s: replies % x and % x, want the same with status 0", name, replies[0], replies[1])
		}
	}
	r.callNFS(pGetattr, h).wantStatus(errStale)
}
