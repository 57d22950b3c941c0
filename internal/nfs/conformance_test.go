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

// GETATTR of a file of 5 bytes, to the byte (RFC 1813 sections 2.6 and 3.3.1).
func TestGetattrToTheByte(t *testing.T) {
	r := newRig(t, nil)
	h := r.create(r.root, "a")
	r.write(h, 0, []byte("bytes"))
	r.nfs(pSetattr, h, raw(args(1, 0o640, 0, 0, 0, 2, 1000, 1, 2, 2000, 2)), 0).ok()
	var st unix.Stat_t
	if err := unix.Lstat(r.path("a"), &st); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4+84)
	d := r.Call(100003, 3, pGetattr, args(h))
	d.Read(got)
	fsid := binary.BigEndian.Uint64(r.root[4:]) // as the handles of folders have it
	want := args(0, 1, 0o640, 1, int(st.Uid), int(st.Gid), uint64(5), uint64(st.Blocks)*512, uint64(0), fsid, st.Ino,
		1000, 1, 2000, 2, int(st.Ctim.Sec), int(st.Ctim.Nsec))
	if d.Err() != nil || !bytes.Equal(got, want) {
		t.Errorf("got\n% x, want\n% x", got, want)
	}
}

// WRITE and READ, call and reply, to the byte (RFC 5531 section 9, RFC 1813 sections 3.3.6
// and 3.3.7). H is a handle, A are attributes.
func TestWriteAndReadToTheByte(t *testing.T) {
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
		r.SendRaw(unhex(t, call))
		got := rpctest.Record(r.Receive())
		before, after, _ := strings.Cut(c.reply, "A")
		head, tail := unhex(t, before), unhex(t, after)
		if len(got) != len(head)+attrLen+len(tail) || !bytes.HasPrefix(got, head) || !bytes.HasSuffix(got, tail) {
			t.Errorf("%s:\n% x, want\n% x, attributes, % x", c.name, got, head, tail)
		}
	}
}

func unhex(t *testing.T, s string) []byte {
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
		"changed":       {changed(h, 19), errBadHandle},
		"other export":  {forged(h, 4), errStale},
		"other inode":   {forged(h, 13), errStale}, // a lower byte could make it the folder's
		"other birth":   {forged(h, 21), errStale},
		"zero":          {make([]byte, 32), errBadHandle},
		"outside inode": {outside(t, h), errStale},
	} {
		p := r.nfs(pGetattr, c.handle)
		if p.is(c.status); p.status != c.status {
			t.Errorf("a handle that is %s", name)
		}
	}
	// One that is too long for NFS is garbage.
	r.Send(100003, 3, pGetattr, args(make([]byte, 65)))
	if p := r.Receive(); len(p) != 24 || p[23] != 4 {
		t.Errorf("a handle of 65 bytes is answered with % x", p)
	}
}

func changed(h []byte, i int) []byte {
	h = slices.Clone(h)
	h[i] ^= 1
	return h
}

// forged changes a byte of a handle and makes its checksum right.
func forged(h []byte, i int) []byte { return nfs.SignHandle(changed(h, i)) }

// outside is the handle that a file outside the export would have.
func outside(t *testing.T, h []byte) []byte {
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
		t.Error("LOOKUP gives another handle than CREATE")
	}
	for _, c := range []struct {
		dir  []byte
		name string
		want []byte
	}{{sub, ".", sub}, {sub, "..", r.root}, {r.root, "..", r.root}, {r.root, "sub", sub}} {
		if got := r.lookup(c.dir, c.name); !bytes.Equal(got, c.want) {
			t.Errorf("LOOKUP of %q gives another handle", c.name)
		}
	}
	p := r.nfs(pLookup, sub, "file").ok()
	_ = p.Opaque(64)
	if a := p.post(); a.kind != 1 || p.post().kind != 2 {
		t.Error("LOOKUP gives other attributes")
	}
	p.end()
	r.nfs(pLookup, sub, "absent").is(errNoEnt)
	r.nfs(pLookup, file, "x").is(errNotDir)
	if err := unix.Mkfifo(r.path("fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	r.nfs(pLookup, r.root, "fifo").is(errAcces)
}

// No name leads out of the folder, or anywhere odd.
func TestNamesThatAreRefused(t *testing.T) {
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
		r.nfs(pLookup, sub, name).is(status)
		r.nfs(pCreate, sub, name, 0, keep).is(status)
		r.nfs(pMkdir, sub, name, keep).is(status)
		r.nfs(pSymlink, sub, name, keep, "to").is(status)
		r.nfs(pRemove, sub, name).is(status)
		r.nfs(pRmdir, sub, name).is(status)
		r.nfs(pRename, r.root, "file", sub, name).is(status)
		r.nfs(pRename, sub, name, r.root, "x").is(status)
		r.nfs(pLink, file, sub, name).is(status)
	}
	for _, name := range []string{".", ".."} {
		r.nfs(pCreate, sub, name, 0, keep).is(errExist)
		r.nfs(pMkdir, sub, name, keep).is(errExist)
		r.nfs(pSymlink, sub, name, keep, "to").is(errExist)
		r.nfs(pLink, file, sub, name).is(errExist)
		r.nfs(pRemove, sub, name).is(errInval)
		r.nfs(pRename, sub, name, r.root, "x").is(errInval)
		r.nfs(pRename, r.root, "file", sub, name).is(errInval)
	}
	r.nfs(pRmdir, sub, ".").is(errInval)
	r.nfs(pRmdir, sub, "..").is(errExist)
}

func TestOddNamesWork(t *testing.T) {
	r := newRig(t, nil)
	for _, name := range []string{" ", "..a", "a b", "größe", "\xff\xfe", "new\nline", "-rf", strings.Repeat("n", 255), ".lck-3a0f"} {
		h := r.create(r.root, name)
		r.write(h, 0, []byte(name))
		if got := r.get(name); got != name {
			t.Errorf("%q holds %q", name, got)
		}
		if !bytes.Equal(r.lookup(r.root, name), h) {
			t.Errorf("%q has two handles", name)
		}
		r.nfs(pRemove, r.root, name).ok()
	}
	if names := r.names(r.root, 4096); len(names) != 2 {
		t.Errorf("left over: %q", names)
	}
}

// Links are never followed by the server, whatever they lead to.
func TestLinksAreNotFollowed(t *testing.T) {
	r := newRig(t, nil)
	out := t.TempDir()
	if err := os.WriteFile(out+"/secret", []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(out, r.path("out")); err != nil { // a client cannot create it
		t.Fatal(err)
	}
	link := r.lookup(r.root, "out")
	if a := r.getattr(link); a.kind != 5 {
		t.Errorf("type %d", a.kind)
	}
	p := r.nfs(pReadlink, link).ok()
	p.post()
	if to := p.String(4096); to != out {
		t.Errorf("leads to %q", to)
	}
	r.nfs(pLookup, link, "secret").is(errNotDir)
	r.nfs(pCreate, link, "x", 0, keep).is(errNotDir)
	r.nfs(pReaddir, link, uint64(0), uint64(0), 4096).is(errNotDir)
	r.nfs(pRead, link, uint64(0), 10).is(errInval)
	r.nfs(pWrite, link, uint64(0), 1, 2, "x").is(errInval)
	r.nfs(pSetattr, link, sized(0), 0).is(errInval)
	r.nfs(pSetattr, link, moded(0o777), 0).ok()
	r.nfs(pCreate, r.root, "out", 0, keep).is(errExist)

	// A folder that somebody replaces by a link is stale, with all that was in it.
	sub := r.mkdir(r.root, "sub")
	file := r.create(sub, "secret")
	if err := os.RemoveAll(r.path("sub")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(out, r.path("sub")); err != nil {
		t.Fatal(err)
	}
	r.nfs(pLookup, sub, "secret").is(errStale)
	r.nfs(pRead, file, uint64(0), 10).is(errStale)
	r.nfs(pMkdir, sub, "x", keep).is(errStale)
	// Neither does MNT follow one.
	d := r.Call(100005, 3, 1, args("/land/sub"))
	if stat := d.Uint32(); stat != errNotDir {
		t.Errorf("MNT of a link: %d", stat)
	}
	if st, err := os.Stat(out + "/secret"); err != nil || st.Mode() != 0o644 || st.Size() != 6 {
		t.Errorf("the file outside was changed: %v, %v", st, err)
	}
}

func TestSetattr(t *testing.T) {
	r := newRig(t, nil)
	h := r.create(r.root, "a")
	p := r.nfs(pSetattr, h, sized(3<<40), 0).ok()
	before, after := p.wcc()
	if p.end(); before == nil || before[0] != 0 || after.size != 3<<40 {
		t.Errorf("size %v, then %d", before, after.size)
	}
	if after.used > 1<<20 {
		t.Errorf("a sparse file uses %d bytes", after.used)
	}
	if p := r.nfs(pSetattr, h, moded(0o751), 0).ok(); true {
		if _, a := p.wcc(); a.mode != 0o751 {
			t.Errorf("mode %o", a.mode)
		}
	}
	p = r.nfs(pSetattr, h, raw(args(0, 0, 0, 0, 2, 5, 6, 1)), 0).ok()
	if _, a := p.wcc(); a.atime != clock(5)|6 || a.mtime <= clock(1e9) {
		t.Errorf("times %x, %x", a.atime, a.mtime)
	}
	now := r.getattr(h)
	guard := func(ctime uint64) raw { return raw(args(1, ctime)) }
	r.nfs(pSetattr, h, sized(7), guard(now.ctime+1)).is(errNotSync)
	r.nfs(pSetattr, h, sized(7), guard(now.ctime)).ok()
	if a := r.getattr(h); a.size != 7 {
		t.Errorf("size %d", a.size)
	}
	r.nfs(pSetattr, h, sized(1<<63), 0).is(errFBig)
	r.nfs(pSetattr, r.root, sized(0), 0).is(errIsDir)
	r.nfs(pSetattr, r.mkdir(r.root, "d"), moded(0o700), 0).ok()
	for name, garbage := range map[string][]byte{
		"time_how 3":             args(h, 0, 0, 0, 0, 3, 0, 0),
		"a billion nanoseconds":  args(h, 0, 0, 0, 0, 2, 1, 1000000000, 0, 0),
		"UTIME_NOW in a request": args(h, 0, 0, 0, 0, 2, 1, 1<<30-1, 0, 0),
	} {
		r.Send(100003, 3, pSetattr, garbage)
		if p := r.Receive(); len(p) != 24 || p[23] != 4 {
			t.Errorf("%s is answered with % x", name, p)
		}
	}
}

func TestAccess(t *testing.T) {
	r := newRig(t, func(o *nfs.Options) {
		o.Exports[0].Writable = func(name string) bool { return strings.HasPrefix(name, "w") || name == "r" && os.Getenv("never") != "" }
	})
	r.put("w", "")
	r.put("r", "")
	for _, c := range []struct {
		handle []byte
		want   uint32
	}{{r.root, 0x03}, {r.lookup(r.root, "w"), 0x1d}, {r.lookup(r.root, "r"), 0x01}} {
		p := r.nfs(pAccess, c.handle, 0x3f).ok()
		p.post()
		if got := p.Uint32(); got != c.want {
			t.Errorf("access %#x, want %#x", got, c.want)
		}
		p.end()
	}
}

func TestReadAndWrite(t *testing.T) {
	r := newRig(t, nil)
	h := r.create(r.root, "a")
	if data, eof := r.read(h, 0, 100); len(data) != 0 || !eof {
		t.Errorf("an empty file: %d bytes, eof %v", len(data), eof)
	}
	want := pattern(300<<10 + 5)
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
		{3, 2 << 20, len(want) - 3, true}, // more than the server reads at once
		{7, 0, 0, false},
	} {
		data, eof := r.read(h, uint64(c.off), c.n)
		if len(data) != c.got || eof != c.eof || len(data) > 0 && !bytes.Equal(data, want[c.off:c.off+c.got]) {
			t.Errorf("READ %d at %d: %d bytes, eof %v; want %d, %v", c.n, c.off, len(data), eof, c.got, c.eof)
		}
	}
	verf := r.write(h, 1<<40, []byte("far"))
	if a := r.getattr(h); a.size != 1<<40+3 {
		t.Errorf("size %d", a.size)
	}
	// The verifier stays, whatever is called; no bytes are a write, too.
	if r.write(h, 0, nil) != verf || r.server.Verifier() != verf {
		t.Error("the verifier changed")
	}
	p := r.nfs(pCommit, h, uint64(0), 0).ok()
	if p.wcc(); p.Uint64() != verf {
		t.Error("COMMIT has another verifier")
	}
	p.end()
	p = r.nfs(pWrite, h, uint64(0), 1, 0, "x").ok() // UNSTABLE
	if p.wcc(); p.Uint32() != 1 || p.Uint32() != 2 {
		t.Error("an UNSTABLE write is not answered with FILE_SYNC")
	}
	r.nfs(pWrite, h, uint64(1<<63-1), 1, 2, "x").is(errFBig)
	r.nfs(pRead, h, uint64(1<<63), 1).is(errInval)
	r.nfs(pWrite, r.root, uint64(0), 1, 2, "x").is(errIsDir)
	r.nfs(pRead, r.root, uint64(0), 1).is(errIsDir)
	r.nfs(pCommit, r.root, uint64(0), 0).is(errIsDir)
	for name, garbage := range map[string][]byte{
		"more bytes than announced":  args(h, uint64(0), 1, 2, "xx"),
		"fewer bytes than announced": args(h, uint64(0), 3, 2, "xx"),
		"stable_how 3":               args(h, uint64(0), 2, 3, "xx"),
		"a length beyond the record": args(h, uint64(0), 100, 2, 100),
	} {
		r.Send(100003, 3, pWrite, garbage)
		if p := r.Receive(); len(p) != 24 || p[23] != 4 {
			t.Errorf("%s: answered with % x", name, p)
		}
	}
	if got, _ := r.read(h, 0, 2); string(got) != "x"+string(want[1:2]) {
		t.Errorf("a refused write changed the file: %q", got)
	}
}

func TestCreate(t *testing.T) {
	r := newRig(t, nil)
	h, a := r.nfs(pCreate, r.root, "a", 1, moded(0o600)).made()
	if a.kind != 1 || a.mode != 0o600 || a.size != 0 || a.nlink != 1 {
		t.Errorf("made %+v", a)
	}
	r.nfs(pCreate, r.root, "a", 1, keep).is(errExist) // GUARDED
	r.write(h, 0, []byte("bytes"))
	again, a := r.nfs(pCreate, r.root, "a", 0, moded(0o777)).made() // UNCHECKED
	if !bytes.Equal(again, h) || a.size != 5 || a.mode != 0o600 {
		t.Errorf("UNCHECKED of a file that is there made %+v", a)
	}
	if _, a := r.nfs(pCreate, r.root, "a", 0, sized(0)).made(); a.size != 0 {
		t.Errorf("UNCHECKED with size 0 left %d bytes", a.size)
	}
	if _, a := r.nfs(pCreate, r.root, "b", 0, sized(100)).made(); a.size != 100 || a.mode != 0o644 {
		t.Errorf("made %+v", a)
	}
	r.mkdir(r.root, "d")
	r.nfs(pCreate, r.root, "d", 0, keep).is(errExist)
	r.nfs(pCreate, h, "x", 0, keep).is(errNotDir)
	r.Send(100003, 3, pCreate, args(r.root, "x", 3, keep))
	if p := r.Receive(); len(p) != 24 || p[23] != 4 {
		t.Errorf("createmode 3 is answered with % x", p)
	}
}

// A client that has lost the answer to an exclusive CREATE gets it again, also from a
// server that was started in between; another client does not.
func TestExclusiveCreate(t *testing.T) {
	r := newRig(t, nil)
	const mine, other = 0xfeedface_cafebabe, 0xfeedface_00000001
	h, a := r.nfs(pCreate, r.root, "lock", 2, uint64(mine)).made()
	if a.size != 0 {
		t.Errorf("size %d", a.size)
	}
	r.nfs(pCreate, r.root, "lock", 2, uint64(other)).is(errExist)
	if again, _ := r.nfs(pCreate, r.root, "lock", 2, uint64(mine)).made(); !bytes.Equal(again, h) {
		t.Error("the repetition has another handle")
	}
	r.restart()
	if again, _ := r.nfs(pCreate, r.root, "lock", 2, uint64(mine)).made(); !bytes.Equal(again, h) {
		t.Error("the repetition after a restart has another handle")
	}
	r.nfs(pCreate, r.root, "lock", 2, uint64(other)).is(errExist)
	r.nfs(pSetattr, h, raw(args(1, 0o644, 0, 0, 0, 1, 1)), 0).ok()
	r.nfs(pCreate, r.root, "lock", 2, uint64(mine)).is(errExist)
}

func TestMkdirAndRmdir(t *testing.T) {
	r := newRig(t, nil)
	d, a := r.nfs(pMkdir, r.root, "d", moded(0o711)).made()
	if a.kind != 2 || a.mode != 0o711 {
		t.Errorf("made %+v", a)
	}
	r.nfs(pMkdir, r.root, "d", keep).is(errExist)
	file := r.create(d, "x")
	r.nfs(pRmdir, r.root, "d").is(errNotEmpty)
	r.nfs(pRmdir, d, "x").is(errNotDir)
	r.nfs(pRemove, r.root, "d").is(errIsDir)
	r.nfs(pRemove, d, "x").ok()
	r.nfs(pGetattr, file).is(errStale)
	p := r.nfs(pRmdir, r.root, "d").ok()
	if before, after := p.wcc(); before == nil || after.nlink != 2 {
		t.Errorf("wcc %v, %+v", before, after)
	}
	p.end()
	r.nfs(pGetattr, d).is(errStale)
	r.nfs(pCreate, d, "x", 0, keep).is(errStale)
	r.nfs(pRmdir, r.root, "d").is(errNoEnt)
}

func TestRename(t *testing.T) {
	r := newRig(t, nil)
	d := r.mkdir(r.root, "d")
	a, b := r.create(r.root, "a"), r.create(r.root, "b")
	r.write(a, 0, []byte("a"))
	r.write(b, 0, []byte("b"))
	p := r.nfs(pRename, r.root, "a", d, "b").ok()
	p.wcc()
	p.wcc()
	p.end()
	if got, _ := r.read(a, 0, 10); string(got) != "a" || r.get("d/b") != "a" {
		t.Errorf("the file that was moved holds %q", got)
	}
	r.nfs(pRename, d, "b", r.root, "b").ok() // over another
	if r.get("b") != "a" {
		t.Error("the file was not replaced")
	}
	r.nfs(pGetattr, b).is(errStale)
	r.nfs(pRename, r.root, "b", r.root, "b").ok() // onto itself
	r.nfs(pLink, a, r.root, "c").ok()
	r.nfs(pRename, r.root, "b", r.root, "c").ok() // two names of one file: nothing happens
	if r.get("b") != "a" || r.get("c") != "a" {
		t.Error("a name of the file is gone")
	}
	r.nfs(pRename, r.root, "absent", r.root, "x").is(errNoEnt)
	r.nfs(pRename, r.root, "b", r.root, "d").is(errExist)
	r.nfs(pRename, r.root, "d", r.root, "b").is(errExist)
	r.nfs(pRename, a, "x", r.root, "x").is(errNotDir)
	r.nfs(pRename, r.root, "d", d, "d").is(errInval)
	// What is in a folder goes with it.
	inner := r.create(d, "inner")
	e := r.mkdir(r.root, "e")
	r.nfs(pRename, r.root, "d", e, "moved").ok()
	r.write(inner, 0, []byte("inner"))
	if r.get("e/moved/inner") != "inner" {
		t.Error("the folder's file was not moved with it")
	}
	if !bytes.Equal(r.lookup(d, ".."), e) {
		t.Error("the folder does not know where it is")
	}
}

func TestLink(t *testing.T) {
	r := newRig(t, nil)
	a, d := r.create(r.root, "a"), r.mkdir(r.root, "d")
	p := r.nfs(pLink, a, d, "b").ok()
	if file := p.post(); file.nlink != 2 {
		t.Errorf("%d links", file.nlink)
	}
	p.wcc()
	p.end()
	r.nfs(pLink, a, d, "b").is(errExist)
	r.nfs(pLink, d, r.root, "e").is(errInval)
	// The handle is good as long as there is any name.
	r.nfs(pRemove, r.root, "a").ok()
	r.write(a, 0, []byte("still there"))
	if r.get("d/b") != "still there" {
		t.Error("the file's other name has other bytes")
	}
	r.nfs(pRemove, d, "b").ok()
	r.nfs(pGetattr, a).is(errStale)
}

func TestMknodIsNotSupported(t *testing.T) {
	r := newRig(t, nil)
	p := r.nfs(pMknod, r.root, "dev", 4, keep, 1, 3)
	p.is(errNotSupp)
	if p.Bool() || p.post().kind != 2 {
		t.Error("the folder's wcc_data is wrong")
	}
	p.end()
}

func TestFsinfoFsstatPathconf(t *testing.T) {
	r := newRig(t, nil)
	p := r.nfs(pFsinfo, r.root).ok()
	p.post()
	var sizes []uint32
	for range 7 {
		sizes = append(sizes, p.Uint32())
	}
	if want := []uint32{1 << 20, 1 << 20, 4096, 1 << 20, 1 << 20, 4096, 32 << 10}; !slices.Equal(sizes, want) {
		t.Errorf("FSINFO advises %d, want %d", sizes, want)
	}
	if largest := p.Uint64(); largest < 64<<40 {
		t.Errorf("largest file %d", largest)
	}
	if p.Uint64() != 1 || p.Uint32() != 0x1b {
		t.Error("time_delta or properties are wrong")
	}
	p.end()

	var st unix.Statfs_t
	if err := unix.Statfs(r.dir, &st); err != nil {
		t.Fatal(err)
	}
	p = r.nfs(pFsstat, r.root).ok()
	p.post()
	if total := p.Uint64(); total != st.Blocks*uint64(st.Frsize) {
		t.Errorf("total %d", total)
	}
	if free, available := p.Uint64(), p.Uint64(); available > free || available == 0 {
		t.Errorf("free %d, available %d", free, available)
	}
	for range 3 {
		p.Uint64()
	}
	p.Uint32()
	p.end()

	p = r.nfs(pPathconf, r.root).ok()
	p.post()
	if p.Uint32() < 1000 || p.Uint32() != 255 || !p.Bool() || !p.Bool() || p.Bool() || !p.Bool() {
		t.Error("PATHCONF is wrong")
	}
	p.end()
	for _, proc := range []uint32{pFsinfo, pFsstat, pPathconf} {
		p := r.nfs(proc, []byte("nonsense"))
		if p.is(errBadHandle); p.Bool() {
			t.Error("attributes of no file")
		}
		p.end()
	}
}

func TestSpaceIsAsked(t *testing.T) {
	r := newRig(t, func(o *nfs.Options) {
		o.Exports[0].Space = func() (int64, int64, error) { return 1000, 100, nil }
	})
	p := r.nfs(pFsstat, r.root).ok()
	if p.post(); p.Uint64() != 1000 || p.Uint64() != 100 || p.Uint64() != 100 {
		t.Error("FSSTAT does not say what Space says")
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
	r.put("file", "")
	if got := r.mount("/land/sub"); !bytes.Equal(got, sub) {
		t.Error("a folder of the export mounts as another")
	}
	if got := r.mount("/land/"); !bytes.Equal(got, r.root) {
		t.Error("a slash at the end mounts another")
	}
	other := r.mount("/other")
	for path, status := range map[string]uint32{
		"/absent": errNoEnt, "/land/absent": errNoEnt, "/land/file": errNotDir, "/land/../other": errAcces,
		"land": errNoEnt, "": errNoEnt, "/lan": errNoEnt, "/landed": errNoEnt, "/": errNoEnt, "/land\x00": errNoEnt,
	} {
		if got := r.Call(100005, 3, 1, args(path)).Uint32(); got != status {
			t.Errorf("MNT %q: %d, want %d", path, got, status)
		}
	}
	// Names do not lead from one export to another.
	r.create(r.root, "a")
	r.nfs(pRename, r.root, "a", other, "a").is(errXDev)
	r.nfs(pLink, r.lookup(r.root, "a"), other, "a").is(errXDev)

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
				t.Errorf("mounted by %q", host)
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

// MNT to the byte (RFC 1813 appendix I).
func TestMountToTheByte(t *testing.T) {
	r := newRig(t, nil)
	d := r.Call(100005, 3, 1, args("/land"))
	got := make([]byte, 4+4+32+4+8)
	d.Read(got)
	want := append(append([]byte{0, 0, 0, 0, 0, 0, 0, 32}, r.root...), 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0)
	if d.Err() != nil || !bytes.Equal(got, want) {
		t.Errorf("got % x", got)
	}
}

func TestReadOnlyNames(t *testing.T) {
	writable := map[string]bool{"disk-flat.vmdk": true}
	r := newRig(t, func(o *nfs.Options) {
		o.Exports[0].Writable = func(name string) bool { return writable[name] }
	})
	r.put("old", "old")
	disk, old := r.create(r.root, "disk-flat.vmdk"), r.lookup(r.root, "old")
	r.write(disk, 0, []byte("x"))
	r.nfs(pWrite, old, uint64(0), 1, 2, "x").is(errROFS)
	r.nfs(pSetattr, old, sized(0), 0).is(errROFS)
	r.nfs(pCreate, r.root, "new", 0, keep).is(errROFS)
	r.nfs(pCreate, r.root, "old", 0, sized(0)).is(errROFS)
	r.nfs(pMkdir, r.root, "new", keep).is(errROFS)
	r.nfs(pSymlink, r.root, "new", keep, "to").is(errROFS)
	r.nfs(pRemove, r.root, "old").is(errROFS)
	r.nfs(pRmdir, r.root, "old").is(errROFS)
	r.nfs(pRename, r.root, "old", r.root, "disk-flat.vmdk").is(errROFS)
	r.nfs(pRename, r.root, "disk-flat.vmdk", r.root, "old").is(errROFS)
	r.nfs(pLink, disk, r.root, "new").is(errROFS)
	if r.get("old") != "old" {
		t.Error("a file that is read-only was changed")
	}
	delete(writable, "disk-flat.vmdk") // the copy has ended
	r.nfs(pWrite, disk, uint64(0), 1, 2, "y").is(errROFS)
	if got, _ := r.read(disk, 0, 1); string(got) != "x" {
		t.Errorf("holds %q", got)
	}
}

// Everything a client holds is good after a restart.
func TestHandlesSurviveARestart(t *testing.T) {
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
	// A file that is moved while nobody serves it is found, too.
	r.stop()
	if err := os.Rename(r.path("d0/file"), r.path("moved")); err != nil {
		t.Fatal(err)
	}
	r.start()
	if !bytes.Equal(root, r.root) {
		t.Error("the root's handle changed")
	}
	for _, h := range slices.Backward(handles) {
		if got := r.getattr(h).fileid; got != ids[string(h)] {
			t.Errorf("fileid %d, it was %d", got, ids[string(h)])
		}
	}
	if got := r.write(handles[1], 1, []byte("y")); got == verf {
		t.Error("the verifier is that of the server before")
	}
	if r.get("moved") != "xy" {
		t.Errorf("holds %q", r.get("moved"))
	}
}

// A file that was removed and made again is another one.
func TestANewFileIsNotTheOldOne(t *testing.T) {
	r := newRig(t, nil)
	old := r.create(r.root, "a")
	r.nfs(pRemove, r.root, "a").ok()
	for range 10 { // the inode number is likely to be used again
		h := r.create(r.root, "a")
		if bytes.Equal(h, old) {
			t.Fatal("the new file has the old one's handle")
		}
		r.nfs(pGetattr, old).is(errStale)
		r.nfs(pWrite, old, uint64(0), 1, 2, "x").is(errStale)
		r.nfs(pRemove, r.root, "a").ok()
	}
}

// A call that is sent again on another connection is answered, and not done again.
func TestRepeatedCallsAreNotDoneTwice(t *testing.T) {
	r := newRig(t, nil)
	h := r.create(r.root, "a")
	again := r.Client
	for name, c := range map[string]struct {
		proc uint32
		args []byte
	}{
		"REMOVE": {pRemove, args(r.root, "a")},
		"MKDIR":  {pMkdir, args(r.root, "d", keep)},
		"CREATE": {pCreate, args(r.root, "g", 1, keep)},
	} {
		var replies [2][]byte
		for i := range replies {
			call := append(again.Header(0x5000+c.proc, 100003, 3, c.proc), c.args...)
			again.SendRaw(append(binary.BigEndian.AppendUint32(nil, uint32(len(call))|1<<31), call...))
			replies[i] = again.Receive()
		}
		if !bytes.Equal(replies[0], replies[1]) || binary.BigEndian.Uint32(replies[0][24:]) != 0 {
			t.Errorf("%s: % x, then % x", name, replies[0], replies[1])
		}
	}
	r.nfs(pGetattr, h).is(errStale)
}
