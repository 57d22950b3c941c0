package nfsclient

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/lab/nfstest"
)

// testTimeout limits the wait for an event that should happen at once.
const testTimeout = time.Minute

// eventLog records the events of a datastore, and lets a test wait for them.
type eventLog struct {
	mu   sync.Mutex
	all  []Event
	more chan struct{} // closed and replaced on each event
}

func newEventLog() *eventLog { return &eventLog{more: make(chan struct{})} }

func (ev *eventLog) add(e Event) {
	ev.mu.Lock()
	defer ev.mu.Unlock()
	ev.all = append(ev.all, e)
	close(ev.more)
	ev.more = make(chan struct{})
}

// waitFor returns the first event of this kind after the first skip events.
func (ev *eventLog) waitFor(t *testing.T, kind EventKind, skip int) Event {
	t.Helper()
	timeout := time.After(testTimeout)
	for {
		ev.mu.Lock()
		all, more := ev.all, ev.more
		ev.mu.Unlock()
		if i := slices.IndexFunc(all[min(skip, len(all)):], func(e Event) bool { return e.Kind == kind }); i >= 0 {
			return all[skip+i]
		}
		select {
		case <-more:
		case <-timeout:
			t.Fatalf("no %q among %v", kind, all)
		}
	}
}

func (ev *eventLog) count() int {
	ev.mu.Lock()
	defer ev.mu.Unlock()
	return len(ev.all)
}

func startServer(t *testing.T) *nfstest.Server {
	t.Helper()
	s, err := nfstest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func clientConfig(s *nfstest.Server) Config {
	return Config{Host: "127.0.0.1", Path: nfstest.Export, PortmapAddr: s.Addr(), Machine: "esx1", Times: Times{Reconnect: time.Millisecond}}
}

func mustMount(t *testing.T, cfg Config) *Datastore {
	t.Helper()
	d, err := Mount(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Abandon)
	return d
}

func mustCreate(t *testing.T, d *Datastore, name string) *File {
	t.Helper()
	f, err := d.Create(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func closeFile(t *testing.T, f *File) {
	t.Helper()
	if err := f.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func randomBytes(n int) []byte {
	p := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(p) // never fails
	return p
}

// writeAll writes data through a Writer in pieces of ioSize bytes.
func writeAll(t *testing.T, f *File, data []byte) error {
	t.Helper()
	w := f.NewWriter(t.Context(), 0)
	var err error
	for off := 0; off < len(data) && err == nil; off += ioSize {
		err = w.WriteAt(data[off:min(len(data), off+ioSize)], int64(off))
	}
	return errors.Join(err, w.Close())
}

func TestCallsOfMount(t *testing.T) {
	s := startServer(t)
	d := mustMount(t, clientConfig(s))
	var procs []string
	for _, op := range s.Ops() {
		procs = append(procs, op.Proc)
		if op.UID != 0 {
			t.Errorf("%s as uid %d", op.Proc, op.UID)
		}
		if os.Geteuid() == 0 && op.Port >= 1024 {
			t.Errorf("%s from port %d", op.Proc, op.Port)
		}
	}
	if got := strings.Join(procs, " "); got != "FSINFO GETATTR FSSTAT" {
		t.Errorf("calls %s", got)
	}
	if err := d.Unmount(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := d.Stat(t.Context(), "x"); !errors.Is(err, ErrUnmounted) {
		t.Errorf("after unmount: %v", err)
	}
}

func TestMountRefusals(t *testing.T) {
	s := startServer(t)
	cfg := clientConfig(s)
	cfg.Path = "/elsewhere"
	if _, err := Mount(t.Context(), cfg); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("another path: %v", err)
	}
	cfg.Path = nfstest.Export + "/denied"
	if _, err := Mount(t.Context(), cfg); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("no access: %v", err)
	}
	s.SetHandleSize(64)
	if _, err := Mount(t.Context(), clientConfig(s)); !errors.Is(err, ErrHandleSize) {
		t.Errorf("handle of 64 bytes: %v", err)
	}
	s.SetHandleSize(56)
	mustMount(t, clientConfig(s))
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := Mount(t.Context(), clientConfig(s)); err == nil {
		t.Error("an export of a stopped server was mounted")
	}
}

func TestMountTimesOutOnASilentPortmapper(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close() // the backlog accepts connections, but nothing answers
	cfg := Config{Host: "127.0.0.1", Path: "/x", PortmapAddr: ln.Addr().String(), Times: Times{Mount: 10 * time.Millisecond}}
	_, err = Mount(t.Context(), cfg)
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, os.ErrDeadlineExceeded) { // os.ErrDeadlineExceeded if it still connects
		t.Error(err)
	}
}

func TestFilesAndFolders(t *testing.T) {
	s := startServer(t)
	d := mustMount(t, clientConfig(s))
	ctx := t.Context()
	if err := d.MkdirAll(ctx, "a/b"); err != nil {
		t.Fatal(err)
	}
	var want []string
	for i := range 40 { // several pages
		name := fmt.Sprintf("f%02d", i)
		want = append(want, name)
		closeFile(t, mustCreate(t, d, "a/b/"+name))
	}
	entries, err := d.ReadDir(ctx, "a/b")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("listing: %v", got)
	}
	if _, err := d.Create(ctx, "a/b/f00"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("create again: %v", err)
	}
	if err := d.Rename(ctx, "a/b/f00", "a/f"); err != nil {
		t.Error(err)
	}
	if err := d.Remove(ctx, "a/f"); err != nil {
		t.Error(err)
	}
	if _, err := d.Stat(ctx, "a/f"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after remove: %v", err)
	}
	if err := d.Remove(ctx, "a/b"); StatusOf(err) != ErrNotEmpt {
		t.Errorf("remove a folder with files: %v", err)
	}
}

func TestLockFileIsNamedAfterTheFileID(t *testing.T) {
	s := startServer(t)
	d := mustMount(t, clientConfig(s))
	f := mustCreate(t, d, "x")
	var le [8]byte
	binary.LittleEndian.PutUint64(le[:], f.FileID())
	name := fmt.Sprintf(".lck-%x", le)
	lock, err := s.Read(name)
	if err != nil || len(lock) != 84 || !bytes.Contains(lock, []byte("esx1")) {
		t.Errorf("%s: %q, %v; files: %v", name, lock, err, s.Names(""))
	}
	if d.OpenFiles() != 1 {
		t.Errorf("%d files open", d.OpenFiles())
	}
	closeFile(t, f)
	if got := s.Names(""); !slices.Equal(got, []string{"x"}) || d.OpenFiles() != 0 {
		t.Errorf("after close: %v, %d open", got, d.OpenFiles())
	}
}

func TestLockIsRenewed(t *testing.T) {
	s := startServer(t)
	ev := newEventLog()
	cfg := clientConfig(s)
	cfg.OnEvent, cfg.Times.LockUpdate = ev.add, time.Millisecond
	d := mustMount(t, cfg)
	f := mustCreate(t, d, "x")
	ev.waitFor(t, LockRenewed, 0)
	closeFile(t, f)
	for _, op := range s.Ops() {
		if op.Proc == "WRITE" && (op.Length != 84 || op.Offset != 0 || op.Stable != fileSync) {
			t.Errorf("%+v", op)
		}
	}
}

func TestLockOfALivingHostIsRespected(t *testing.T) {
	s := startServer(t)
	cfg := clientConfig(s)
	cfg.Times.LockUpdate = time.Millisecond
	first := mustMount(t, cfg)
	f := mustCreate(t, first, "x")
	cfg.Machine = "esx2"
	// Long enough for the first host to renew the lock, even on a busy machine.
	cfg.Times.LockUpdate, cfg.Times.LockTimeout = 200*time.Millisecond, 400*time.Millisecond
	second := mustMount(t, cfg)
	if _, err := second.Open(t.Context(), "x"); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "esx1") {
		t.Errorf("open of a locked file: %v", err)
	}
	closeFile(t, f)
	f, err := second.Open(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	closeFile(t, f)
}

func TestLockOfADeadHostIsBroken(t *testing.T) {
	s := startServer(t)
	first := mustMount(t, clientConfig(s))
	mustCreate(t, first, "x")
	first.Abandon()
	ev := newEventLog()
	cfg := clientConfig(s)
	cfg.OnEvent = ev.add
	cfg.Times.LockUpdate, cfg.Times.LockTimeout, cfg.Times.LockBreak = time.Millisecond, 5*time.Millisecond, time.Millisecond
	second := mustMount(t, cfg)
	f, err := second.Open(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	ev.waitFor(t, LockBroken, 0)
	_ = f.Close(t.Context()) // its lock may be lost by now, with these short times
}

func TestLostLockFailsWrites(t *testing.T) {
	s := startServer(t)
	ev := newEventLog()
	cfg := clientConfig(s)
	cfg.OnEvent, cfg.Times.LockUpdate = ev.add, time.Millisecond
	d := mustMount(t, cfg)
	f := mustCreate(t, d, "x")
	s.Hook(func(op nfstest.Op) nfstest.Verdict {
		if op.Proc == "WRITE" && op.Length == lockSize {
			return nfstest.Verdict{Status: uint32(ErrIO)}
		}
		return nfstest.Verdict{}
	})
	ev.waitFor(t, LockLost, 0)
	if err := f.WriteAt(t.Context(), []byte("data"), 0); !errors.Is(err, ErrLockLost) {
		t.Errorf("write without lock: %v", err)
	}
	if err := f.Close(t.Context()); !errors.Is(err, ErrLockLost) {
		t.Errorf("close: %v", err)
	}
}

func TestWriterWritesAllData(t *testing.T) {
	data := randomBytes(5<<20 + 1234)
	for _, tc := range []Config{{}, {Unstable: true}, {Connections: 4}, {WriteSize: 16 << 10}} {
		s := startServer(t)
		cfg := clientConfig(s)
		cfg.Unstable, cfg.Connections, cfg.WriteSize, cfg.Seed = tc.Unstable, tc.Connections, tc.WriteSize, 7
		d := mustMount(t, cfg)
		f := mustCreate(t, d, "x")
		if err := writeAll(t, f, data); err != nil {
			t.Fatal(err)
		}
		back := make([]byte, len(data)+1)
		if n, err := f.ReadAt(t.Context(), back, 0); n != len(data) || err != io.EOF || !bytes.Equal(back[:n], data) {
			t.Errorf("%+v: read back %d bytes, %v, or the content differs", tc, n, err)
		}
		closeFile(t, f)
		checkWrites(t, s.Ops(), tc)
	}
}

func checkWrites(t *testing.T, ops []nfstest.Op, tc Config) {
	t.Helper()
	ports := map[int]bool{}
	last, back, commits, largest := int64(-1), 0, 0, 0
	for _, op := range ops {
		ports[op.Port] = true
		if op.Proc == "COMMIT" {
			commits++
		}
		if op.Proc != "WRITE" || op.Length == lockSize {
			continue
		}
		if (op.Stable == fileSync) == tc.Unstable {
			t.Errorf("%+v: WRITE with stable_how %d", tc, op.Stable)
		}
		if op.Offset < last {
			back++
		}
		last, largest = op.Offset, max(largest, op.Length)
	}
	if back == 0 {
		t.Errorf("%+v: no WRITE arrived out of order", tc)
	}
	want := tc.withDefaults()
	if (commits > 0) != tc.Unstable || len(ports) != want.Connections || largest != want.WriteSize {
		t.Errorf("%+v: %d COMMITs, %d connections, WRITEs of %d bytes", tc, commits, len(ports), largest)
	}
}

func TestPartialWrites(t *testing.T) {
	s := startServer(t)
	d := mustMount(t, clientConfig(s))
	f := mustCreate(t, d, "x")
	s.SetMaxWrite(1000)
	data := randomBytes(200_000)
	if err := writeAll(t, f, data); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Read("x"); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes arrived, %v, or the content differs", len(got), err)
	}
	closeFile(t, f)
}

// The server stops several times and restarts with the same handles. The mount is hard, so
// the writes succeed.
func TestServerRestarts(t *testing.T) {
	for _, unstableWrites := range []bool{false, true} {
		s := startServer(t)
		ev := newEventLog()
		cfg := clientConfig(s)
		cfg.Unstable, cfg.OnEvent = unstableWrites, ev.add
		d := mustMount(t, cfg)
		f := mustCreate(t, d, "x")
		data := randomBytes(8 << 20)
		xids := map[uint32]int{}
		var mu sync.Mutex
		const restarts = 3
		writes, stopAt, stops := 0, 20, 0
		down := make(chan struct{}, restarts)
		s.Hook(func(op nfstest.Op) nfstest.Verdict {
			mu.Lock()
			defer mu.Unlock()
			xids[op.XID]++
			if op.Proc != "WRITE" {
				return nfstest.Verdict{}
			}
			if writes++; writes == stopAt && stops < restarts {
				stopAt += 25
				stops++
				down <- struct{}{}
				return nfstest.Verdict{NoReply: true}
			}
			return nfstest.Verdict{}
		})
		restarted := make(chan error, 1)
		go func() {
			var err error
			for range restarts {
				<-down
				err = errors.Join(err, s.Stop(), s.Resume())
			}
			restarted <- err
		}()
		if err := writeAll(t, f, data); err != nil {
			t.Fatal(err)
		}
		if err := <-restarted; err != nil {
			t.Fatal(err)
		}
		closeFile(t, f)
		if got, err := s.Read("x"); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes arrived, %v, or the content differs", len(got), err)
		}
		s.Hook(nil) // heartbeats continue
		again := 0
		ports := map[int]bool{}
		for _, op := range s.Ops() {
			ports[op.Port] = true
		}
		for _, n := range xids {
			if n > 1 {
				again++
			}
		}
		if again == 0 {
			t.Error("no call was sent again with its XID")
		}
		if len(ports) > restarts { // another process may take a port in between, but not each time
			t.Errorf("no connection uses the source port of the previous one: %v", ports)
		}
		ev.waitFor(t, ConnBack, 0)
	}
}

func TestSilentServerIsReconnected(t *testing.T) {
	s := startServer(t)
	ev := newEventLog()
	cfg := clientConfig(s)
	cfg.OnEvent, cfg.Times.Silence = ev.add, 20*time.Millisecond
	d := mustMount(t, cfg)
	var once sync.Once
	s.Hook(func(nfstest.Op) (v nfstest.Verdict) {
		once.Do(func() { v.Drop = true })
		return v
	})
	if _, err := d.Stat(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if e := ev.waitFor(t, ConnBack, 0); e.N != 1 {
		t.Errorf("%d calls were sent again", e.N)
	}
}

func TestAllPathsDown(t *testing.T) {
	s := startServer(t)
	ev := newEventLog()
	cfg := clientConfig(s)
	cfg.OnEvent = ev.add
	cfg.Times.Heartbeat, cfg.Times.HeartbeatTimeout, cfg.Times.APD = time.Millisecond, 10*time.Second, 5*time.Millisecond
	d := mustMount(t, cfg)
	ev.waitFor(t, HeartbeatAnswered, 0)
	mark := ev.count()
	s.Hook(func(nfstest.Op) nfstest.Verdict { return nfstest.Verdict{Status: uint32(ErrStale)} })
	if e := ev.waitFor(t, APDStarted, mark); e.N != 3 {
		t.Errorf("APD started after %d missed heartbeats", e.N)
	}
	ev.waitFor(t, APDTimedOut, mark)
	if _, err := d.Stat(t.Context(), "x"); !errors.Is(err, ErrAPD) || !d.Down() {
		t.Errorf("I/O while all paths are down: %v", err)
	}
	s.Hook(nil)
	ev.waitFor(t, APDCleared, mark)
	if _, err := d.Stat(t.Context(), ""); err != nil || d.Down() {
		t.Errorf("I/O after the APD: %v", err)
	}
}

// A call that waits when all paths go down fails with ErrAPD.
func TestAllPathsDownEndsPendingCalls(t *testing.T) {
	s := startServer(t)
	cfg := clientConfig(s)
	cfg.Times.Heartbeat, cfg.Times.HeartbeatTimeout, cfg.Times.APD = time.Millisecond, time.Millisecond, 5*time.Millisecond
	d := mustMount(t, cfg)
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Stat(t.Context(), "x"); !errors.Is(err, ErrAPD) {
		t.Error(err)
	}
}

func TestCanceledCallEnds(t *testing.T) {
	s := startServer(t)
	d := mustMount(t, clientConfig(s))
	ctx, cancel := context.WithCancel(t.Context())
	s.Hook(func(nfstest.Op) nfstest.Verdict {
		cancel()
		return nfstest.Verdict{Drop: true}
	})
	if _, err := d.Stat(ctx, "x"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	s.Hook(nil)
	if _, err := d.Stat(t.Context(), ""); err != nil {
		t.Errorf("the next call: %v", err)
	}
}

func TestFullServerFailsTheWriter(t *testing.T) {
	s := startServer(t)
	d := mustMount(t, clientConfig(s))
	f := mustCreate(t, d, "x")
	s.SetRoom(1 << 20)
	if err := writeAll(t, f, randomBytes(4<<20)); StatusOf(err) != ErrNoSpc {
		t.Error(err)
	}
	closeFile(t, f)
}

func TestJukeboxIsRetried(t *testing.T) {
	s := startServer(t)
	cfg := clientConfig(s)
	cfg.Times.Jukebox = time.Millisecond
	d := mustMount(t, cfg)
	left := 3
	s.Hook(func(nfstest.Op) nfstest.Verdict {
		if left--; left >= 0 {
			return nfstest.Verdict{Status: uint32(ErrJukebox)}
		}
		return nfstest.Verdict{}
	})
	if _, err := d.Stat(t.Context(), ""); err != nil {
		t.Error(err)
	}
}

// Replies that violate RFC 1813 are errors.
func TestInvalidReplies(t *testing.T) {
	const fileIDAt = 4 + 5*4 + 2*8 + 8 + 8 // status, type to gid, size and used, rdev, fsid
	for name, tc := range map[string]struct {
		proc   string
		change func([]byte) []byte
		want   error
	}{
		"cut short":       {"GETATTR", func(b []byte) []byte { return b[:len(b)-4] }, nil},
		"too long":        {"GETATTR", func(b []byte) []byte { return append(b, 0, 0, 0, 0) }, nil},
		"empty":           {"GETATTR", func([]byte) []byte { return nil }, nil},
		"file type 9":     {"GETATTR", func(b []byte) []byte { b[7] = 9; return b }, nil},
		"another fileid":  {"GETATTR", func(b []byte) []byte { b[fileIDAt+7]++; return b }, ErrFileID},
		"a boolean of 7":  {"WRITE", func(b []byte) []byte { b[7] = 7; return b }, nil},
		"less stable":     {"WRITE", func(b []byte) []byte { b[len(b)-9] = 1; return b }, ErrStable},
		"wrote more":      {"WRITE", func(b []byte) []byte { b[len(b)-13]++; return b }, nil},
		"wrote nothing":   {"WRITE", func(b []byte) []byte { clear(b[len(b)-16 : len(b)-12]); return b }, nil},
		"wrong size":      {"SETATTR", func(b []byte) []byte { b[len(b)-84+20+7]++; return b }, nil},
		"no data, no end": {"READ", func(b []byte) []byte { return append(b[:4+4+84], 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) }, nil},
		"wrong count":     {"READ", func(b []byte) []byte { b[4+4+84+3]--; return b }, nil},
	} {
		s := startServer(t)
		d := mustMount(t, clientConfig(s))
		f := mustCreate(t, d, "x")
		if err := f.WriteAt(t.Context(), []byte("four"), 0); err != nil {
			t.Fatal(err)
		}
		s.Hook(func(op nfstest.Op) nfstest.Verdict {
			if op.Proc == tc.proc {
				return nfstest.Verdict{AlterReply: tc.change}
			}
			return nfstest.Verdict{}
		})
		_, attrErr := d.getAttr(t.Context(), d.root)
		if tc.want != ErrFileID && tc.proc == "GETATTR" && attrErr == nil || tc.want == ErrFileID && !errors.Is(attrErr, ErrFileID) {
			t.Errorf("%s: %v", name, attrErr)
		}
		var p [4]byte
		_, readErr := f.ReadAt(t.Context(), p[:], 0)
		err := errors.Join(attrErr, readErr, f.WriteAt(t.Context(), []byte("more"), 0), f.Truncate(t.Context(), 4))
		if err == nil || tc.want != nil && !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
