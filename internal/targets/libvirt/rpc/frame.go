package rpc

import (
	"encoding/binary"
	"io"

	"github.com/decamp/decamp/internal/fault"
)

const (
	program    = 0x20008086 // of all that libvirt's drivers do
	version    = 1
	headerSize = 28

	// maxFrame is libvirt's own limit on a message, in bytes.
	maxFrame = 32 << 20
)

// kind says what a frame is.
type kind uint32

const (
	call   kind = 0
	reply  kind = 1
	stream kind = 3
	hole   kind = 6 // of a sparse stream
)

// status says how a call or a stream goes on.
type status uint32

const (
	ok        status = 0 // all is well, or the stream has ended
	failed    status = 1 // the payload is an Error, or the stream is given up
	continues status = 2 // more of the stream follows
)

// A frame is one message of the protocol.
type frame struct {
	program uint32
	proc    uint32
	kind    kind
	serial  uint32
	status  status
	payload []byte
}

func (f frame) encode() []byte {
	p := make(args, 0, headerSize+len(f.payload))
	p = p.uint32(uint32(headerSize + len(f.payload))).uint32(program).uint32(version)
	p = p.uint32(f.proc).uint32(uint32(f.kind)).uint32(f.serial).uint32(uint32(f.status))
	return append(p, f.payload...)
}

// readFrame reads one message, of maxFrame bytes at most.
func readFrame(r io.Reader) (frame, error) {
	var head [headerSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return frame{}, err
	}
	word := func(i int) uint32 { return binary.BigEndian.Uint32(head[4*i:]) }
	if n := word(0); n < headerSize || n > maxFrame || word(2) != version {
		return frame{}, fault.New(fault.Unsupported, "what answers does not speak libvirt's protocol: it says %q", head[:16]).
			WithHint("check the address: libvirt listens on port 16509 (TCP), 16514 (TLS), or at a socket named libvirt-sock or virtqemud-sock")
	}
	f := frame{program: word(1), proc: word(3), kind: kind(word(4)), serial: word(5), status: status(word(6))}
	f.payload = make([]byte, word(0)-headerSize)
	_, err := io.ReadFull(r, f.payload)
	return f, err
}
