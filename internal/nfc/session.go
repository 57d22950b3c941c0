package nfc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"github.com/decamp/decamp/internal/fault"
)

// frameBuffer is the read buffer in bytes. It contains headers; larger reads bypass it.
const frameBuffer = 8 << 10

// session is one AIO session. Requests of several goroutines are under way at once. The goroutine that
// has the turn receives the replies of all of them. It is safe for concurrent use.
type session struct {
	addr string        // host:port, for errors
	wire *stallConn    // the socket
	conn io.ReadWriter // the socket, or TLS over it

	sending sync.Mutex // held while a request is written, so that request numbers ascend on the wire

	// turn contains a token while a goroutine receives. Only that goroutine reads from the connection,
	// writes into the buffers of requests, and completes them.
	turn  chan struct{}
	br    *bufio.Reader        // buffered reader of conn; the turn guards it and the next two
	room  [longestPayload]byte // buffer of a header, and then of a payload
	reply fragmentReader       // decoder of fragments

	mu      sync.Mutex      // guards the fields below
	next    uint32          // number of the next request
	pending map[uint32]*op  // requests under way, by number
	refused map[uint32]bool // refused requests that the host may still answer with zeros
	granted bool            // OPEN_SESSION was answered; only setUp uses it
	err     error           // reason why the session ended; nil while it works
}

// op is a request under way.
type op struct {
	kind uint32  // frame type of the request and of its reply
	read *readOp // buffer of a frameIO request; nil for others

	// trailer returns the number of bytes after a reply's payload. Nil means none.
	trailer func(payload []byte) (int, error)

	// payload of the reply, and the trailer after it
	payload, tail []byte
	err           error         // error of the request; nil after success
	done          chan struct{} // closed when the request is complete
}

// newSession returns a session over conn. It sends nothing.
func newSession(addr string, w *stallConn, conn io.ReadWriter) *session {
	return &session{
		addr: addr, wire: w, conn: conn, br: bufio.NewReaderSize(conn, frameBuffer),
		turn: make(chan struct{}, 1), pending: map[uint32]*op{}, refused: map[uint32]bool{},
	}
}

// setUp connects to the host, presents the ticket, and opens a session. ctx bounds all of it.
func setUp(ctx context.Context, t Ticket, o Options) (s *session, err error) {
	addr := t.Addr(o.Server)
	raw, err := o.Dial(ctx, addr)
	if err != nil {
		return nil, unreachableError(ctx, addr, err)
	}
	w := &stallConn{Conn: raw, stall: min(o.Setup, o.Stall)}
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	defer func() {
		if !stop() && err == nil {
			err = ctx.Err()
		}
		if err != nil {
			raw.Close()
			s, err = nil, setUpError(ctx, addr, err)
		}
	}()
	conn, a, err := connectService(ctx, w, t, o.Wire)
	if err != nil {
		return nil, err
	}
	if _, err = runHandshake(conn, a.banner.sha2); err != nil {
		return nil, err
	}
	if o.Wire == TLS {
		w.enableBuffer()
	}
	w.stall = o.Stall
	s = newSession(addr, w, conn)
	err = s.openSession(o.Buffers)
	if err != nil && !s.granted && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = waitsForMemory(o.Setup)
	}
	return s, err
}

// unreachableError returns the fault for a host that accepts no connection.
func unreachableError(ctx context.Context, addr string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	host, port, _ := net.SplitHostPort(addr)
	return fault.New(fault.Unreachable, "connect to %s: %w", addr, err).
		WithHint("NFC needs TCP port %s of every ESXi host, besides the API's 443: nc -vz %s %s; or use --transport https", port, host, port)
}

// setUpError adds the host to an error of setUp. Errors without a kind come from the connection and are
// transient: a busy or restarting host closes connections.
func setUpError(ctx context.Context, addr string, err error) error {
	var known *fault.Error
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case errors.As(err, &known):
		return fmt.Errorf("NFC with %s: %w", addr, err)
	}
	return fault.New(fault.Transient, "NFC with %s: %w", addr, err).
		WithHint("see the host's hostd or vpxa log; restart its management agents if it stays so")
}

// openSession opens the AIO session. The host does not confirm the buffers: it refuses them or uses
// them.
func (s *session) openSession(b Buffers) error {
	_, err := s.call(&op{kind: frameOpenSession}, bufferWords(b), nil)
	if r := (*Refusal)(nil); errors.As(err, &r) {
		return refusedBuffers(r)
	}
	if err != nil {
		return err
	}
	s.granted = true
	if _, err := s.call(&op{kind: frameSockOpts}, encodeWords(0, 0, 0), nil); err != nil {
		return err
	}
	_, err = s.call(&op{kind: frameResPool}, encodeWords(1), nil)
	return err
}

// bufferWords returns the payload that requests buffers: their size in bytes and their number. Zeros
// request the host's default.
func bufferWords(b Buffers) []byte { return encodeWords(0, uint32(b.Size), uint32(b.Count), 0) }

// call sends a request and waits for its reply. A refusal is a *Refusal.
func (s *session) call(o *op, payload, trailer []byte) (*op, error) {
	if err := s.sendRequest(o, payload, trailer); err != nil {
		return nil, err
	}
	return o, s.awaitReply(o)
}

// sendRequest sends a request. After success the caller must call awaitReply: the session may write
// into the request's buffer until then.
func (s *session) sendRequest(o *op, payload, trailer []byte) error {
	s.sending.Lock() // held across the write on purpose: a request is small and fits the socket's buffer
	defer s.sending.Unlock()
	o.done = make(chan struct{})
	id, err := s.registerOp(o)
	if err != nil {
		return err
	}
	if _, err := s.conn.Write(encodeFrame(o.kind, id, payload, trailer)); err != nil {
		s.failSession(fmt.Errorf("send a request: %w", err))
	}
	return nil // awaitReply returns the error
}

// registerOp adds a request to those under way, and returns its number. It fails if the session has
// ended.
func (s *session) registerOp(o *op) (uint32, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0, s.err
	}
	id := s.next
	s.next++
	s.pending[id] = o
	return id, nil
}

// awaitReply waits until o is complete. While no other goroutine receives, it receives for all.
func (s *session) awaitReply(o *op) error {
	for {
		select {
		case <-o.done:
			return o.err
		case s.turn <- struct{}{}:
			s.receiveUntil(o)
			<-s.turn
		}
	}
}

// receiveUntil reads frames until o is complete or the session ends. The caller must have the turn.
func (s *session) receiveUntil(o *op) {
	for {
		select {
		case <-o.done:
			return
		default:
		}
		if err := s.readFrame(); err != nil {
			s.failSession(err)
			s.failPending()
			return
		}
	}
}

// readFrame reads one frame and passes it to its request. An error ends the session. The caller must
// have the turn.
func (s *session) readFrame() error {
	if _, err := io.ReadFull(s.br, s.room[:headerSize]); err != nil {
		return noEOF(err)
	}
	h, err := parseHeader(s.room[:headerSize])
	if err != nil {
		return err
	}
	payload := s.room[:h.size]
	if _, err := io.ReadFull(s.br, payload); err != nil {
		return noEOF(err)
	}
	if h.kind == frameError {
		return s.handleRefusal(h.id, payload)
	}
	o, known := s.pendingOp(h.id)
	switch {
	case !known:
		return s.skipSecondReply(h, payload)
	case o.kind != h.kind:
		return badAnswer("a reply of type %d to a request of type %d", h.kind, o.kind)
	case o.read != nil:
		return s.handleFragment(h.id, o, payload)
	}
	return s.handleReply(h.id, o, payload)
}

// pendingOp returns the request with that number, and whether it is under way.
func (s *session) pendingOp(id uint32) (*op, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, known := s.pending[id]
	return o, known
}

// handleReply completes a request whose reply is one frame.
func (s *session) handleReply(id uint32, o *op, payload []byte) error {
	o.payload = append([]byte(nil), payload...)
	if o.trailer != nil {
		n, err := o.trailer(o.payload)
		if err != nil {
			return err
		}
		o.tail = make([]byte, n)
		if _, err := io.ReadFull(s.br, o.tail); err != nil {
			return noEOF(err)
		}
	}
	s.completeOp(id, o, nil)
	return nil
}

// handleFragment reads a part of a read, and completes the read after the last one.
func (s *session) handleFragment(id uint32, o *op, payload []byte) error {
	if err := s.reply.readFragment(s.br, o.read, payload); err != nil {
		return err
	}
	if o.read.isComplete() {
		s.completeOp(id, o, nil)
	}
	return nil
}

// handleRefusal completes a request with the host's error record. After the refusal of a read the state
// of the connection is unknown, so it returns an error that ends the session.
func (s *session) handleRefusal(id uint32, payload []byte) error {
	r, n, err := parseRefusal(payload)
	if err != nil {
		return err
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(s.br, text); err != nil {
		return noEOF(err)
	}
	r.Text = string(text)
	o, known := s.pendingOp(id)
	switch {
	case !known:
		return badAnswer("it refuses request %d, which is not under way: %v", id, r)
	case o.read != nil:
		return refusedRead(r)
	}
	s.mu.Lock()
	s.refused[id] = true
	s.mu.Unlock()
	s.completeOp(id, o, r)
	return nil
}

// skipSecondReply accepts the second reply, all zeros, that hosts send to a request after they refused
// it (seen on 7.0.3). Otherwise it would be mistaken for the reply to the next request.
func (s *session) skipSecondReply(h header, payload []byte) error {
	s.mu.Lock()
	was := s.refused[h.id]
	delete(s.refused, h.id)
	s.mu.Unlock()
	if !was {
		return badAnswer("a reply of type %d to request %d, which is not under way", h.kind, h.id)
	}
	for _, b := range payload {
		if b != 0 {
			return badAnswer("a second reply to the refused request %d", h.id)
		}
	}
	return nil
}

// completeOp ends a request. The caller must have the turn.
func (s *session) completeOp(id uint32, o *op, err error) {
	s.mu.Lock()
	delete(s.pending, id)
	s.mu.Unlock()
	o.err = err
	close(o.done)
}

// failSession ends the session and closes the connection. err is the reason unless the session ended
// before. The goroutine that receives then completes the requests under way.
func (s *session) failSession(err error) {
	s.mu.Lock()
	if s.err == nil {
		s.err = s.sessionError(err)
	}
	s.mu.Unlock()
	s.wire.Close()
}

// sessionError returns the fault for the end of the session. Errors without a kind come from the
// connection and are transient.
func (s *session) sessionError(err error) error {
	var known *fault.Error
	switch {
	case errors.As(err, &known):
		return fmt.Errorf("NFC with %s: %w", s.addr, err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fault.New(fault.Transient, "NFC with %s: nothing came for %v", s.addr, s.wire.stall)
	}
	return fault.New(fault.Transient, "NFC with %s: %w", s.addr, err)
}

// failPending completes all requests under way with the session's error, after failSession. The caller
// must have the turn.
func (s *session) failPending() {
	s.mu.Lock()
	left, err := s.pending, s.err
	s.pending = map[uint32]*op{}
	s.mu.Unlock()
	for _, o := range left {
		o.err = err
		close(o.done)
	}
}

// endReason returns the reason why the session ended; nil while it works.
func (s *session) endReason() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// shortenStall limits the wait for further answers to closeTimeout. It returns false if the session has
// ended.
func (s *session) shortenStall() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wire.stall = min(s.wire.stall, closeTimeout) // only the replies to close are outstanding
	return s.err == nil
}

// errClosed is the reason of a session that its owner closed.
var errClosed = fault.New(fault.Canceled, "the session was closed")

// close closes the file and the session on the host, if that still answers, and then the connection.
func (s *session) close(handle uint64) {
	if s.shortenStall() {
		if _, err := s.call(&op{kind: frameCloseFile}, encodeLongs(handle), nil); err == nil {
			_, _ = s.call(&op{kind: frameCloseAll}, encodeWords(0), nil)
		}
		_, _ = s.conn.Write(classicMessage(classicComplete)) // VMware's library sends it too; the host closes the connection
	}
	s.failSession(errClosed)
}
