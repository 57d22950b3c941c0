package nbd

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/disk"
)

// memoryDisk is a Reader in memory whose zero sectors are holes. writableDisk adds writes.
type memoryDisk struct {
	mu   sync.Mutex
	data []byte
	bad  disk.Range    // range whose reads fail
	err  error         // error of bad and of writes
	gate chan struct{} // if set, each read receives a value first
}

func (m *memoryDisk) Size() int64 { return int64(len(m.data)) }

func (m *memoryDisk) ReadAt(ctx context.Context, p []byte, off int64) error {
	if m.gate != nil {
		select {
		case <-m.gate:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	r := disk.Range{Off: off, Len: int64(len(p))}
	if err := disk.CheckRange(m.Size(), r); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.bad.Intersect(r).Empty() {
		return m.err
	}
	copy(p, m.data[off:])
	return nil
}

func (m *memoryDisk) Extents(_ context.Context, r disk.Range) ([]disk.Extent, error) {
	if err := disk.CheckRange(m.Size(), r); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []disk.Extent
	for at := r.Off; at < r.End(); {
		n := min(512-at%512, r.End()-at)
		kind := disk.Data
		if bytes.Count(m.data[at:at+n], []byte{0}) == int(n) {
			kind = disk.Zero
		}
		out = disk.AppendExtent(out, disk.Extent{Range: disk.Range{Off: at, Len: n}, Kind: kind})
		at += n
	}
	return out, nil
}

// content returns the bytes of the disk.
func (m *memoryDisk) content() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return bytes.Clone(m.data)
}

// writableDisk is a memoryDisk that clients may write to.
type writableDisk struct {
	memoryDisk
	synced atomic.Int32
}

func (m *writableDisk) WriteAt(_ context.Context, p []byte, off int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return m.err
	}
	copy(m.data[off:], p)
	return nil
}

func (m *writableDisk) Sync(context.Context) error {
	m.synced.Add(1)
	return nil
}

// viewedDisk is a memoryDisk that lends its memory in pages of 4 MiB.
type viewedDisk struct {
	memoryDisk
	lent atomic.Int64 // views that are not released
	most atomic.Int64 // highest value of lent
}

func (m *viewedDisk) View(ctx context.Context, dest []byte, off int64) ([]byte, func(), error) {
	if m.lent.Add(1); m.lent.Load() > m.most.Load() {
		m.most.Store(m.lent.Load())
	}
	var once sync.Once
	release := func() { once.Do(func() { m.lent.Add(-1) }) }
	const page = 4 << 20
	if off/page != (off+int64(len(dest))-1)/page || m.gate != nil || !m.bad.Empty() {
		return dest, release, m.ReadAt(ctx, dest, off)
	}
	return m.data[off:][:len(dest)], release, nil
}

// sparseContent returns size pseudo-random bytes with ranges of zeros.
func sparseContent(size int) []byte {
	data := make([]byte, size)
	x := uint32(1)
	const grain = 32 << 10
	for at := 0; at < size; at += grain {
		x = x*1664525 + 1013904223
		if x>>30 != 0 && at/(1<<20)%3 != 2 {
			for i := at; i < min(at+grain, size); i += 4 {
				x = x*1664525 + 1013904223
				binary.LittleEndian.PutUint32(data[i:min(i+4, size)], x|1)
			}
		}
	}
	return data
}

// logBuffer is a log for tests.
type logBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *logBuffer) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *logBuffer) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// attachLog makes s log to a new logBuffer.
func attachLog(s *Server) *logBuffer {
	j := &logBuffer{}
	s.Log = slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return j
}

// serveOn serves on a Unix socket until the test ends, and returns its path.
func serveOn(t testing.TB, s *Server) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "nbd") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	serveListener(t, s, l)
	t.Cleanup(func() { os.RemoveAll(folder) })
	return path
}

// serveListener serves on l until the test ends.
func serveListener(t testing.TB, s *Server, l net.Listener) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
}

// rawClient is a client that sends arbitrary bytes.
type rawClient struct {
	net.Conn
	t testing.TB
}

// dialRaw connects to a socket and reads the greeting.
func dialRaw(t testing.TB, path string) *rawClient {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	c := &rawClient{conn, t}
	if hello := c.read(18); string(hello[:16]) != serverMagic {
		t.Fatalf("got greeting %q", hello)
	}
	return c
}

// read reads n bytes.
func (c *rawClient) read(n int) []byte {
	c.t.Helper()
	p := make([]byte, n)
	if _, err := io.ReadFull(c.Conn, p); err != nil {
		c.t.Fatal(err)
	}
	return p
}

// send sends bytes.
func (c *rawClient) send(parts ...[]byte) {
	c.t.Helper()
	if _, err := c.Write(bytes.Join(parts, nil)); err != nil {
		c.t.Fatal(err)
	}
}

// isClosed reports whether the server closes the connection without sending more bytes.
func (c *rawClient) isClosed() bool {
	n, err := c.Read(make([]byte, 1))
	return n == 0 && err != nil
}

// optionBytes returns the bytes of an option.
func optionBytes(kind uint32, data ...[]byte) []byte {
	all := bytes.Join(data, nil)
	return bytes.Join([][]byte{be64(optionMagic), be32(kind), be32(uint32(len(all))), all}, nil)
}

// lengthPrefixed returns a string with its length, as in options.
func lengthPrefixed(s string) []byte { return append(be32(uint32(len(s))), s...) }

// requestBytes returns the bytes of a request.
func requestBytes(kind, flags uint16, cookie, off uint64, length uint32) []byte {
	return bytes.Join([][]byte{be32(callMagic), be16(flags), be16(kind), be64(cookie), be64(off), be32(length)}, nil)
}

// optionReply is one reply to an option.
type optionReply struct {
	kind uint32
	data []byte
}

// sendOption sends an option and returns all replies to it.
func (c *rawClient) sendOption(kind uint32, data ...[]byte) []optionReply {
	c.t.Helper()
	c.send(optionBytes(kind, data...))
	var all []optionReply
	for {
		head := c.read(20)
		if binary.BigEndian.Uint64(head) != answerMagic || binary.BigEndian.Uint32(head[8:]) != kind {
			c.t.Fatalf("invalid reply to option %d: % x", kind, head)
		}
		r := optionReply{binary.BigEndian.Uint32(head[12:]), c.read(int(binary.BigEndian.Uint32(head[16:])))}
		all = append(all, r)
		if r.kind == repAck || r.kind >= 1<<31 {
			return all
		}
	}
}

// selectExport selects an export with structured replies and base:allocation, and returns the transmission flags.
func (c *rawClient) selectExport(name string) uint16 {
	c.t.Helper()
	c.send(be32(fixedNewstyle | noZeroes))
	c.sendOption(optStructured)
	c.sendOption(optSetContext, lengthPrefixed(name), be32(1), lengthPrefixed(contextAllocation))
	got := c.sendOption(optGo, lengthPrefixed(name), be16(0))
	if len(got) != 2 || got[1].kind != repAck {
		c.t.Fatalf("got replies to GO %v, want 2 with ACK", got)
	}
	return binary.BigEndian.Uint16(got[0].data[10:])
}

// chunk is a chunk of a structured reply.
type chunk struct {
	flags, kind uint16
	cookie      uint64
	data        []byte
}

// readChunk reads one chunk.
func (c *rawClient) readChunk() chunk {
	c.t.Helper()
	head := c.read(20)
	if binary.BigEndian.Uint32(head) != chunkMagic {
		c.t.Fatalf("got % x, want a chunk", head)
	}
	return chunk{
		binary.BigEndian.Uint16(head[4:]), binary.BigEndian.Uint16(head[6:]), binary.BigEndian.Uint64(head[8:]),
		c.read(int(binary.BigEndian.Uint32(head[16:]))),
	}
}

// errorOf returns the number, the message and the offset of a chunk of an error.
func errorOf(c chunk) (code uint32, message string, off uint64) {
	n := int(binary.BigEndian.Uint16(c.data[4:]))
	if c.kind == chunkErrorOffset {
		off = binary.BigEndian.Uint64(c.data[6+n:])
	}
	return binary.BigEndian.Uint32(c.data), string(c.data[6:][:n]), off
}

var errBad = errors.New("sector 7 is bad")

// processorTime returns the processor time of this process without its children.
func processorTime(t testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
