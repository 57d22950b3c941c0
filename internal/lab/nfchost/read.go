package nfchost

import (
	"encoding/binary"
	"errors"
	"slices"
	"time"
)

// fragmentRoom is the size of the headers in front of a fragment's data, in bytes.
const fragmentRoom = headerSize + ioSize

// A readJob is a read that is being answered.
type readJob struct {
	*request
	offset int64   // offset on the disk in bytes
	length int64   // length in bytes
	pieces []piece // fragments that are not sent
	fault  *Fault  // fault that is still to be injected; nil otherwise
}

// A piece is the range of one fragment.
type piece struct{ start, length int64 }

// answerReads answers the first pending read, or all of them with Rules.Hold or the order Mixed.
func (s *session) answerReads() error {
	if s.rules.Hold > 1 && !s.held {
		return s.answerHeld()
	}
	if s.rules.Order == Mixed {
		return s.answerMixed(s.takeReads())
	}
	q := s.pending[0]
	s.pending = s.pending[1:]
	return s.answerRead(q)
}

// takeReads removes the pending reads and returns them, newest first.
func (s *session) takeReads() []*request {
	n := s.pendingReads()
	all := slices.Clone(s.pending[:n])
	s.pending = s.pending[n:]
	slices.Reverse(all)
	return all
}

// answerHeld waits until the first Rules.Hold reads of the session are pending, then answers them
// newest first.
func (s *session) answerHeld() error {
	s.held = true
	patience := time.NewTimer(s.rules.HoldFor)
	defer patience.Stop()
	met := s.collectReads(s.rules.Hold, patience.C)
	s.noteDepth()
	s.server.updateStats(func(st *Stats) {
		if met {
			st.HoldsMet++
		} else {
			st.HoldsMissed++
		}
	})
	for _, q := range s.takeReads() {
		if err := s.answerRead(q); err != nil {
			return err
		}
	}
	return nil
}

// collectReads waits until n reads are pending and returns true. It returns false if another request
// arrives, patience expires or the connection ends.
func (s *session) collectReads(n int, patience <-chan time.Time) bool {
	for s.pendingReads() < n {
		if s.pendingReads() < len(s.pending) {
			return false
		}
		select {
		case q, ok := <-s.arriving:
			if !ok {
				return false
			}
			s.pending = append(s.pending, q)
		case <-patience:
			return false
		case <-s.gone:
			return false
		}
	}
	return true
}

// answerRead sends all fragments of one read.
func (s *session) answerRead(q *request) error {
	r, err := s.beginRead(q)
	for err == nil && len(r.pieces) > 0 {
		err = s.sendPiece(r)
	}
	return s.endRead(q, err)
}

// answerMixed answers several reads, one fragment of each in turn.
func (s *session) answerMixed(all []*request) error {
	var open []*readJob
	for _, q := range all {
		r, err := s.beginRead(q)
		if err != nil {
			if err := s.endRead(q, err); err != nil {
				return err
			}
			continue
		}
		open = append(open, r)
	}
	for len(open) > 0 {
		for _, r := range open {
			if err := s.sendPiece(r); err != nil {
				return err
			}
		}
		open = slices.DeleteFunc(open, func(r *readJob) bool {
			done := len(r.pieces) == 0
			if done {
				_ = s.endRead(r.request, nil) // nothing to send
			}
			return done
		})
	}
	return nil
}

// beginRead checks a read, waits for its latency and splits it into fragments.
func (s *session) beginRead(q *request) (*readJob, error) {
	r := &readJob{request: q, offset: int64(q.u64(16)), length: int64(q.u64(24))}
	if q.refused != nil {
		return nil, q.refused
	}
	if err := s.checkRead(r); err != nil {
		return nil, err
	}
	if err := s.sleepFor(time.Until(q.ready)); err != nil {
		return nil, err
	}
	r.fault = s.nextFault(s.faultOp(q))
	if r.fault.isKind(FaultError) || r.fault.isKind(FaultStall) && r.fault.At == 0 {
		if err := s.applyEarly(r.fault); err != nil {
			return nil, err
		}
	}
	s.server.updateStats(func(st *Stats) { st.Reads++ })
	r.pieces = s.splitRead(r.length)
	return r, nil
}

// checkRead returns a Refusal for a read that is invalid, or that no description covers.
func (s *session) checkRead(r *readJob) error {
	if !s.opened {
		return Refuse("no session")
	}
	if err := s.checkHandle(r.request); err != nil {
		return err
	}
	switch {
	case r.u32(8) == 0: // write
		return &Refusal{Code: CodeReadOnly, Text: "the file is open for reading"}
	case r.u32(8) != 1: // 1 is read
		return Refuse("operation %d", r.u32(8))
	case r.u32(12) > packSkipZ:
		return Refuse("compression %d", r.u32(12))
	case r.u64(24) != uint64(r.u32(32)): // the request contains the length twice
		return Refuse("lengths %d and %d", r.u64(24), r.u32(32))
	case r.length == 0 || r.length%sectorSize != 0 || r.offset%sectorSize != 0:
		return Refuse("%d bytes at %d: not whole sectors", r.length, r.offset)
	case r.offset < 0 || r.offset > s.disk.Size()-r.length:
		return Refuse("%d bytes at %d: past the end", r.length, r.offset)
	}
	return nil
}

// splitRead returns the fragments of a read of length bytes, in the order of the rules.
func (s *session) splitRead(length int64) (all []piece) {
	for start := int64(0); start < length; {
		n := int64(s.buffer)
		if sizes := s.rules.Fragments; len(sizes) > 0 {
			n = min(n, int64(sizes[s.fragmentTurn%len(sizes)]))
			s.fragmentTurn++
		}
		n = min(n, length-start)
		all = append(all, piece{start, n})
		start += n
	}
	switch s.rules.Order {
	case Reversed:
		slices.Reverse(all)
	case OddFirst:
		all = oddFirst(all)
	}
	return all
}

// oddFirst returns the second, fourth and so on of all before the others.
func oddFirst(all []piece) []piece {
	var odd, even []piece
	for i, p := range all {
		if i%2 == 1 {
			odd = append(odd, p)
		} else {
			even = append(even, p)
		}
	}
	return append(odd, even...)
}

// sendPiece reads, packs and sends the next fragment of a read.
func (s *session) sendPiece(r *readJob) error {
	p := r.pieces[0]
	r.pieces = r.pieces[1:]
	f := &fragment{offset: r.offset, total: r.length, piece: p, opID: r.opID}
	f.data = s.scratch[fragmentRoom : fragmentRoom+p.length]
	if n, err := s.disk.ReadAt(f.data, r.offset+p.start); n < len(f.data) {
		return Refuse("read %d bytes at %d: %v", p.length, r.offset+p.start, err)
	}
	faultySender{s}.flipBit(r, f)
	s.packFragment(r, f)
	if err := s.waitForCaps(r, f); err != nil {
		return err
	}
	if r.fault != nil {
		return faultySender{s}.sendFaulty(r, f)
	}
	return s.sendFragment(f)
}

// waitForCaps waits for all rate limits of the fragment. The datastore's limit counts only data that is
// read from it, not holes.
func (s *session) waitForCaps(r *readJob, f *fragment) error {
	now := time.Now()
	host, link := s.server.sharedPacers()
	n := int(f.length)
	wait := max(s.cap.Reserve(n, now), host.Reserve(n, now), link.Reserve(fragmentRoom+len(f.data), now))
	at := r.offset + f.start
	if start, _, err := s.disk.NextData(at); err == nil && start < at+f.length {
		wait = max(wait, s.disk.Pacer().Reserve(n, now))
	}
	return s.sleepFor(wait)
}

// endRead releases the memory of a read. A Refusal becomes an ERROR record.
func (s *session) endRead(q *request, err error) error {
	s.server.memory.release(q.memory)
	q.memory = 0
	var refusal *Refusal
	if errors.As(err, &refusal) {
		return s.refuseRequest(q, refusal)
	}
	return err
}

// A fragment is one reply to a read.
type fragment struct {
	piece
	opID    uint32 // operation ID of the request
	offset  int64  // offset of the request on the disk
	total   int64  // length of the request
	packing uint32 // compression of data
	data    []byte // bytes on the wire, inside scratch or packed of the session
}

// putHeaders writes both headers into p, which has fragmentRoom bytes.
func (f *fragment) putHeaders(p []byte) {
	p = appendHeader(p[:0], aioIO, ioSize, f.opID)
	le := binary.LittleEndian
	p = le.AppendUint64(p, 0)                   // status
	p = le.AppendUint32(p, 1)                   // operation: read
	p = le.AppendUint32(p, f.packing)           // compression
	p = le.AppendUint64(p, uint64(f.offset))    // offset of the read
	p = le.AppendUint32(p, uint32(f.total))     // length of the read
	p = le.AppendUint32(p, uint32(f.start))     // offset of the fragment in the read
	p = le.AppendUint32(p, uint32(f.length))    // length of the fragment
	p = le.AppendUint32(p, uint32(len(f.data))) // length on the wire
	le.AppendUint32(p, 0)
}

// sendFragment sends headers and data in one write.
func (s *session) sendFragment(f *fragment) error {
	s.server.updateStats(func(st *Stats) {
		st.ReadBytes += f.length
		st.WireBytes += int64(fragmentRoom + len(f.data))
	})
	return s.out.send(s.messageOf(f))
}

// messageOf returns the message of a fragment. Its data is in scratch or packed, after room for the
// headers.
func (s *session) messageOf(f *fragment) []byte {
	buf := s.scratch
	if f.packing != packNone {
		buf = s.packed
	}
	f.putHeaders(buf[:fragmentRoom])
	return buf[:fragmentRoom+len(f.data)]
}
