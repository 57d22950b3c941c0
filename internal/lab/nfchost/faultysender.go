package nfchost

import (
	"encoding/binary"

	"math"
)

// Offsets in a fragment's headers that faults bend.
const (
	atMagic  = 0               // magic of the header
	atOpID   = 12              // operation ID of the header
	atStatus = headerSize      // status of the reply
	atStart  = headerSize + 28 // offset of the fragment in the read
	atLength = headerSize + 32 // length of the fragment on the disk
	atWire   = headerSize + 36 // length of the fragment on the wire
)

// A faultySender sends fragments of a session with an injected fault.
type faultySender struct{ *session }

// flipBit flips one bit of the fragment's data for FaultFlip, if the fragment contains the byte at the
// fault's offset.
func (s faultySender) flipBit(r *readJob, f *fragment) {
	if !r.fault.isKind(FaultFlip) {
		return
	}
	at := max(0, r.fault.At-r.offset-f.start)
	if r.fault.At == 0 || r.fault.At >= r.offset+f.start && at < f.length {
		f.data[at] ^= 1
		r.fault = nil
	}
}

// sendFaulty sends a fragment with the fault of its read. Faults at an offset wait for the fragment
// that contains it; other faults affect the first fragment.
func (s faultySender) sendFaulty(r *readJob, f *fragment) error {
	fault := r.fault
	if fault.isKind(FaultCut) || fault.isKind(FaultStall) || fault.isKind(FaultFlip) {
		return s.sendPart(r, f)
	}
	r.fault = nil
	s.corruptPacked(fault, r.u32(12), f)
	switch fault.Kind {
	case FaultStatus:
		r.pieces, f.data, f.packing = nil, f.data[:0], packNone
		f.start, f.length = 0, 0
	case FaultEmpty:
		if err := s.sendAltered(&fragment{opID: f.opID, offset: f.offset, total: f.total, piece: piece{f.start, 0}}, nil); err != nil {
			return err
		}
		return s.resendAfterEmpty(r, f)
	case FaultOverlap:
		if err := s.sendFragment(f); err != nil {
			return err
		}
	}
	return s.sendAltered(f, func(p []byte) { fault.alterHeaders(p, f) })
}

// resendAfterEmpty sends the fragment whose place an empty one took.
func (s faultySender) resendAfterEmpty(r *readJob, f *fragment) error {
	r.pieces = append([]piece{f.piece}, r.pieces...)
	return s.sendPiece(r)
}

// alterHeaders changes the headers of a fragment in p.
func (f *Fault) alterHeaders(p []byte, frag *fragment) {
	le := binary.LittleEndian
	switch f.Kind {
	case FaultStatus:
		le.PutUint64(p[atStatus:], max(1, f.Code))
	case FaultMagic:
		le.PutUint32(p[atMagic:], aioMagic^1)
	case FaultOpID:
		le.PutUint32(p[atOpID:], frag.opID+maxQueue+1)
	case FaultRange:
		le.PutUint32(p[atStart:], uint32(frag.total))
	case FaultLength:
		le.PutUint32(p[atWire:], uint32(len(frag.data)-1))
	case FaultHuge:
		le.PutUint32(p[atWire:], math.MaxUint32)
	}
}

// corruptPacked replaces compressed data by data that cannot be unpacked, if the fault is for the
// requested compression.
func (s faultySender) corruptPacked(fault *Fault, asked uint32, f *fragment) {
	word := binary.LittleEndian.AppendUint32
	p := s.packed[:0]
	if cap(s.packed) < fragmentRoom {
		p = make([]byte, 0, fragmentRoom+2*s.buffer)
	}
	p = append(p, make([]byte, fragmentRoom)...)
	raw := s.scratch[fragmentRoom : fragmentRoom+f.length]
	switch {
	case fault.isKind(FaultSum) && asked == packZlib:
		p = appendZlib(p, raw)
		p[len(p)-1] ^= 1
	case fault.isKind(FaultRun) && asked == packSkipZ:
		p = word(word(p, uint32(f.length)), 0)
		p = append(word(word(p, uint32(f.length-1)), 2), 'x', 'y')
	case fault.isKind(FaultFalling) && asked == packSkipZ:
		p = word(word(p, uint32(f.length)), 0)
		p = append(word(word(p, uint32(f.length-1)), 1), 'x')
		p = append(word(word(p, 0), 1), 'y')
	case fault.isKind(FaultMatch) && asked == packFastLZ:
		p = append(p, 0, 'x', 0x3f, 0xf0) // a literal, then a match from 7920 bytes back
	default:
		return
	}
	s.usePacked(f, asked, p)
}

// sendAltered sends a fragment after change has modified its headers; a nil change modifies nothing.
func (s faultySender) sendAltered(f *fragment, change func(p []byte)) error {
	p := s.messageOf(f)
	if change != nil {
		change(p)
	}
	return s.out.send(p)
}

// sendPart sends a fragment up to the fault's offset, or half of it, and then cuts or stalls the
// connection.
func (s faultySender) sendPart(r *readJob, f *fragment) error {
	at := len(f.data) / 2
	if r.fault.At > 0 {
		in := r.fault.At - r.offset - f.start
		if in < 0 || in >= f.length {
			return s.sendFragment(f)
		}
		at = min(int(in), len(f.data))
	}
	fault := r.fault
	r.fault = nil
	p := s.messageOf(f)
	if err := s.out.send(p[:fragmentRoom+at]); err != nil {
		return err
	}
	if fault.isKind(FaultCut) {
		s.resetConn()
		return errCut
	}
	if err := s.waitRelease(fault); err != nil {
		return err
	}
	if rest := p[fragmentRoom+at:]; len(rest) > 0 {
		return s.out.send(rest)
	}
	return nil
}
