package vsphere

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// bufferSize is the size of one piece of a body: large enough for cheap system calls, small enough to
// stay in the processor's cache between read, encryption and send.
const bufferSize = 256 << 10

// bufferPool is a pool of buffers that counts those in use.
type bufferPool struct {
	pool sync.Pool    // unused buffers
	out  atomic.Int64 // number of buffers in use; tests check that it returns to 0
}

// get returns a buffer with undefined content. The caller must return it with put.
func (p *bufferPool) get() *[bufferSize]byte {
	p.out.Add(1)
	if b, ok := p.pool.Get().(*[bufferSize]byte); ok {
		return b
	}
	return new([bufferSize]byte)
}

// put returns a buffer, which the caller must not use again.
func (p *bufferPool) put(b *[bufferSize]byte) {
	p.out.Add(-1)
	p.pool.Put(b)
}

// sendBody answers with a file or a range of it. Hosts send every file as octet-stream, with
// Accept-Ranges and without Last-Modified. A fault after the status line breaks the connection.
func (e *endpoint) sendBody(w *recorder, r *http.Request, b fileBody, f *injected) error {
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Accept-Ranges", "bytes")
	first, length, partial, ok := parseRange(r.Header.Get("Range"), b.size)
	if !ok { // the range is outside of the file
		h.Set("Content-Range", fmt.Sprintf("bytes */%d", b.size))
		return &httpError{http.StatusRequestedRangeNotSatisfiable, "Requested range not satisfiable"}
	}
	a := &replyHead{status: http.StatusOK, first: first, length: length, shown: length}
	if partial {
		a.status = http.StatusPartialContent
		a.contentRange = fmt.Sprintf("bytes %d-%d/%d", first, first+length-1, b.size)
	}
	f.changeLength(a, b.size)
	if a.contentRange != "" {
		h.Set("Content-Range", a.contentRange)
	}
	h.Set("Content-Length", strconv.FormatInt(a.shown, 10))
	w.WriteHeader(a.status)
	if r.Method == http.MethodHead { // no body
		return nil
	}
	s := &sender{lab: e.lab, w: w, wire: wireOf(r.Context()), path: r.URL.Path, body: b, fault: f}
	if r.ProtoMajor == 1 { // one request at a time writes to the connection
		s.hold = s.wire
	}
	if err := s.sendRange(r.Context(), a.first, a.length); err != nil && !errors.Is(err, errShort) {
		panic(http.ErrAbortHandler) // the status line is out; only the connection can tell
	}
	return nil
}

// A replyHead is the head of a reply and the range of the file to send. Faults modify it.
type replyHead struct {
	status       int    // HTTP status
	first        int64  // offset of the first byte in the file
	length       int64  // number of bytes to send
	shown        int64  // value of Content-Length
	contentRange string // value of Content-Range; empty omits the header
}

// A sender copies a file to the client under the rate limits of its connection and its datastore.
type sender struct {
	lab   *Lab      // emulator, for buffers and counters
	w     *recorder // response
	wire  *wire     // TCP connection of the request
	hold  *wire     // the same connection with HTTP/1.1; nil for HTTP/2, whose connections have several writers
	path  string    // decoded path of the request, for counters
	body  fileBody  // file to read
	fault *injected // fault of the request; nil if none
}

// sendRange sends length bytes of the file from off on.
func (s *sender) sendRange(ctx context.Context, off, length int64) error {
	buf := s.lab.buffers.get()
	defer s.lab.buffers.put(buf)
	if err := s.flushHead(); err != nil {
		return err
	}
	for sent := int64(0); sent < length; {
		n, err := s.fault.atByte(ctx, s.wire, sent, min(length-sent, s.pieceSize())) // the piece ends at the fault
		if err != nil {
			return err
		}
		if err := s.waitForCaps(ctx, int(n)); err != nil {
			return err
		}
		p := buf[:n]
		if got, err := s.body.ReadAt(p, off+sent); got < len(p) {
			return fmt.Errorf("read at %d: %w", off+sent, err)
		}
		s.fault.flipSent(p, sent, off+sent)
		if err := s.writeBody(p); err != nil {
			return err
		}
		sent += n
	}
	return nil
}

// flushHead sends the head of a reply with a fault, which may occur before any byte of the body.
func (s *sender) flushHead() error {
	if s.fault == nil {
		return nil
	}
	return http.NewResponseController(s.w.ResponseWriter).Flush()
}

// pieceSize returns the number of bytes to send at a time: the smaller size of both rate limits.
func (s *sender) pieceSize() int64 {
	return int64(min(s.wire.rate.pieceSize(), s.body.ds.rate.pieceSize()))
}

// waitForCaps waits until both rate limits permit n bytes.
func (s *sender) waitForCaps(ctx context.Context, n int) error {
	now := time.Now()
	return sleepContext(ctx, max(s.wire.rate.reserveBytes(n, now), s.body.ds.rate.reserveBytes(n, now)))
}

// writeBody sends a piece of the body in one system call, if the protocol is HTTP/1.1.
func (s *sender) writeBody(p []byte) error {
	if s.hold != nil {
		s.hold.startBuffering()
	}
	n, err := s.w.Write(p)
	s.lab.stats.countSent(s.path, int64(n))
	if s.fault != nil && err == nil { // bytes before a fault must reach the client
		err = http.NewResponseController(s.w.ResponseWriter).Flush()
	}
	if s.hold != nil {
		err = errors.Join(err, s.hold.flush())
	}
	return err
}

// parseRange parses a Range header. A missing header, several ranges and an unknown syntax select the
// whole file. ok is false if the range is outside the file.
func parseRange(header string, size int64) (first, length int64, partial, ok bool) {
	spec, found := strings.CutPrefix(header, "bytes=")
	from, to, dash := strings.Cut(strings.TrimSpace(spec), "-")
	if !found || !dash || strings.Contains(spec, ",") {
		return 0, size, false, true
	}
	if from == "" { // bytes=-N
		return suffixRange(to, size)
	}
	first, err := strconv.ParseInt(from, 10, 64)
	if err != nil || first < 0 {
		return 0, size, false, true
	}
	last := size - 1
	if to != "" {
		if last, err = strconv.ParseInt(to, 10, 64); err != nil || last < first {
			return 0, size, false, true
		}
	}
	if first >= size { // 416
		return 0, 0, false, false
	}
	return first, min(last, size-1) - first + 1, true, true
}

// suffixRange returns the range of the last n bytes, as in "bytes=-500".
func suffixRange(n string, size int64) (first, length int64, partial, ok bool) {
	length, err := strconv.ParseInt(n, 10, 64)
	if err != nil || length < 0 {
		return 0, size, false, true
	}
	if length == 0 || size == 0 {
		return 0, 0, false, false
	}
	length = min(length, size)
	return size - length, length, true, true
}
