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

	"github.com/decamp/decamp/internal/lab/loopback"
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
	root   []byte // handle of the export's folder
	log    *logBuffer
	stop   func()
}

// newRig starts a server. change, if not nil, changes its options.
func newRig(t testing.TB, change func(*nfs.Options)) *rig {
	t.Helper()
	r := &rig{TB: t, dir: t.TempDir(), addr: loopback.Reserve(t), log: &logBuffer{}}
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

// start starts the server.
func (r *rig) start() {
	r.Helper()
	var err error
	if r.server, err = nfs.New(r.opts); err != nil {
		r.Fatal(err)
	}
	l, err := net.Listen("tcp", r.addr)
	if err != nil {
		r.Fatal(err)
	}
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

// mount returns the handle that MNT returns for a path.
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

// filePath returns the local path of a file of the export.
func (r *rig) filePath(name string) string { return filepath.Join(r.dir, name) }

func (r *rig) writeFile(name, text string) {
	r.Helper()
	if err := os.WriteFile(r.filePath(name), []byte(text), 0o644); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) readFile(name string) string {
	r.Helper()
	p, err := os.ReadFile(r.filePath(name))
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

// args encodes arguments: words, hypers, byte strings and names.
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

// raw is encoded data.
type raw []byte

// emptySattr is a sattr3 that sets nothing.
var emptySattr = raw(make([]byte, 6*4))

// sizeSattr returns a sattr3 that sets the size.
func sizeSattr(n uint64) raw { return raw(args(0, 0, 0, 1, n, 0, 0)) }

// modeSattr returns a sattr3 that sets the mode.
func modeSattr(mode int) raw { return raw(args(1, mode, 0, 0, 0, 0, 0)) }

// reply holds the results of a call.
type reply struct {
	*rig
	*xdr.Decoder
	status uint32
}

// callNFS calls a procedure of the NFS program.
func (r *rig) callNFS(procedure uint32, values ...any) reply {
	r.Helper()
	d := r.Call(100003, 3, procedure, args(values...))
	return reply{r, d, d.Uint32()}
}

// requireOK fails unless the call succeeded.
func (p reply) requireOK() reply {
	p.Helper()
	if p.status != 0 {
		p.Fatalf("status %d", p.status)
	}
	return p
}

// wantStatus fails unless the call has the status.
func (p reply) wantStatus(status uint32) {
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
	atime, mtime, ctime         uint64 // seconds in the upper, nanoseconds in the lower word
}

// decodeAttr decodes a fattr3.
func (p reply) decodeAttr() attr {
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

// decodePostAttr decodes a post_op_attr, which must have attributes.
func (p reply) decodePostAttr() attr {
	p.Helper()
	if !p.Bool() {
		p.Fatalf("no attributes: %v", p.Err())
	}
	return p.decodeAttr()
}

// decodeWcc decodes wcc_data. before is nil if the reply has no attributes from before the call.
func (p reply) decodeWcc() (before *[3]uint64, after attr) {
	p.Helper()
	if p.Bool() {
		before = &[3]uint64{p.Uint64(), p.Uint64(), p.Uint64()}
	}
	return before, p.decodePostAttr()
}

// decodeCreated decodes the results of CREATE, MKDIR and SYMLINK.
func (p reply) decodeCreated() (handle []byte, a attr) {
	p.Helper()
	p.requireOK()
	if !p.Bool() {
		p.Fatal("no handle")
	}
	handle = p.Opaque(64)
	a = p.decodePostAttr()
	before, after := p.decodeWcc()
	if before == nil || after.kind != 2 {
		p.Fatal("the folder's wcc_data is not complete")
	}
	return handle, a
}

// requireEnd fails if more data follows.
func (p reply) requireEnd() {
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
	h, _ := r.callNFS(pCreate, dir, name, 0, emptySattr).decodeCreated()
	return h
}

func (r *rig) mkdir(dir []byte, name string) []byte {
	r.Helper()
	h, _ := r.callNFS(pMkdir, dir, name, emptySattr).decodeCreated()
	return h
}

func (r *rig) lookup(dir []byte, name string) []byte {
	r.Helper()
	return r.callNFS(pLookup, dir, name).requireOK().Opaque(64)
}

func (r *rig) getattr(handle []byte) attr {
	r.Helper()
	p := r.callNFS(pGetattr, handle).requireOK()
	a := p.decodeAttr()
	p.requireEnd()
	return a
}

// write writes with FILE_SYNC and returns the verifier.
func (r *rig) write(handle []byte, off uint64, data []byte) uint64 {
	r.Helper()
	p := r.callNFS(pWrite, handle, off, len(data), 2, data).requireOK()
	p.decodeWcc()
	if n, committed := p.Uint32(), p.Uint32(); int(n) != len(data) || committed != 2 {
		r.Fatalf("%d bytes of %d written, committed %d", n, len(data), committed)
	}
	verf := p.Uint64()
	p.requireEnd()
	return verf
}

// read returns the bytes and eof of a READ.
func (r *rig) read(handle []byte, off uint64, n int) ([]byte, bool) {
	r.Helper()
	p := r.callNFS(pRead, handle, off, n).requireOK()
	p.decodePostAttr()
	count, eof, data := p.Uint32(), p.Bool(), p.Opaque(1<<20)
	if int(count) != len(data) {
		r.Fatalf("count %d with %d bytes", count, len(data))
	}
	p.requireEnd()
	return data, eof
}

// logBuffer keeps the log for tests.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// nfsTime returns seconds as an nfstime3.
func nfsTime(sec uint32) uint64 { return uint64(sec) << 32 }
