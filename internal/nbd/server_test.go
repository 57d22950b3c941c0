package nbd

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
)

// memory is a disk.
type memory struct {
	data []byte
	fail error // of writes
}

func (m *memory) Size() int64 { return int64(len(m.data)) }

func (m *memory) ReadAt(p []byte, off int64) (int, error) {
	return copy(p, m.data[off:off+int64(len(p))]), nil
}

func (m *memory) WriteAt(p []byte, off int64) (int, error) {
	if m.fail != nil {
		return 0, m.fail
	}
	return copy(m.data[off:off+int64(len(p))], p), nil
}

// qemuIO has QEMU's client carry out commands on a disk.
func qemuIO(t *testing.T, d Disk, commands ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "socket")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	served := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			err = errors.Join(Serve(conn, d), conn.Close())
		}
		served <- err
	}()
	args := []string{"-f", "raw", "nbd+unix:///?socket=" + path}
	for _, c := range commands {
		args = append(args, "-c", c)
	}
	out, err := exec.CommandContext(t.Context(), "qemu-io", args...).CombinedOutput()
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		t.Fatalf("qemu-io: %v: run scripts/setup.sh test", err)
	}
	if err := <-served; err != nil {
		t.Errorf("serve: %v", err)
	}
	return string(out)
}

// QEMU reads what is there, and what it writes is there, at odd places and in large pieces.
func TestQEMUReadsAndWrites(t *testing.T) {
	m := &memory{data: bytes.Repeat([]byte{7}, 64<<20)}
	out := qemuIO(t, m, "read -P 7 0 64M", "write -P 9 1536 4096", "write -P 5 20M 40M", "flush", "read -P 9 1536 4096", "read -P 7 0 1536", "read -P 7 60M 4M")
	if strings.Contains(out, "fail") || strings.Contains(out, "rror") {
		t.Error(out)
	}
	want := bytes.Repeat([]byte{7}, 64<<20)
	copy(want[1536:], bytes.Repeat([]byte{9}, 4096))
	copy(want[20<<20:], bytes.Repeat([]byte{5}, 40<<20))
	if !bytes.Equal(m.data, want) {
		t.Error("the disk does not hold what QEMU wrote")
	}
}

// A layer that is full is a full disk, and the session goes on.
func TestErrorsAreTheGuestsToo(t *testing.T) {
	m := &memory{data: make([]byte, 1<<20), fail: fault.New(fault.Unsupported, "too much")}
	if out := qemuIO(t, m, "write 0 512", "read -P 0 0 512"); !strings.Contains(out, "No space left") || !strings.Contains(out, "read 512/512") {
		t.Error(out)
	}
	m.fail = errors.New("the disk is gone")
	if out := qemuIO(t, m, "write 0 512"); !strings.Contains(out, "Input/output error") {
		t.Error(out)
	}
}

// strict is a disk that is used only as it may be.
type strict struct {
	t    *testing.T
	size int64
}

func (s strict) Size() int64 { return s.size }

func (s strict) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off > s.size || int64(len(p)) > s.size-off || len(p) > maxServed {
		s.t.Errorf("%d bytes at %d", len(p), off)
	}
	return len(p), nil
}

func (s strict) WriteAt(p []byte, off int64) (int, error) { return s.ReadAt(p, off) }

// line is a client that has said everything already.
type line struct{ io.Reader }

func (line) Write(p []byte) (int, error) { return len(p), nil }

// FuzzServe serves whoever says that: no panic, and nothing outside the disk.
func FuzzServe(f *testing.F) {
	hello := append([]byte{0, 0, 0, 3}, append(be64(optionMagic), append(be32(optGo), be32(0)...)...)...)
	call := func(kind uint16, off uint64, length uint32) []byte {
		out := append(be32(callMagic), append(be16(0), be16(kind)...)...)
		return append(append(append(out, be64(77)...), be64(off)...), be32(length)...)
	}
	f.Add(append(append(hello, call(cmdWrite, 512, 4)...), "data"...))
	f.Add(append(append(hello, call(cmdRead, 1<<63, 512)...), call(cmdDisconnect, 0, 0)...))
	f.Add(append([]byte{0, 0, 0, 1}, append(be64(optionMagic), append(be32(optExportName), be32(0)...)...)...))
	f.Fuzz(func(t *testing.T, said []byte) {
		_ = Serve(line{bytes.NewReader(said)}, strict{t, 1 << 20}) // whatever it comes to
	})
}
