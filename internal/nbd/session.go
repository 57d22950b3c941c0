package nbd

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/sync/semaphore"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

const (
	pieceSize = 1 << 20  // size of the pieces of a structured read in bytes
	maxUnsent = 16 << 20 // bytes of one connection that wait for the client, at least maxServed; nbdcopy requests that much
)

// A session serves one export to one client, after the handshake.
type session struct {
	export     *export
	structured bool // replies are structured
	described  bool // the client may request the block status

	ctx    context.Context // ends when the connection fails
	conn   net.Conn        // connection; closed when ctx ends
	in     *bufio.Reader   // reads conn
	out    *sendQueue      // writes conn
	stall  time.Duration   // limit for the data of a write request
	memory *buffers        // memory of all connections
	unsent *semaphore.Weighted
	slots  chan struct{}  // holds a token for each request in work
	work   sync.WaitGroup // goroutines of requests
}

// A request is a request of the client.
type request struct {
	flags, kind uint16
	cookie      uint64 // identifies the request in its replies
	off         uint64
	length      uint32
	data        *buffer // data of a write
}

// area returns the bytes of the disk that the request is about. They must be within the disk.
func (q request) area() disk.Range { return disk.Range{Off: int64(q.off), Len: int64(q.length)} }

// inOnePiece reports whether the data of a read must be sent as a whole.
func (q request) inOnePiece(structured bool) bool {
	return !structured || q.length == 0 || q.flags&flagDF != 0
}

// serveRequests answers requests until the client disconnects. Then it waits for the replies.
func (s *session) serveRequests() error {
	for {
		q, err := s.readRequest()
		if err != nil {
			return err
		}
		if q.kind == cmdDisconnect {
			s.work.Wait()
			return nil
		}
		if err := s.startRequest(q); err != nil {
			return err
		}
	}
}

// readRequest reads the next request without its data.
func (s *session) readRequest() (request, error) {
	var h [28]byte
	if _, err := io.ReadFull(s.in, h[:]); err != nil {
		return request{}, err
	}
	if magic := binary.BigEndian.Uint32(h[:]); magic != callMagic {
		return request{}, fault.New(fault.Corrupt, "an NBD request with magic number %#x", magic)
	}
	return request{
		flags: binary.BigEndian.Uint16(h[4:]), kind: binary.BigEndian.Uint16(h[6:]), cookie: binary.BigEndian.Uint64(h[8:]),
		off: binary.BigEndian.Uint64(h[16:]), length: binary.BigEndian.Uint32(h[24:]),
	}, nil
}

// startRequest answers a request in a goroutine. It waits for a slot, and reads the data of a write.
func (s *session) startRequest(q request) error {
	select {
	case s.slots <- struct{}{}:
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
	code, reason := s.checkRequest(q)
	if q.kind == cmdWrite {
		if q.length > maxServed {
			return fault.New(fault.Corrupt, "an NBD write of %d bytes", q.length)
		}
		if err := s.readData(&q, code == 0); err != nil {
			return unexpectedEnd(err)
		}
	}
	if code != 0 {
		s.sendError(q, code, reason, q.off)
		return nil
	}
	s.work.Go(func() { s.answerRequest(q) })
	return nil
}

// readData reads the data of a write, and keeps it if the write is accepted.
func (s *session) readData(q *request, accepted bool) error {
	if accepted {
		var err error
		if q.data, err = s.memory.get(s.ctx, int(q.length)); err != nil {
			return err
		}
	}
	err := s.conn.SetReadDeadline(time.Now().Add(s.stall))
	if err == nil && accepted {
		_, err = io.ReadFull(s.in, q.data.data)
	} else if err == nil {
		_, err = s.in.Discard(int(q.length))
	}
	if err == nil {
		err = s.conn.SetReadDeadline(time.Time{})
	}
	if err != nil && accepted {
		q.data.release()
	}
	return timeoutError(err, "the data of a write does not arrive")
}

// checkRequest returns the NBD error number of a request that the client must not send, with its
// reason, and otherwise 0.
func (s *session) checkRequest(q request) (code uint32, reason string) {
	inside := s.export.contains(q.off, q.length)
	flags := uint16(0) // flags that the command may have
	switch q.kind {
	case cmdRead:
		if s.structured {
			flags = flagDF
		}
		limit := uint32(maxRead)
		if q.inOnePiece(s.structured) {
			limit = maxServed
		}
		if q.length > limit {
			return errInval, fmt.Sprintf("a read of this kind has at most %d bytes", limit)
		}
	case cmdBlockStatus:
		flags = flagReqOne
		if !s.described || q.length == 0 {
			return errInval, "no context is selected, or the range is empty"
		}
	case cmdWrite, cmdFlush:
		if s.export.writer == nil {
			return errPerm, "the export is read-only"
		}
		if q.kind == cmdWrite && !inside {
			return errNoSpc, "the range is outside of the disk"
		}
		inside = true
	default:
		return errInval, fmt.Sprintf("command %d is not supported", q.kind)
	}
	if !inside {
		return errInval, "the range is outside of the disk"
	}
	if q.flags&^flags != 0 {
		return errInval, fmt.Sprintf("command %d does not have the flags %#x", q.kind, q.flags)
	}
	return 0, ""
}

// answerRequest executes a request and sends its reply. If the connection fails meanwhile, the reply is
// discarded.
func (s *session) answerRequest(q request) {
	var err error
	switch q.kind {
	case cmdRead:
		s.answerRead(q)
		return
	case cmdBlockStatus:
		s.answerBlockStatus(q)
		return
	case cmdWrite:
		err = s.export.writer.WriteAt(s.ctx, q.data.data, int64(q.off))
		q.data.release()
	case cmdFlush:
		err = s.export.writer.Sync(s.ctx)
	}
	if err != nil {
		s.sendDiskError(q, "write failed", err, q.area())
		return
	}
	m := s.newReply(true)
	if s.structured {
		m.setChunk(q.cookie, chunkNone, 0, true)
	} else {
		m.setSimple(q.cookie, 0)
	}
	s.out.send(m)
}

// newReply returns an empty message. last is set for the end of the reply to a request.
func (s *session) newReply(last bool) *message {
	if last {
		return &message{done: func() { <-s.slots }}
	}
	return &message{done: func() {}}
}

// answerRead sends the data of a read.
func (s *session) answerRead(q request) {
	r := q.area()
	if q.inOnePiece(s.structured) {
		s.sendPiece(q, r, true)
		return
	}
	for at := r.Off; at < r.End(); {
		part := disk.Range{Off: at, Len: r.End() - at}
		if part.Len > pieceSize {
			part.Len = pieceSize - at%pieceSize // pieces do not cross the pages of a Viewer
		}
		for _, e := range s.export.knownZeros(s.ctx, part) {
			last := e.End() == r.End()
			if e.Kind == disk.Zero {
				s.sendHole(q, e.Range, last)
			} else if !s.sendPiece(q, e.Range, last) {
				return
			}
		}
		at = part.End()
	}
}

// sendPiece sends the bytes of r, or the error of the disk, and returns false then. last is set for the
// end of the reply.
func (s *session) sendPiece(q request, r disk.Range, last bool) bool {
	if s.unsent.Acquire(s.ctx, r.Len) != nil {
		return false
	}
	data, release, err := s.export.readPiece(s.ctx, s.memory, r)
	if err != nil {
		s.unsent.Release(r.Len)
		s.sendDiskError(q, "read failed", err, r)
		return false
	}
	m := &message{data: data, done: func() {
		release()
		s.unsent.Release(r.Len)
		if last {
			<-s.slots
		}
	}}
	switch {
	case !s.structured:
		m.setSimple(q.cookie, 0)
	case r.Len == 0:
		m.setChunk(q.cookie, chunkNone, 0, true)
	default:
		m.setChunk(q.cookie, chunkData, 8+uint32(r.Len), last)
		m.addUint64(uint64(r.Off))
	}
	s.out.send(m)
	return true
}

// sendHole sends a range of zeros. last is set for the end of the reply.
func (s *session) sendHole(q request, r disk.Range, last bool) {
	m := s.newReply(last)
	m.setChunk(q.cookie, chunkHole, 12, last)
	m.addUint64(uint64(r.Off))
	m.addUint32(uint32(r.Len))
	s.out.send(m)
}

// answerBlockStatus sends the extents of a range, or of its beginning.
func (s *session) answerBlockStatus(q request) {
	if s.memory.reserve(s.ctx, statusMemory) != nil {
		return
	}
	m := &message{done: func() {
		s.memory.unreserve(statusMemory)
		<-s.slots
	}}
	for _, e := range s.export.blockStatus(s.ctx, q.area(), q.flags&flagReqOne != 0) {
		state := uint32(0)
		if e.Kind == disk.Zero {
			state = stateHole
		}
		m.data = binary.BigEndian.AppendUint32(m.data, uint32(e.Len))
		m.data = binary.BigEndian.AppendUint32(m.data, state)
	}
	m.setChunk(q.cookie, chunkStatus, 4+uint32(len(m.data)), true)
	m.addUint32(contextID)
	s.out.send(m)
}

// sendDiskError logs an error of the disk in r, and ends the reply with it. It does nothing if the
// connection ends, because that is the reason of the error.
func (s *session) sendDiskError(q request, message string, err error, r disk.Range) {
	if s.ctx.Err() != nil {
		return
	}
	s.export.logError(message, r, err)
	s.sendError(q, errorCode(err), err.Error(), uint64(r.Off))
}

// sendError ends the reply with an error at offset off.
func (s *session) sendError(q request, code uint32, reason string, off uint64) {
	m := s.newReply(true)
	if !s.structured {
		m.setSimple(q.cookie, code)
		s.out.send(m)
		return
	}
	kind, text := uint16(chunkError), printable(reason)
	m.data = []byte(text)
	if q.kind == cmdRead && s.export.contains(q.off, q.length) {
		kind = chunkErrorOffset
		m.data = append(m.data, be64(off)...)
	}
	m.setChunk(q.cookie, kind, 6+uint32(len(m.data)), true)
	m.addUint32(code)
	m.addUint16(uint16(len(text)))
	s.out.send(m)
}

// printable returns text as a string of the protocol.
func printable(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(fault.OneLine(text), "?"), "\x00", "?")
	for len(text) > maxString {
		_, size := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-size]
	}
	return text
}

// errorCode returns the NBD error number of err. A full image appears as a full disk to the guest.
func errorCode(err error) uint32 {
	if fault.Is(err, fault.Unsupported) || fault.Is(err, fault.Full) {
		return errNoSpc
	}
	return errIO
}

// timeoutError returns an error with that reason if err is a timeout, and otherwise err.
func timeoutError(err error, reason string) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fault.New(fault.Transient, "%s", reason)
	}
	return err
}
