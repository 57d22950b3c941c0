package rpc

import (
	"encoding/binary"
	"io"

	"github.com/decamp/decamp/internal/fault"
)

const (
	program    = 0x20008086 // REMOTE_PROGRAM: the calls of libvirt's drivers
	version    = 1          // REMOTE_PROTOCOL_VERSION
	headerSize = 28         // length, program, version, procedure, type, serial, status

	// maxFrame is VIR_NET_MESSAGE_MAX, the maximum length of a message in bytes.
	maxFrame = 32 << 20
)

// kind is the type of a message (virNetMessageType).
type kind uint32

const (
	call   kind = 0 // from the client
	reply  kind = 1 // result of a call
	stream kind = 3 // data of a stream, in either direction
	hole   kind = 6 // hole in a sparse stream
)

// status is the state of a call or stream (virNetMessageStatus).
type status uint32

const (
	ok        status = 0 // success, or the end of a stream
	failed    status = 1 // the payload is a remote_error, or the stream is aborted
	continues status = 2 // more data follows
)

// frame is one message of the protocol.
type frame struct {
	program uint32 // set in received frames; encode uses the constant
	proc    uint32 // number of the call
	kind    kind   // message type
	serial  uint32 // number of the call within the connection
	status  status // state of the call or stream
	payload []byte // arguments, result, stream data or error
}

// encode returns the message with its header.
func (f frame) encode() []byte {
	p := make(args, 0, headerSize+len(f.payload))
	p = p.uint32(uint32(headerSize + len(f.payload))).uint32(program).uint32(version)
	p = p.uint32(f.proc).uint32(uint32(f.kind)).uint32(f.serial).uint32(uint32(f.status))
	return append(p, f.payload...)
}

// readFrame reads one message. A header that is not libvirt's is fault.Unsupported.
func readFrame(r io.Reader) (frame, error) {
	var head [headerSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return frame{}, err
	}
	word := func(i int) uint32 { return binary.BigEndian.Uint32(head[4*i:]) }
	if n := word(0); n < headerSize || n > maxFrame || word(2) != version {
		return frame{}, fault.New(fault.Unsupported, "the server does not use libvirt's protocol: its answer begins with %q", head[:16]).
			WithHint("check the address: libvirt listens on port 16509 (TCP), 16514 (TLS), or at a socket named libvirt-sock or virtqemud-sock")
	}
	f := frame{program: word(1), proc: word(3), kind: kind(word(4)), serial: word(5), status: status(word(6))}
	f.payload = make([]byte, word(0)-headerSize)
	_, err := io.ReadFull(r, f.payload)
	return f, err
}
