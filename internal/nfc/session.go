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

// frameBuffer holds headers; larger things are read past it.
const frameBuffer = 8 << 10

// session is one AIO session. Requests of several goroutines are under way at once; whoever
// holds the turn receives for all.
type session struct {
	addr string
	wire *stallConn
	conn io.ReadWriter // the wire, or TLS over it

	sending sync.Mutex // held while a request is written: ids go up on the wire

	// turn holds a token while somebody receives. Only its holder reads from the connection,
	// writes into the buffers of requests, and completes them.
	turn  chan struct{}
	br    *bufio.Reader
	room  [longestPayload]byte // for a header, then for a payload
	reply fragmentReader

	mu      sync.Mutex
	next    uint32
	pending map[uint32]*op
	refused map[uint32]bool // the host may answer these once more, with zeros
	granted bool            // OPEN_SESSION was answered; belongs to setUp
	err     error           // why the session is over; nil while it is not
}

// op is a request under way.
type op struct {
	kind uint32
	read *readOp // of frameIO; else nil

	// trailer returns how many bytes follow a reply's payload. Nil: none do.
	trailer func(payload []byte) (int, error)

	// Set before done is closed, by the holder of the turn.
	payload, tail []byte
	err           error
	done          chan struct{}
}

func newSession(addr string, w *stallConn, conn io.ReadWriter) *session {
	return &session{
		addr: addr, wire: w, conn: conn, br: bufio.NewReaderSize(conn, frameBuffer),
		turn: make(chan struct{}, 1), pending: map[uint32]*op{}, refused: map[uint32]bool{},
	}
}

// setUp connects, shows the ticket and opens a session.
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

// unreachableError explains why there was no connection at all.
func unreachableError(ctx context.Context, addr string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	host, port, _ := net.SplitHostPort(addr)
	return fault.New(fault.Unreachable, "connect to %s: %w", addr, err).
		WithHint("NFC needs TCP port %s of every ESXi host, besides the API's 443: nc -vz %s %s; or use --transport https", port, host, port)
}

// setUpError says where an error of the setup belongs. What has no kind came from the
// connection: a host that is busy or restarts hangs up, and may be there a moment later.
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

// openSession opens the AIO session. The host says nothing about the buffers it was asked for:
// it refuses them or uses them.
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

// bufferWords asks for buffers: their size in bytes and how many; zeros leave it to the host.
func bufferWords(b Buffers) []byte { return encodeWords(0, uint32(b.Size), uint32(b.Count), 0) }

// call sends a request and waits for its reply.
func (s *session) call(o *op, payload, trailer []byte) (*op, error) {
	if err := s.sendRequest(o, payload, trailer); err != nil {
		return nil, err
	}
	return o, s.awaitReply(o)
}

// sendRequest writes a request. Whoever sent it must await it: its buffer may be written to until
// then.
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
	return nil // await tells
}

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

// awaitReply waits until o is complete, and receives for all as long as nobody else does.
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

// receiveUntil reads frames until o is complete or the session over. The turn is held.
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

// readFrame reads one frame and does what it says. The turn is held.
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

func (s *session) pendingOp(id uint32) (*op, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, known := s.pending[id]
	return o, known
}

// handleReply takes a reply that is whole in one frame.
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

// handleFragment takes a part of a read.
func (s *session) handleFragment(id uint32, o *op, payload []byte) error {
	if err := s.reply.readFragment(s.br, o.read, payload); err != nil {
		return err
	}
	if o.read.isComplete() {
		s.completeOp(id, o, nil)
	}
	return nil
}

// handleRefusal takes an error record. After one for a read nothing more is known of the
// connection, so that the session is over; after others it goes on.
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

// skipSecondReply takes the reply, all zeros, that hosts send to a request after they have
// refused it (seen on 7.0.3). Unread it would be taken for the answer to the next.
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

// completeOp ends a request. The turn is held.
func (s *session) completeOp(id uint32, o *op, err error) {
	s.mu.Lock()
	delete(s.pending, id)
	s.mu.Unlock()
	o.err = err
	close(o.done)
}

// failSession makes the session be over, because of err unless it was over before. What is
// under way ends when whoever receives has noticed.
func (s *session) failSession(err error) {
	s.mu.Lock()
	if s.err == nil {
		s.err = s.sessionError(err)
	}
	s.mu.Unlock()
	s.wire.Close()
}

// sessionError gives the end of a session its kind: what has none came from the connection.
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

// failPending completes all requests under way, after abandon. The turn is held.
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

// endReason returns why the session is over, nil while it is not.
func (s *session) endReason() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// shortenStall shortens the wait for answers to that of a farewell. It returns false if the session
// is over.
func (s *session) shortenStall() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wire.stall = min(s.wire.stall, closeTimeout) // nobody waits for anything else any more
	return s.err == nil
}

// errClosed ends a session that its owner closed.
var errClosed = fault.New(fault.Canceled, "the session was closed")

// close says farewell, as far as the host still listens, and closes the connection.
func (s *session) close(handle uint64) {
	if s.shortenStall() {
		if _, err := s.call(&op{kind: frameCloseFile}, encodeLongs(handle), nil); err == nil {
			_, _ = s.call(&op{kind: frameCloseAll}, encodeWords(0), nil)
		}
		_, _ = s.conn.Write(classicMessage(classicComplete)) // the host hangs up, whatever it thought of that
	}
	s.failSession(errClosed)
}
