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

// bufferSize is one piece of a body: big enough for cheap system calls, small enough to
// stay in the processor's cache between read, encryption and send.
const bufferSize = 256 << 10

// bufferPool lends buffers and counts those that are out.
type bufferPool struct {
	pool sync.Pool
	out  atomic.Int64
}

func (p *bufferPool) get() *[bufferSize]byte {
	p.out.Add(1)
	if b, ok := p.pool.Get().(*[bufferSize]byte); ok {
		return b
	}
	return new([bufferSize]byte)
}

func (p *bufferPool) put(b *[bufferSize]byte) {
	p.out.Add(-1)
	p.pool.Put(b)
}

// sendBody answers with a file or a range of it. Hosts send every file as octet-stream, with
// Accept-Ranges and without Last-Modified.
func (e *endpoint) sendBody(w *recorder, r *http.Request, b body, f *injected) error {
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Accept-Ranges", "bytes")
	first, length, partial, ok := parseRange(r.Header.Get("Range"), b.size)
	if !ok {
		h.Set("Content-Range", fmt.Sprintf("bytes */%d", b.size))
		return &reply{http.StatusRequestedRangeNotSatisfiable, "Requested range not satisfiable"}
	}
	a := &head{status: http.StatusOK, first: first, length: length, shown: length}
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
	if r.Method == http.MethodHead {
		return nil
	}
	s := &sender{lab: e.lab, w: w, wire: wireOf(r.Context()), path: r.URL.Path, body: b, fault: f}
	if r.ProtoMajor == 1 {
		s.hold = s.wire
	}
	if err := s.sendRange(r.Context(), a.first, a.length); err != nil && !errors.Is(err, errShort) {
		panic(http.ErrAbortHandler) // the status line is out; only the connection can tell
	}
	return nil
}

// A head describes the header of a reply and the length of its body. Faults change them.
type head struct {
	status       int
	first        int64 // range of bytes to send
	length       int64 // bytes sent
	shown        int64 // Content-Length
	contentRange string
}

// sender copies a body to the client under the caps of its connection and its datastore.
type sender struct {
	lab   *Lab
	w     *recorder
	wire  *wire
	hold  *wire // connection of HTTP/1.1; nil for HTTP/2, whose connections have many writers
	path  string
	body  body
	fault *injected
}

func (s *sender) sendRange(ctx context.Context, off, length int64) error {
	buf := s.lab.buffers.get()
	defer s.lab.buffers.put(buf)
	if err := s.flushHead(); err != nil {
		return err
	}
	for sent := int64(0); sent < length; {
		n, err := s.fault.atByte(ctx, s.wire, sent, min(length-sent, s.pieceSize()))
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

// flushHead sends the head ahead of a fault in the body, which may come before any of it.
func (s *sender) flushHead() error {
	if s.fault == nil {
		return nil
	}
	return http.NewResponseController(s.w.ResponseWriter).Flush()
}

func (s *sender) pieceSize() int64 {
	return int64(min(s.wire.rate.pieceSize(), s.body.ds.rate.pieceSize()))
}

func (s *sender) waitForCaps(ctx context.Context, n int) error {
	now := time.Now()
	return sleepContext(ctx, max(s.wire.rate.reserveBytes(n, now), s.body.ds.rate.reserveBytes(n, now)))
}

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
	if from == "" {
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
	if first >= size {
		return 0, 0, false, false
	}
	return first, min(last, size-1) - first + 1, true, true
}

// suffixRange is the last n bytes.
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
