package nfs_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/decamp/decamp/internal/nfs"
	"github.com/decamp/decamp/internal/nfs/rpctest"
	"github.com/decamp/decamp/internal/nfs/xdr"
)

// rig is a server with one export, /land, and a client of it.
type rig struct {
	testing.TB
	*rpctest.Client
	dir    string
	opts   nfs.Options
	server *nfs.Server
	addr   string
	root   []byte // its handle
	log    *logbook
	stop   func()
}

// newRig starts a server. change may set what the test wants otherwise.
func newRig(t testing.TB, change func(*nfs.Options)) *rig {
	t.Helper()
	r := &rig{TB: t, dir: t.TempDir(), log: &logbook{}}
	r.opts = nfs.Options{
		Exports: []nfs.Export{{Path: "/land", Dir: r.dir}},
		Log:     slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(&r.opts)
	}
	t.Cleanup(func() {
		if r.stop(); t.Failed() {
			t.Log(r.log.String())
		}
	})
	r.start()
	return r
}

// start starts the server, on the port it had before if there was one.
func (r *rig) start() {
	r.Helper()
	var err error
	if r.server, err = nfs.New(r.opts); err != nil {
		r.Fatal(err)
	}
	if r.addr == "" {
		r.addr = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", r.addr)
	if err != nil {
		r.Fatal(err)
	}
	r.addr = l.Addr().String()
	ended := make(chan error, 1)
	go func() { ended <- r.server.Serve(context.Background(), l) }()
	var once sync.Once
	r.stop = func() {
		once.Do(func() {
			if err := r.server.Close(); err != nil {
				r.Errorf("close: %v", err)
			}
			if err := <-ended; err != nil {
				r.Errorf("serve: %v", err)
			}
		})
	}
	r.Client = rpctest.Dial(r, r.addr)
	r.root = r.mount("/land")
}

// restart ends the server and starts another one on the same folder and port.
func (r *rig) restart() {
	r.Helper()
	r.stop()
	r.start()
}

func (r *rig) port() string {
	_, port, err := net.SplitHostPort(r.addr)
	if err != nil {
		r.Fatal(err)
	}
	return port
}

// mount returns the handle that MNT gives for a path.
func (r *rig) mount(path string) []byte {
	r.Helper()
	var e xdr.Encoder
	e.String(path)
	d := r.Call(100005, 3, 1, e.Bytes())
	if stat := d.Uint32(); stat != 0 {
		r.Fatalf("MNT %s: status %d", path, stat)
	}
	return d.Opaque(64)
}

// path is a file's name outside of NFS.
func (r *rig) path(name string) string { return filepath.Join(r.dir, name) }

func (r *rig) put(name, text string) {
	r.Helper()
	if err := os.WriteFile(r.path(name), []byte(text), 0o644); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) get(name string) string {
	r.Helper()
	p, err := os.ReadFile(r.path(name))
	if err != nil {
		r.Fatal(err)
	}
	return string(p)
}

// Procedures of the NFS program.
const (
	pGetattr = iota + 1
	pSetattr
	pLookup
	pAccess
	pReadlink
	pRead
	pWrite
	pCreate
	pMkdir
	pSymlink
	pMknod
	pRemove
	pRmdir
	pRename
	pLink
	pReaddir
	pReaddirplus
	pFsstat
	pFsinfo
	pPathconf
	pCommit
)

// args is built up of words, hypers, byte strings and names.
func args(values ...any) []byte {
	var e xdr.Encoder
	for _, v := range values {
		switch v := v.(type) {
		case int:
			e.Uint32(uint32(v))
		case uint64:
			e.Uint64(v)
		case []byte:
			e.Opaque(v)
		case string:
			e.String(v)
		case raw:
			e.Raw(v)
		}
	}
	return e.Bytes()
}

// raw is encoded already.
type raw []byte

// keep is a sattr3 that sets nothing.
var keep = raw(make([]byte, 6*4))

// sized is a sattr3 that sets the size.
func sized(n uint64) raw { return raw(args(0, 0, 0, 1, n, 0, 0)) }

// moded is a sattr3 that sets the mode.
func moded(mode int) raw { return raw(args(1, mode, 0, 0, 0, 0, 0)) }

// reply is the results of a call.
type reply struct {
	*rig
	*xdr.Decoder
	status uint32
}

// nfs calls a procedure.
func (r *rig) nfs(procedure uint32, values ...any) reply {
	r.Helper()
	d := r.Call(100003, 3, procedure, args(values...))
	return reply{r, d, d.Uint32()}
}

// ok fails unless the call succeeded.
func (p reply) ok() reply {
	p.Helper()
	if p.status != 0 {
		p.Fatalf("status %d", p.status)
	}
	return p
}

// is fails unless the call has that status.
func (p reply) is(status uint32) {
	p.Helper()
	if p.status != status {
		p.Errorf("status %d, want %d", p.status, status)
	}
}

// attr is fattr3.
type attr struct {
	kind, mode, nlink, uid, gid uint32
	size, used, rdev            uint64
	fsid, fileid                uint64
	atime, mtime, ctime         uint64 // both words of each
}

// fattr takes fattr3.
func (p reply) fattr() attr {
	p.Helper()
	var a attr
	for _, v := range []*uint32{&a.kind, &a.mode, &a.nlink, &a.uid, &a.gid} {
		*v = p.Uint32()
	}
	for _, v := range []*uint64{&a.size, &a.used, &a.rdev, &a.fsid, &a.fileid, &a.atime, &a.mtime, &a.ctime} {
		*v = p.Uint64()
	}
	if p.Err() != nil {
		p.Fatal(p.Err())
	}
	return a
}

// post takes post_op_attr, which must have attributes.
func (p reply) post() attr {
	p.Helper()
	if !p.Bool() {
		p.Fatalf("no attributes: %v", p.Err())
	}
	return p.fattr()
}

// wcc takes wcc_data. before is nil where there are no attributes of before.
func (p reply) wcc() (before *[3]uint64, after attr) {
	p.Helper()
	if p.Bool() {
		before = &[3]uint64{p.Uint64(), p.Uint64(), p.Uint64()}
	}
	return before, p.post()
}

// made takes what CREATE, MKDIR and SYMLINK return.
func (p reply) made() (handle []byte, a attr) {
	p.Helper()
	p.ok()
	if !p.Bool() {
		p.Fatal("no handle")
	}
	handle = p.Opaque(64)
	a = p.post()
	before, after := p.wcc()
	if before == nil || after.kind != 2 {
		p.Fatal("the folder's wcc_data is not complete")
	}
	return handle, a
}

// end fails if anything follows.
func (p reply) end() {
	p.Helper()
	if p.Err() != nil {
		p.Fatal(p.Err())
	}
	if p.Uint32(); p.Err() == nil {
		p.Fatal("the reply is too long")
	}
}

func (r *rig) create(dir []byte, name string) []byte {
	r.Helper()
	h, _ := r.nfs(pCreate, dir, name, 0, keep).made()
	return h
}

func (r *rig) mkdir(dir []byte, name string) []byte {
	r.Helper()
	h, _ := r.nfs(pMkdir, dir, name, keep).made()
	return h
}

func (r *rig) lookup(dir []byte, name string) []byte {
	r.Helper()
	return r.nfs(pLookup, dir, name).ok().Opaque(64)
}

func (r *rig) getattr(handle []byte) attr {
	r.Helper()
	p := r.nfs(pGetattr, handle).ok()
	a := p.fattr()
	p.end()
	return a
}

// write writes with FILE_SYNC and returns the verifier.
func (r *rig) write(handle []byte, off uint64, data []byte) uint64 {
	r.Helper()
	p := r.nfs(pWrite, handle, off, len(data), 2, data).ok()
	p.wcc()
	if n, committed := p.Uint32(), p.Uint32(); int(n) != len(data) || committed != 2 {
		r.Fatalf("%d bytes of %d written, committed %d", n, len(data), committed)
	}
	verf := p.Uint64()
	p.end()
	return verf
}

// read reads and returns the bytes and eof.
func (r *rig) read(handle []byte, off uint64, n int) ([]byte, bool) {
	r.Helper()
	p := r.nfs(pRead, handle, off, n).ok()
	p.post()
	count, eof, data := p.Uint32(), p.Bool(), p.Opaque(1<<20)
	if int(count) != len(data) {
		r.Fatalf("count %d with %d bytes", count, len(data))
	}
	p.end()
	return data, eof
}

// logbook is a log that tests read.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// clock encodes seconds as nfstime3.
func clock(sec uint32) uint64 { return uint64(sec) << 32 }
