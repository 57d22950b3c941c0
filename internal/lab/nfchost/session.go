package nfchost

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

const (
	// maxQueue is the most pending requests of a session; beyond it the socket is not read. Clients were
	// seen with 32 reads in flight.
	maxQueue = 256
	// lingerTime is how long a finished session waits for its client to close.
	lingerTime = 2 * time.Second

	bufferUnit     = 64 << 10 // buffer sizes of OPEN_SESSION are multiples of this, in bytes
	defaultBuffers = 4        // number of buffers if the client requests 0
	readOverhead   = 24       // memory of a read in addition to its length, from the numbers in reported errors
)

// A session is the AIO part of a connection. Its fields belong to the goroutine that answers requests.
type session struct {
	*conn
	arriving <-chan *request // requests from the reader, which closes it at the end
	pending  []*request      // requests without an answer, oldest first

	opened       bool   // whether OPEN_SESSION succeeded
	memory       int64  // NFC memory reserved by OPEN_SESSION, in bytes
	buffer       int    // size of a buffer and of the largest fragment, in bytes
	cap          Pacer  // rate limit of Rules.SessionRate
	scratch      []byte // room for the headers and the data of a fragment before compression
	packed       []byte // room for the headers and the compressed data
	disk         Disk   // open disk; nil if none
	handle       uint64 // handle of the open disk
	held         bool   // whether the reads of Rules.Hold were answered
	fragmentTurn int    // number of fragments so far; selects a size of Rules.Fragments
	variety      int    // number of fragments so far, for Variety
	finished     bool   // whether CLOSE_SESSION was received
}

// serveSession answers requests until CLOSE_SESSION or the end of the connection.
func (c *conn) serveSession() error {
	arriving := make(chan *request, maxQueue)
	s := &session{conn: c, arriving: arriving, cap: c.server.cfg.Pacer(c.rules.SessionRate)}
	var reader sync.WaitGroup
	var readErr error
	reader.Go(func() {
		defer close(arriving)
		if readErr = c.receiveRequests(arriving); readErr != nil {
			c.close() // further replies would not arrive
		}
	})
	err := s.answerAll()
	if err != nil || !s.finished {
		c.close()
	}
	reader.Wait()
	s.releaseResources()
	if s.finished && err == nil {
		c.awaitClose()
	}
	return errors.Join(err, readErr)
}

// receiveRequests reads requests ahead of their answers, until CLOSE_SESSION.
func (c *conn) receiveRequests(arriving chan<- *request) error {
	for {
		q, err := c.in.readRequest()
		if err != nil {
			return err
		}
		if q.kind == aioIO {
			c.admitRead(q)
		}
		select {
		case arriving <- q:
		case <-c.gone:
			return errCut
		}
		if q.kind == aioCloseSession {
			return nil
		}
	}
}

// admitRead sets the latency of a read and reserves its memory. A read without memory is marked as
// refused.
func (c *conn) admitRead(q *request) {
	q.ready = time.Now().Add(c.rules.Latency)
	length := int64(min(q.u64(24), 1<<40))
	need := length + readOverhead
	if c.rules.MaxRead > 0 && length > c.rules.MaxRead {
		q.refused = outOfMemory(need)
		return
	}
	if c.rules.Exhausted != RefuseRead {
		return
	}
	if ok, _ := c.server.memory.reserve(need); !ok {
		q.refused = outOfMemory(need)
		return
	}
	q.memory = need
}

// awaitClose waits for the client to close, so that it receives the last reply: an immediate close with
// unread data would reset the connection.
func (c *conn) awaitClose() {
	if tcp, ok := c.raw.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
	}
	_ = c.raw.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.Copy(io.Discard, c.raw)
}

// releaseResources closes the disk and releases the memory of the session and its pending reads.
func (s *session) releaseResources() {
	s.closeDisk()
	for _, q := range s.pending {
		s.server.memory.release(q.memory)
	}
	for q := range s.arriving { // the reader has ended
		s.server.memory.release(q.memory)
	}
	if s.opened {
		s.server.updateStats(func(st *Stats) { st.SessionsOpen-- }) // another session may get the memory at once
		s.server.memory.release(s.memory)
	}
}

// closeDisk closes the open disk, if any.
func (s *session) closeDisk() {
	if s.disk != nil {
		s.disk.Close()
		s.disk = nil
	}
}

// answerAll answers requests in the order of the rules.
func (s *session) answerAll() error {
	for !s.finished {
		if err := s.gatherRequests(1); err != nil {
			if err == io.EOF {
				return nil
			}
			return err
		}
		if q := s.pending[0]; q.kind != aioIO {
			s.pending = s.pending[1:]
			if err := s.answerControl(q); err != nil {
				return err
			}
			continue
		}
		if err := s.answerReads(); err != nil {
			return err
		}
	}
	return nil
}

// gatherRequests waits until n requests are pending, and adds those that have already arrived. It
// returns io.EOF if fewer will arrive.
func (s *session) gatherRequests(n int) error {
	for len(s.pending) < maxQueue {
		if len(s.pending) >= n {
			select {
			case q, ok := <-s.arriving:
				if !ok {
					return nil
				}
				s.pending = append(s.pending, q)
				continue
			default:
				s.noteDepth()
				return nil
			}
		}
		select {
		case q, ok := <-s.arriving:
			if !ok {
				return io.EOF
			}
			s.pending = append(s.pending, q)
		case <-s.gone:
			return errCut
		}
	}
	return nil
}

// noteDepth updates the peak of pending reads.
func (s *session) noteDepth() {
	depth := int64(s.pendingReads())
	s.server.updateStats(func(st *Stats) { st.DepthPeak = max(st.DepthPeak, depth) })
}

// pendingReads returns the number of reads before the first pending request of another kind.
func (s *session) pendingReads() int {
	for i, q := range s.pending {
		if q.kind != aioIO {
			return i
		}
	}
	return len(s.pending)
}

// answerControl answers a request other than a read.
func (s *session) answerControl(q *request) error {
	f := s.nextFault(s.faultOp(q))
	err := s.applyEarly(f)
	var body []byte
	if err == nil {
		body, err = s.handleRequest(q)
	}
	if f.isKind(FaultStatus) && len(body) >= 8 {
		binary.LittleEndian.PutUint64(body, f.Code)
	}
	return s.sendReply(q, body, err)
}

// faultOp returns the Op by which faults match a request.
func (s *session) faultOp(q *request) Op {
	op := Op{Name: operations[q.kind], Path: s.path}
	switch q.kind {
	case aioOpenFile:
		op.Path = q.trailer
	case aioMap:
		op.Offset, op.Length = int64(q.u64(24)), int64(q.u64(16)*q.u64(32))
	case aioIO:
		op.Offset, op.Length = int64(q.u64(16)), int64(q.u64(24))
	}
	return op
}

// sendReply sends the reply to a request, or an ERROR record if err is a Refusal.
func (s *session) sendReply(q *request, body []byte, err error) error {
	var refusal *Refusal
	switch {
	case errors.As(err, &refusal):
		return s.refuseRequest(q, refusal)
	case err != nil:
		return err
	}
	return s.out.send(append(appendHeader(nil, q.kind, s.payloadSize(q), q.opID), body...))
}

// payloadSize returns the payload size of a reply, which is that of its request.
func (s *session) payloadSize(q *request) int { return len(q.payload) }

// refuseRequest sends an ERROR record, and the reply of zeros that Rules.ErrorTail requires.
func (s *session) refuseRequest(q *request, r *Refusal) error {
	s.server.updateStats(func(st *Stats) { st.Refused++ })
	p := appendHeader(nil, aioError, errorSize, q.opID)
	p = binary.LittleEndian.AppendUint64(p, r.Code)
	p = binary.LittleEndian.AppendUint32(p, 0)
	p = binary.LittleEndian.AppendUint32(p, uint32(len(r.Text))) // length of the trailer
	if err := s.out.send(append(p, r.Text...)); err != nil {
		return err
	}
	tail := s.rules.ErrorTail
	if tail == TailNever || tail == TailControl && q.kind == aioIO {
		return nil
	}
	size := s.payloadSize(q)
	return s.out.send(append(appendHeader(nil, q.kind, size, q.opID), make([]byte, size)...))
}

// handleRequest executes a request and returns payload and trailer of the reply.
func (s *session) handleRequest(q *request) ([]byte, error) {
	if !s.opened && q.kind != aioOpenSession && q.kind != aioCloseSession {
		return nil, Refuse("no session")
	}
	switch q.kind {
	case aioOpenSession:
		return s.openSession(q)
	case aioCloseSession:
		s.finished = true
	case aioSockOpts:
		return s.sockOpts(), nil
	case aioOpenFile:
		return s.openFile(q)
	case aioCloseFile:
		return s.closeFile(q)
	case aioEntry:
		return s.diskEntry(q)
	case aioMap:
		return s.allocatedBlocks(q)
	}
	return make([]byte, s.payloadSize(q)), nil
}

// openSession negotiates the buffers and reserves their memory. A size or count of 0 selects the
// default.
func (s *session) openSession(q *request) ([]byte, error) {
	size, count := int64(q.u32(4)), int64(q.u32(8))
	if size == 0 {
		size = bufferUnit
	}
	if count == 0 {
		count = defaultBuffers
	}
	switch {
	case s.opened:
		return nil, Refuse("the session is open")
	case size%bufferUnit != 0 || size > s.rules.MaxBuffer:
		return nil, Refuse("buffer size %d is not allowed", size)
	case size*count > s.rules.SessionMemory:
		return nil, Refuse("%d buffers of %d bytes are too many", count, size)
	}
	if err := s.takeMemory(size * count); err != nil {
		return nil, err
	}
	s.opened, s.buffer = true, int(size)
	s.scratch = make([]byte, fragmentRoom+size)
	s.server.updateStats(func(st *Stats) {
		st.Sessions++
		st.SessionsOpen++
		st.SessionsPeak = max(st.SessionsPeak, st.SessionsOpen)
		st.MemoryPeak = max(st.MemoryPeak, s.server.memory.peakUsed())
	})
	return make([]byte, s.payloadSize(q)), nil // hosts echo nothing
}

// takeMemory reserves the memory of the buffers. Without enough memory it waits or returns a Refusal,
// as the policy requires.
func (s *session) takeMemory(n int64) error {
	if s.rules.Exhausted == RefuseRead {
		return nil // reads reserve their memory
	}
	for {
		ok, freed := s.server.memory.reserve(n)
		switch {
		case ok:
			s.memory = n
			return nil
		case s.rules.Exhausted != Queue:
			return outOfMemory(n)
		}
		select {
		case <-freed:
		case <-s.gone:
			return errCut
		}
	}
}

// outOfMemory returns error 5 for n bytes.
func outOfMemory(n int64) *Refusal {
	r := Refuse("Failed to allocate the requested %d bytes", n)
	r.Code = codeMemory
	return r
}

// sockOpts returns the sizes of the socket buffers; the numbers are the emulator's.
func (s *session) sockOpts() []byte {
	const size = 256 << 10
	p := binary.LittleEndian.AppendUint32(nil, size)
	p = binary.LittleEndian.AppendUint32(p, size)
	return binary.LittleEndian.AppendUint32(p, 1)
}
