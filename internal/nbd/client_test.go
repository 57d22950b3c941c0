package nbd

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

// startQEMU starts qemu-nbd for a file and connects to it.
func startQEMU(t *testing.T, path string) *Client {
	t.Helper()
	folder, err := os.MkdirTemp("", "nbd") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	socket := filepath.Join(folder, "s")
	cmd := exec.Command("qemu-nbd", "-f", "raw", "-k", socket, path)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	var conn net.Conn
	for deadline := time.Now().Add(10 * time.Minute); conn == nil; {
		if conn, err = net.Dial("unix", socket); err != nil && time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	c, err := New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newImage(t *testing.T, size int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(path, bytes.Repeat([]byte{0xa5}, int(size)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Concurrent writes and zeros change exactly their ranges of the file.
func TestReadAndWriteWithQEMU(t *testing.T) {
	const size = 9<<20 + 512
	path := newImage(t, size)
	c := startQEMU(t, path)
	if c.Size() != size || c.Writable() != nil {
		t.Fatalf("got %d bytes, Writable %v, want %d and nil", c.Size(), c.Writable(), size)
	}
	want := bytes.Repeat([]byte{0xa5}, size)
	clear(want[5<<20 : 7<<20])
	for i := range 3 << 20 {
		want[i] = byte(i >> 9)
	}
	var all sync.WaitGroup
	for off := 0; off < 3<<20; off += 1 << 18 {
		all.Go(func() {
			if err := c.WriteAt(t.Context(), want[off:off+1<<18], int64(off)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Go(func() {
		if err := c.Zero(t.Context(), disk.Range{Off: 5 << 20, Len: 2 << 20}); err != nil {
			t.Error(err)
		}
	})
	all.Wait()
	if err := c.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, size)
	if err := c.ReadAt(t.Context(), got, 0); err != nil || !bytes.Equal(got, want) {
		t.Errorf("ReadAt returned other content, error %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the file has other content, error %v", err)
	}
	if err := c.Flush(t.Context()); !fault.Is(err, fault.Unreachable) {
		t.Errorf("Flush after Close: error %v, want kind Unreachable", err)
	}
}

func TestRangeOutsideOfExport(t *testing.T) {
	c := startQEMU(t, newImage(t, 1<<20))
	defer c.Close()
	if c.WriteAt(t.Context(), make([]byte, 512), 1<<20) == nil || c.Zero(t.Context(), disk.Range{Off: 1 << 19, Len: 1 << 20}) == nil {
		t.Error("a write or zero beyond the end succeeded")
	}
}

// scriptedConn is a connection with fixed answers. It discards all writes.
type scriptedConn struct {
	io.Reader
	mu     sync.Mutex
	closed chan struct{}
}

func (s *scriptedConn) Write(p []byte) (int, error) { return len(p), nil }
func (s *scriptedConn) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.closed:
	default:
		close(s.closed)
	}
	return nil
}

func serverGreeting() []byte {
	hello := append([]byte(serverMagic), 0, fixedNewstyle|noZeroes)
	hello = binary.BigEndian.AppendUint64(hello, 1<<20)
	return binary.BigEndian.AppendUint16(hello, hasFlags|sendFlush|sendZeroes)
}

func answerOf(cookie uint64, code uint32) []byte {
	b := binary.BigEndian.AppendUint32(nil, replyMagic)
	b = binary.BigEndian.AppendUint32(b, code)
	return binary.BigEndian.AppendUint64(b, cookie)
}

// Each error of the server is returned with its kind and a hint.
func TestServerErrors(t *testing.T) {
	for code, kind := range map[syscall.Errno]fault.Kind{
		syscall.ENOSPC: fault.Full, syscall.EIO: fault.Corrupt, syscall.EPERM: fault.Denied,
	} {
		ours, theirs := net.Pipe()
		go func() {
			_, _ = theirs.Write(serverGreeting()[:18])
			_, _ = io.ReadFull(theirs, make([]byte, 20))
			_, _ = theirs.Write(serverGreeting()[18:])
			_, _ = io.ReadFull(theirs, make([]byte, 28+512))
			_, _ = theirs.Write(answerOf(1, uint32(code)))
			_, _ = io.Copy(io.Discard, theirs)
		}()
		c, err := New(ours)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.WriteAt(t.Context(), make([]byte, 512), 0); !fault.Is(err, kind) || fault.HintOf(err) == "" {
			t.Errorf("%v: error %v of kind %v, want %v and a hint", code, err, fault.KindOf(err), kind)
		}
		_ = c.Close()
	}
}

// A call to a silent server ends when its context is canceled.
func TestCanceledCall(t *testing.T) {
	ours, theirs := net.Pipe()
	go func() {
		_, _ = theirs.Write(serverGreeting()[:18])
		_, _ = io.ReadFull(theirs, make([]byte, 20))
		_, _ = theirs.Write(serverGreeting()[18:])
		_, _ = io.Copy(io.Discard, theirs)
	}()
	c, err := New(ours)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	if err := c.ReadAt(ctx, make([]byte, 512), 0); !fault.Is(err, fault.Canceled) {
		t.Errorf("got %v, want kind Canceled", err)
	}
	_ = c.Close()
}

// For any bytes from a server, calls return, and ReadAt does not write beyond the requested length.
func FuzzAnswers(f *testing.F) {
	f.Add(append(serverGreeting(), answerOf(1, 0)...))
	f.Add(append(append(serverGreeting(), answerOf(1, 5)...), answerOf(2, 0)...))
	f.Add(append(serverGreeting(), answerOf(7, 0)...))
	f.Add([]byte("SSH-2.0-OpenSSH_9.2p1"))
	f.Fuzz(func(t *testing.T, sent []byte) {
		c, err := New(&scriptedConn{Reader: bytes.NewReader(sent), closed: make(chan struct{})})
		if err != nil {
			return
		}
		p := make([]byte, 600)
		if err := c.ReadAt(t.Context(), p[:min(512, c.Size())], 0); err == nil && len(sent) < 28 && c.Size() > 0 {
			t.Error("ReadAt succeeded without an answer")
		}
		if !bytes.Equal(p[512:], make([]byte, 88)) {
			t.Error("ReadAt wrote beyond the requested length")
		}
		_ = c.Flush(t.Context())
		_ = c.Close()
	})
}
