package nfs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/nfs"
	"github.com/decamp/decamp/internal/nfs/rpctest"
	"github.com/decamp/decamp/internal/writebehind"
)

// fakeContent is a Content that keeps its bytes in memory.
type fakeContent struct {
	mu      sync.Mutex
	bytes   []byte
	commits int
	closed  int
	err     error // error of every write; may be nil

	hold chan struct{} // if set, writes keep their buffer until it is closed
}

func (c *fakeContent) Write(ctx context.Context, b *nfs.Buffer, off int64) error {
	defer b.Release()
	if c.hold != nil {
		select {
		case <-c.hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	c.resize(max(int64(len(c.bytes)), off+int64(len(b.Bytes()))))
	copy(c.bytes[off:], b.Bytes())
	return nil
}

func (c *fakeContent) resize(n int64) {
	c.bytes = append(c.bytes, make([]byte, max(0, n-int64(len(c.bytes))))...)[:n]
}

func (c *fakeContent) ReadAt(_ context.Context, p []byte, off int64) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.NewReader(c.bytes).ReadAt(p, off)
}

func (c *fakeContent) Truncate(_ context.Context, size int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resize(size)
	return nil
}

func (c *fakeContent) Commit(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.commits++
	return nil
}

func (c *fakeContent) Size() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int64(len(c.bytes))
}

func (c *fakeContent) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed++
	return nil
}

func (c *fakeContent) setError(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

// withContent makes c the Content of all files whose name ends with -flat.vmdk.
func withContent(c *fakeContent) func(*nfs.Options) {
	return func(o *nfs.Options) {
		o.Exports[0].Open = func(name string) (nfs.Content, error) {
			if strings.HasSuffix(name, "-flat.vmdk") {
				return c, nil
			}
			return nil, nil
		}
	}
}

// The bytes of a file with a Content are not in the folder, only its name and attributes.
func TestFileWithContent(t *testing.T) {
	c := &fakeContent{}
	r := newRig(t, withContent(c))
	h := r.create(r.root, "web-flat.vmdk")
	first := r.getattr(h)
	r.callNFS(pSetattr, h, sizeSattr(1<<20), 0).requireOK()
	want := testPattern(128 << 10)
	r.write(h, 4096, want)
	if a := r.getattr(h); a.size != 1<<20 || a.mtime <= first.mtime || a.ctime <= first.ctime || a.fileid != first.fileid {
		t.Errorf("attributes after the write %+v, before %+v", a, first)
	}
	if got, eof := r.read(h, 4096, len(want)); !bytes.Equal(got, want) || eof {
		t.Errorf("READ returned %d bytes, eof %v, want the written bytes and no eof", len(got), eof)
	}
	if _, eof := r.read(h, 1<<20-10, 100); !eof {
		t.Error("no eof at the end")
	}
	if r.readFile("web-flat.vmdk") != "" {
		t.Error("the file in the folder is not empty")
	}
	r.callNFS(pCommit, h, uint64(0), 0).requireOK()
	if c.commits != 1 {
		t.Errorf("%d commits, want 1", c.commits)
	}
	for _, e := range r.listFolder(pReaddirplus, r.root, 4096) {
		if e.name == "web-flat.vmdk" && e.attr.size != 1<<20 {
			t.Errorf("the listing has size %d, want %d", e.attr.size, 1<<20)
		}
	}
	r.callNFS(pSetattr, h, raw(args(0, 0, 0, 0, 0, 2, 77, 0)), 0).requireOK()
	if a := r.getattr(h); a.mtime != nfsTime(77) {
		t.Errorf("mtime %x, want %x", a.mtime, nfsTime(77))
	}
	r.callNFS(pRemove, r.root, "web-flat.vmdk").requireOK()
	if c.closed != 1 {
		t.Errorf("the Content was closed %d times, want 1", c.closed)
	}
	r.callNFS(pWrite, h, uint64(0), 1, 2, "x").wantStatus(errStale)
}

// When the server ends, it closes the Contents without a commit.
func TestCloseClosesContents(t *testing.T) {
	c := &fakeContent{}
	r := newRig(t, withContent(c))
	r.write(r.create(r.root, "a-flat.vmdk"), 0, []byte("x"))
	r.stop()
	if c.closed != 1 || c.commits != 0 {
		t.Errorf("closed %d times with %d commits, want 1 and 0", c.closed, c.commits)
	}
}

func TestContentErrors(t *testing.T) {
	c := &fakeContent{}
	r := newRig(t, withContent(c))
	h := r.create(r.root, "a-flat.vmdk")
	for _, e := range []struct {
		err    error
		status uint32
	}{
		{fault.New(fault.Full, "no room"), errNoSpc},
		{fmt.Errorf("write: %w", syscall.ENOSPC), errNoSpc},
		{fault.New(fault.Transient, "busy"), errJukebox},
		{fault.New(fault.Conflict, "the copy has ended"), errROFS},
		{fault.New(fault.Corrupt, "odd"), 5},
		{errors.New("odd"), 5},
		{io.ErrUnexpectedEOF, 5},
	} {
		c.setError(e.err)
		p := r.callNFS(pWrite, h, uint64(0), 1, 2, "x")
		if p.wantStatus(e.status); p.status != e.status {
			t.Errorf("wrong status for error %v", e.err)
		}
		p.decodeWcc()
		p.requireEnd()
	}
}

// If the Content of a file cannot be opened, calls fail. The placeholder file is not served instead.
func TestContentOpenFails(t *testing.T) {
	refused := fault.New(fault.Conflict, "another run has it")
	r := newRig(t, func(o *nfs.Options) {
		o.Exports[0].Open = func(string) (nfs.Content, error) { return nil, refused }
	})
	r.writeFile("a-flat.vmdk", "placeholder")
	h := r.lookup(r.root, "a-flat.vmdk")
	r.callNFS(pGetattr, h).wantStatus(errROFS)
	r.callNFS(pRead, h, uint64(0), 100).wantStatus(errROFS)
	r.callNFS(pWrite, h, uint64(0), 1, 2, "x").wantStatus(errROFS)
}

func TestForget(t *testing.T) {
	c := &fakeContent{}
	var mu sync.Mutex
	lands := false
	r := newRig(t, func(o *nfs.Options) {
		o.Exports[0].Open = func(name string) (nfs.Content, error) {
			mu.Lock()
			defer mu.Unlock()
			if lands && name == "d/a" {
				return c, nil
			}
			return nil, nil
		}
	})
	h := r.create(r.mkdir(r.root, "d"), "a")
	r.write(h, 0, []byte("plain"))
	mu.Lock()
	lands = true
	mu.Unlock()
	forget := func() {
		t.Helper()
		if err := r.server.Forget("/land", "d/a"); err != nil {
			t.Fatal(err)
		}
	}
	if r.getattr(h).size != 5 {
		t.Error("the file changed before Forget")
	}
	forget()
	r.write(h, 0, []byte("landed"))
	if r.readFile("d/a") != "plain" || r.getattr(h).size != 6 {
		t.Error("Open was not called again after Forget")
	}
	// If the file is moved away, the handle of the client is stale after Forget.
	if err := os.Rename(r.filePath("d/a"), t.TempDir()+"/adopted"); err != nil {
		t.Fatal(err)
	}
	forget()
	if c.closed != 1 {
		t.Errorf("the Content was closed %d times, want 1", c.closed)
	}
	r.callNFS(pWrite, h, uint64(0), 1, 2, "x").wantStatus(errStale)
	if err := r.server.Forget("/absent", "a"); !fault.Is(err, fault.NotFound) {
		t.Errorf("Forget for an absent export returned %v, want NotFound", err)
	}
}

// If Forget runs during Export.Open of the same file, the result of that Open is not kept.
func TestForgetWhileOpening(t *testing.T) {
	stale := &fakeContent{}
	for _, tt := range []struct {
		name  string
		first nfs.Content
	}{
		{"plain file", nil},
		{"content", stale},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var r *rig
			var opened atomic.Int32
			second := &fakeContent{}
			r = newRig(t, func(o *nfs.Options) {
				o.Exports[0].Open = func(name string) (nfs.Content, error) {
					if opened.Add(1) > 1 {
						return second, nil
					}
					return tt.first, r.server.Forget("/land", name)
				}
			})
			r.writeFile("a", "plain")
			h := r.lookup(r.root, "a") // LOOKUP returns attributes, and therefore opens the file
			r.write(h, 0, []byte("landed"))
			if n := opened.Load(); n != 2 {
				t.Errorf("Open was called %d times, want 2", n)
			}
			if got := r.getattr(h).size; got != 6 || second.Size() != 6 {
				t.Errorf("size %d, %d bytes in the second Content; want 6", got, second.Size())
			}
			r.stop()
			if got := r.readFile("a"); got != "plain" {
				t.Errorf("the file in the folder contains %q", got)
			}
			if tt.first != nil && stale.closed != 1 || second.closed != 1 {
				t.Errorf("the first Content was closed %d times, the second %d times, want once", stale.closed, second.closed)
			}
		})
	}
}

// After RENAME of a plain file, Open is called with the new name and may return a Content. A file with a Content keeps
// it.
func TestRenameOpensPlainFilesAgain(t *testing.T) {
	c := &fakeContent{}
	r := newRig(t, withContent(c))
	h := r.create(r.root, "tmp")
	r.write(h, 0, []byte("plain")) // the file is open from now on
	r.callNFS(pRename, r.root, "tmp", r.root, "a-flat.vmdk").requireOK()
	r.write(h, 0, []byte("landed"))
	if got := r.readFile("a-flat.vmdk"); got != "plain" || c.Size() != 6 {
		t.Errorf("the file in the folder contains %q, the Content %d bytes", got, c.Size())
	}
	r.callNFS(pRename, r.root, "a-flat.vmdk", r.root, "tmp").requireOK()
	if n := r.getattr(h).size; n != 6 || c.closed != 0 {
		t.Errorf("after the second RENAME: %d bytes, the Content was closed %d times", n, c.closed)
	}
}

// Each way to change the path of a plain file makes the server call Open with the new path, and keeps the
// bytes of WRITEs after it.
func TestChangedPathsOpenPlainFilesAgain(t *testing.T) {
	for _, tt := range []struct {
		name string
		move func(r *rig) // moves d/e/f/tmp to the path of want
		want string       // new path
	}{
		{"rename of the file", func(r *rig) {
			r.callNFS(pRename, r.lookupPath("d/e/f"), "tmp", r.root, "a-flat.vmdk").requireOK()
		}, "a-flat.vmdk"},
		{"rename of its folder", func(r *rig) {
			r.callNFS(pRename, r.lookupPath("d/e"), "f", r.lookupPath("d/e"), "g").requireOK()
		}, "d/e/g/tmp"},
		{"rename of a folder above", func(r *rig) { r.callNFS(pRename, r.root, "d", r.root, "z").requireOK() }, "z/e/f/tmp"},
		{"link and remove", func(r *rig) {
			r.callNFS(pLink, r.lookup(r.lookupPath("d/e/f"), "tmp"), r.root, "a-flat.vmdk").requireOK()
			r.callNFS(pRemove, r.lookupPath("d/e/f"), "tmp").requireOK()
		}, "a-flat.vmdk"},
		{"rename over one of two names", func(r *rig) {
			r.callNFS(pLink, r.lookup(r.lookupPath("d/e/f"), "tmp"), r.root, "a-flat.vmdk").requireOK()
			r.create(r.root, "other")
			r.callNFS(pRename, r.root, "other", r.lookupPath("d/e/f"), "tmp").requireOK()
		}, "a-flat.vmdk"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &fakeContent{}
			opened := map[string]int{}
			r := newRig(t, func(o *nfs.Options) {
				o.Exports[0].Open = func(name string) (nfs.Content, error) {
					if opened[name]++; name == tt.want {
						return c, nil
					}
					return nil, nil
				}
			})
			h := r.create(r.mkdir(r.mkdir(r.mkdir(r.root, "d"), "e"), "f"), "tmp")
			beside := r.create(r.root, "beside")
			r.write(h, 0, []byte("plain"))
			r.write(beside, 0, []byte("x"))
			tt.move(r)
			r.write(h, 0, []byte("landed"))
			r.callNFS(pCommit, h, uint64(0), 0).requireOK()
			r.write(beside, 0, []byte("y"))
			if got := r.readFile(tt.want); got != "plain" || c.Size() != 6 || c.commits != 1 {
				t.Errorf("the file in the folder contains %q, the Content %d bytes with %d commits", got, c.Size(), c.commits)
			}
			if opened[tt.want] != 1 || opened["beside"] != 1 {
				t.Errorf("calls of Open: %v", opened)
			}
		})
	}
}

// lookupPath returns the handle of a folder.
func (r *rig) lookupPath(path string) []byte {
	r.Helper()
	h := r.root
	for _, name := range strings.Split(path, "/") {
		h = r.lookup(h, name)
	}
	return h
}

// If RENAME runs during Export.Open for the old name, a plain file is opened again with the new name, and a Content is
// kept.
func TestRenameWhileOpening(t *testing.T) {
	for _, tt := range []struct {
		name  string
		first *fakeContent // result of Open for the old name; nil: the plain file
		want  string       // names of the calls of Open
	}{
		{"plain file", nil, "tmp a-flat.vmdk"},
		{"content", &fakeContent{}, "tmp"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var r *rig
			var other *rpctest.Client
			var opened []string
			content := &fakeContent{}
			r = newRig(t, func(o *nfs.Options) {
				o.Exports[0].Open = func(name string) (nfs.Content, error) {
					opened = append(opened, name)
					if name != "tmp" {
						return content, nil
					}
					if stat := other.Call(100003, 3, pRename, args(r.root, "tmp", r.root, "a-flat.vmdk")).Uint32(); stat != 0 {
						t.Errorf("RENAME: status %d", stat)
					}
					if tt.first == nil {
						return nil, nil
					}
					content = tt.first
					return content, nil
				}
			})
			other = rpctest.Dial(t, r.addr)
			r.writeFile("tmp", "plain")
			h := r.lookup(r.root, "tmp") // LOOKUP returns attributes, and therefore opens the file
			r.write(h, 0, []byte("landed"))
			if got := strings.Join(opened, " "); got != tt.want {
				t.Errorf("Open was called with %q, want %q", got, tt.want)
			}
			if got := r.readFile("a-flat.vmdk"); got != "plain" || content.Size() != 6 || content.closed != 0 {
				t.Errorf("the file in the folder contains %q, the Content %d bytes; it was closed %d times", got, content.Size(), content.closed)
			}
		})
	}
}

// If the memory of the disks is used up, the connection of their writer waits. Lock files and calls on other
// connections do not wait.
func TestLocksDoNotWaitForDisks(t *testing.T) {
	c := &fakeContent{hold: make(chan struct{})}
	pool := writebehind.NewPool(writebehind.MinBudget)
	r := newRig(t, func(o *nfs.Options) {
		withContent(c)(o)
		o.Pool = pool
	})
	disk, lock := r.create(r.root, "a-flat.vmdk"), r.create(r.root, ".lck-1")
	writer := rpctest.Dial(t, r.addr)
	const writes, size = 24, 1 << 20
	sent := make(chan struct{})
	go func() { // blocks until the disk accepts writes
		defer close(sent)
		for i := range writes {
			call := append(writer.Header(uint32(i), 100003, 3, pWrite), args(disk, uint64(i*size), size, 2, make([]byte, size))...)
			if _, err := writer.Conn().Write(rpctest.Record(call)); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	for pool.Lent() < pool.Budget()/2 { // the rest is windows and reserve
		r.getattr(disk) // let the server run between two checks
	}
	for i := range 20 {
		r.write(lock, 0, fmt.Appendf(nil, "%84d", i))
		r.getattr(r.root)
	}
	close(c.hold)
	<-sent
	for range writes {
		if _, err := writer.TryReceive(); err != nil {
			t.Fatal(err)
		}
	}
	if n := pool.Lent(); n != 0 {
		t.Errorf("%d bytes are not released", n)
	}
	if c.Size() != writes*size {
		t.Errorf("the disk has %d bytes, want %d", c.Size(), writes*size)
	}
}

// Heartbeats and lock renewals behind the WRITEs to a blocked disk on the same connection are answered.
func TestHeartbeatsDoNotWaitForBlockedDisk(t *testing.T) {
	c := &fakeContent{hold: make(chan struct{})}
	pool := writebehind.NewPool(writebehind.MinBudget)
	r := newRig(t, func(o *nfs.Options) {
		withContent(c)(o)
		o.Pool = pool
	})
	disk, lock := r.create(r.root, "a-flat.vmdk"), r.create(r.root, ".lck-1")
	const writes, size = 24, 1 << 20
	want := testPattern(writes * size)
	for i := range writes {
		r.Send(100003, 3, pWrite, args(disk, uint64(i*size), size, 2, want[i*size:(i+1)*size]))
	}
	for i := range 3 {
		r.getattr(disk)
		r.write(lock, 0, fmt.Appendf(nil, "%84d", i))
	}
	if n := pool.Lent(); n == 0 || n > pool.Budget() {
		t.Errorf("%d bytes are lent, want more than 0 and at most %d", n, pool.Budget())
	}
	close(c.hold)
	for range writes {
		r.Receive()
	}
	if !bytes.Equal(c.bytes, want) {
		t.Error("the disk differs from the written data")
	}
	if n := pool.Lent(); n != 0 {
		t.Errorf("%d bytes are not released", n)
	}
}

// With Durable, data that is acknowledged as stable is committed.
func TestDurable(t *testing.T) {
	c := &fakeContent{}
	r := newRig(t, func(o *nfs.Options) {
		withContent(c)(o)
		o.Durable = true
	})
	h := r.create(r.root, "a-flat.vmdk")
	for _, w := range []struct{ stable, committed, commits int }{{0, 0, 0}, {1, 2, 1}, {2, 2, 2}} {
		p := r.callNFS(pWrite, h, uint64(0), 1, w.stable, "x").requireOK()
		if p.decodeWcc(); p.Uint32() != 1 || int(p.Uint32()) != w.committed || c.commits != w.commits {
			t.Errorf("stable_how %d: %d commits, want %d and committed %d", w.stable, c.commits, w.commits, w.committed)
		}
	}
	r.callNFS(pCommit, h, uint64(0), 0).requireOK()
	r.callNFS(pSetattr, h, sizeSattr(10), 0).requireOK()
	if c.commits != 4 {
		t.Errorf("%d commits after COMMIT and SETATTR, want 4", c.commits)
	}
	// Plain files and folders are flushed by other code.
	plain := r.create(r.root, "plain")
	r.write(plain, 0, []byte("x"))
	r.callNFS(pRename, r.root, "plain", r.mkdir(r.root, "d"), "moved").requireOK()
}

// A server that ends does not reply to calls that it cannot finish. The client repeats them at the next server.
func TestStoppedServerSendsNoErrors(t *testing.T) {
	c := &fakeContent{hold: make(chan struct{})}
	r := newRig(t, withContent(c))
	h := r.create(r.root, "a-flat.vmdk")
	r.Send(100003, 3, pWrite, args(h, uint64(0), 1, 2, "x"))
	r.getattr(h) // the write is or will be in work
	r.stop()
	for {
		p, err := r.TryReceive()
		if err != nil {
			return
		}
		t.Errorf("got reply % x, want none", p)
	}
}

func TestOnlyAdmittedHosts(t *testing.T) {
	var refuse atomic.Bool
	r := newRig(t, func(o *nfs.Options) {
		o.Admit = func(a netip.Addr) bool { return !refuse.Load() && a.IsLoopback() }
	})
	refuse.Store(true)
	nc, err := net.Dial("tcp", r.addr)
	if err != nil {
		return // reset at once
	}
	if _, err := rpctest.New(t, nc).TryReceive(); err == nil {
		t.Error("a host that is not admitted got a reply")
	}
}

func TestInvalidExportsAreRefused(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		exports []nfs.Export
		kind    fault.Kind
	}{
		"none":         {nil, fault.Invalid},
		"no path":      {[]nfs.Export{{Dir: dir}}, fault.Invalid},
		"relative":     {[]nfs.Export{{Path: "land", Dir: dir}}, fault.Invalid},
		"not clean":    {[]nfs.Export{{Path: "/land/", Dir: dir}}, fault.Invalid},
		"twice":        {[]nfs.Export{{Path: "/a", Dir: dir}, {Path: "/a", Dir: dir}}, fault.Invalid},
		"missing":      {[]nfs.Export{{Path: "/a", Dir: dir + "/absent"}}, fault.NotFound},
		"not a folder": {[]nfs.Export{{Path: "/a", Dir: os.Args[0]}}, fault.NotFound},
	} {
		s, err := nfs.New(nfs.Options{Exports: c.exports})
		if !fault.Is(err, c.kind) || fault.HintOf(err) == "" {
			t.Errorf("%s: got error %v (hint %q), want kind %v and a hint", name, err, fault.HintOf(err), c.kind)
		}
		if s != nil {
			t.Errorf("%s: got a server, want nil", name)
		}
	}
}

// With more files than the server keeps open, no file is closed while it is in use.
func TestManyOpenFiles(t *testing.T) {
	r := newRig(t, nil)
	const files = 400
	var handles [][]byte
	for i := range files {
		handles = append(handles, r.create(r.root, fmt.Sprint(i)))
	}
	var wg sync.WaitGroup
	for range 4 {
		c := rpctest.Dial(t, r.addr)
		wg.Go(func() {
			for i, h := range handles {
				c.Call(100003, 3, pWrite, args(h, uint64(0), 4, 2, fmt.Sprintf("%04d", i)))
			}
		})
	}
	wg.Wait()
	for i := range handles {
		if got := r.readFile(fmt.Sprint(i)); got != fmt.Sprintf("%04d", i) {
			t.Errorf("file %d contains %q, want %04d", i, got, i)
		}
	}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	if len(fds) > 250 {
		t.Errorf("%d descriptors are open, want at most 250", len(fds))
	}
}
