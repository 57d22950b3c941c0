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
	// maxQueue is how many requests wait in a session. Clients were seen with 32 reads in
	// flight; behind the last the socket is not read.
	maxQueue = 256
	// lingerTime is how long a finished session waits for its client to close.
	lingerTime = 2 * time.Second

	bufferUnit     = 64 << 10 // sizes of OPEN_SESSION are multiples of it
	defaultBuffers = 4
	readOverhead   = 24 // of a read's memory, as the numbers in reported errors say
)

// session is the AIO part of a connection. Its fields belong to the goroutine that answers.
type session struct {
	*conn
	arriving <-chan *request // closed by the reader when nothing more comes
	pending  []*request      // arrived and not answered, in order

	opened       bool
	memory       int64 // taken by OPEN_SESSION
	buffer       int   // size of one, and so of the largest fragment
	cap          Pacer
	scratch      []byte // a fragment as it was read, behind room for its headers
	packed       []byte // the same, compressed
	disk         Disk
	handle       uint64
	held         bool // Rules.Hold has had its reads
	fragmentTurn int  // of Rules.Fragments
	variety      int  // of Packing Variety
	finished     bool
}

// serveSession serves requests until CLOSE_SESSION or the end of the connection.
func (c *conn) serveSession() error {
	arriving := make(chan *request, maxQueue)
	s := &session{conn: c, arriving: arriving, cap: c.server.cfg.Pacer(c.rules.SessionRate)}
	var reader sync.WaitGroup
	var readErr error
	reader.Go(func() {
		defer close(arriving)
		if readErr = c.receiveRequests(arriving); readErr != nil {
			c.close() // nobody is there for what is still to be answered
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

// receiveRequests reads requests ahead of their answers.
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

// admitRead is what happens to a read when it arrives.
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

// awaitClose lets the last reply arrive: closing at once, with the client's type 4 unread, would
// reset the connection.
func (c *conn) awaitClose() {
	if tcp, ok := c.raw.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
	}
	_ = c.raw.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.Copy(io.Discard, c.raw)
}

// releaseResources gives back what the session holds.
func (s *session) releaseResources() {
	s.closeDisk()
	for _, q := range s.pending {
		s.server.memory.release(q.memory)
	}
	for q := range s.arriving { // the reader has ended
		s.server.memory.release(q.memory)
	}
	if s.opened {
		s.server.memory.release(s.memory)
		s.server.updateStats(func(st *Stats) { st.SessionsOpen-- })
	}
}

func (s *session) closeDisk() {
	if s.disk != nil {
		s.disk.Close()
		s.disk = nil
	}
}

// answerAll answers requests in the order the rules want.
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

// gatherRequests waits until n requests are pending and takes what else is there. It returns io.EOF
// if fewer will come.
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

func (s *session) noteDepth() {
	depth := int64(s.pendingReads())
	s.server.updateStats(func(st *Stats) { st.DepthPeak = max(st.DepthPeak, depth) })
}

// pendingReads is how many reads are pending before the first request of another kind.
func (s *session) pendingReads() int {
	for i, q := range s.pending {
		if q.kind != aioIO {
			return i
		}
	}
	return len(s.pending)
}

// answerControl serves a request that is no read.
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

// faultOp is what faults may match a request by.
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

// sendReply sends a reply, or an ERROR record and what follows it.
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

// payloadSize is that of a reply, and of its request.
func (s *session) payloadSize(q *request) int { return len(q.payload) }

func (s *session) refuseRequest(q *request, r *Refusal) error {
	s.server.updateStats(func(st *Stats) { st.Refused++ })
	p := appendHeader(nil, aioError, errorSize, q.opID)
	p = binary.LittleEndian.AppendUint64(p, r.Code)
	p = binary.LittleEndian.AppendUint32(p, 0)
	p = binary.LittleEndian.AppendUint32(p, uint32(len(r.Text)))
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

// handleRequest does what a request asks and returns the reply's payload and trailer.
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

// openSession negotiates the buffers and takes the memory for them.
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

// takeMemory takes a session's buffers, as the policy wants.
func (s *session) takeMemory(n int64) error {
	if s.rules.Exhausted == RefuseRead {
		return nil // reads take theirs
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

func outOfMemory(n int64) *Refusal {
	r := Refuse("Failed to allocate the requested %d bytes", n)
	r.Code = codeMemory
	return r
}

// sockOpts reports socket buffers; the numbers are the lab's.
func (s *session) sockOpts() []byte {
	const size = 256 << 10
	p := binary.LittleEndian.AppendUint32(nil, size)
	p = binary.LittleEndian.AppendUint32(p, size)
	return binary.LittleEndian.AppendUint32(p, 1)
}
