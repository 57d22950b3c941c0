package xdr

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Numbers of RFC 5531 section 9.
const (
	msgCall    = 0 // message type of a call
	msgReply   = 1 // message type of a reply
	rpcVersion = 2 // version of ONC RPC

	AuthNone = 0 // no credentials
	AuthSys  = 1 // Unix credentials (RFC 5531 appendix A)

	replyAccepted = 0 // the call was accepted, whatever its result
	replyDenied   = 1 // the call was rejected: RPC version or credentials

	maxAuthBody  = 400     // longest credentials in bytes (RFC 5531 section 8.2)
	maxMachine   = 255     // longest machine name in bytes (RFC 5531 appendix A)
	maxGroups    = 16      // most additional groups (RFC 5531 appendix A)
	lastFragment = 1 << 31 // bit of the record mark of the last fragment
)

// Status is the result of an accepted call (accept_stat, RFC 5531 section 9).
type Status uint32

// The statuses of an accepted call.
const (
	Success      Status = iota // the call was executed
	ProgUnavail                // unknown program
	ProgMismatch               // unsupported version of the program
	ProcUnavail                // unknown procedure
	GarbageArgs                // arguments that cannot be decoded
	SystemErr                  // error of the server, such as no memory
)

// String returns the name in the RFC.
func (s Status) String() string {
	names := []string{"SUCCESS", "PROG_UNAVAIL", "PROG_MISMATCH", "PROC_UNAVAIL", "GARBAGE_ARGS", "SYSTEM_ERR"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("accept_stat %d", uint32(s))
}

// RPCError is the error of a call that the server accepted and did not execute.
type RPCError struct{ Status Status }

// Error returns the name of the status.
func (e *RPCError) Error() string { return "RPC: " + e.Status.String() }

// ErrDenied is the error of a call that the server rejected: its credentials or its RPC version.
var ErrDenied = errors.New("RPC: denied")

// Call is the header of an RPC call.
type Call struct {
	XID              uint32 // transaction ID, which the reply repeats
	Prog, Vers, Proc uint32 // numbers of program, version and procedure
	Flavor           uint32 // flavor of the credentials
	Machine          string // AUTH_SYS: name of the calling host
	UID, GID         uint32 // AUTH_SYS: user and group of the caller
}

// Append encodes the header. The arguments follow it.
func (c Call) Append(e *Encoder) {
	for _, v := range []uint32{c.XID, msgCall, rpcVersion, c.Prog, c.Vers, c.Proc, c.Flavor} {
		e.Uint32(v)
	}
	var body Encoder
	if c.Flavor == AuthSys {
		body.Uint32(0) // stamp: arbitrary
		body.String(c.Machine)
		body.Uint32(c.UID)
		body.Uint32(c.GID)
		body.Uint32(0) // no further groups
	}
	e.Opaque(body.B)
	e.Uint32(AuthNone)
	e.Opaque(nil)
}

// ReadCall decodes the header of a call. Errors are those of the decoder.
func ReadCall(d *Decoder) (c Call) {
	c.XID = d.Uint32()
	if t := d.Uint32(); t != msgCall {
		d.Fail("message type %d: want a call", t)
	}
	if v := d.Uint32(); v != rpcVersion {
		d.Fail("RPC version %d", v)
	}
	c.Prog, c.Vers, c.Proc, c.Flavor = d.Uint32(), d.Uint32(), d.Uint32(), d.Uint32()
	body := d.Opaque(maxAuthBody)
	if c.Flavor == AuthSys && d.err == nil {
		c.readAuthSys(d, body)
	}
	d.Uint32() // the verifier's flavor
	d.Opaque(maxAuthBody)
	return c
}

// readAuthSys decodes AUTH_SYS credentials. Additional groups are dropped.
func (c *Call) readAuthSys(d *Decoder, body []byte) {
	auth := NewDecoder(body)
	auth.Uint32()
	c.Machine, c.UID, c.GID = auth.String(maxMachine), auth.Uint32(), auth.Uint32()
	groups := auth.Uint32()
	if groups > maxGroups {
		auth.Fail("%d groups", groups)
	}
	for range min(groups, maxGroups) {
		auth.Uint32()
	}
	if err := auth.End(); err != nil {
		d.Fail("credentials: %w", err)
	}
}

// AppendReply encodes the header of a reply to an accepted call.
func AppendReply(e *Encoder, xid uint32, s Status) {
	for _, v := range []uint32{xid, msgReply, replyAccepted, AuthNone, 0, uint32(s)} {
		e.Uint32(v)
	}
}

// ReadReply decodes the header of a reply. If err is nil, the results follow.
func ReadReply(d *Decoder) (xid uint32, err error) {
	xid = d.Uint32()
	if t := d.Uint32(); t != msgReply {
		d.Fail("message type %d: want a reply", t)
	}
	switch stat := d.Uint32(); {
	case d.err != nil:
	case stat == replyDenied:
		return xid, fmt.Errorf("%w: reject_stat %d, reason %d", ErrDenied, d.Uint32(), d.Uint32())
	case stat != replyAccepted:
		d.Fail("reply_stat %d", stat)
	}
	d.Uint32() // the verifier's flavor
	d.Opaque(maxAuthBody)
	if s := Status(d.Uint32()); d.err == nil && s != Success {
		return xid, &RPCError{Status: s}
	}
	return xid, d.err
}

// ReadRecord reads one message of at most limit bytes, in any number of fragments (record marking, RFC
// 5531 section 11). It returns io.EOF if the connection ends between two messages.
func ReadRecord(r io.Reader, limit int) ([]byte, error) {
	var msg []byte
	for {
		var mark [4]byte
		if _, err := io.ReadFull(r, mark[:]); err != nil {
			if len(msg) > 0 && errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		v := binary.BigEndian.Uint32(mark[:])
		n := int64(v &^ lastFragment)
		if int64(len(msg))+n > int64(limit) {
			return nil, fmt.Errorf("record of more than %d bytes", limit)
		}
		if n == 0 && v&lastFragment == 0 {
			return nil, errors.New("record with an empty fragment") // would let a peer spin us
		}
		start := len(msg)
		msg = append(msg, make([]byte, n)...)
		if _, err := io.ReadFull(r, msg[start:]); err != nil {
			return nil, fmt.Errorf("record cut short: %w", io.ErrUnexpectedEOF)
		}
		if v&lastFragment != 0 {
			return msg, nil
		}
	}
}

// Mark returns the record mark of a message of n bytes in one fragment.
func Mark(n int) [4]byte {
	var m [4]byte
	binary.BigEndian.PutUint32(m[:], uint32(n)|lastFragment)
	return m
}
