package oncrpc

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/decamp/decamp/internal/nfs/xdr"
)

// Numbers of RFC 5531 section 9.
const (
	rpcVersion = 2 // the only version of RPC

	msgCall  = 0 // message type of a call
	msgReply = 1 // message type of a reply

	replyAccepted = 0 // the call was executed, or its program rejected it
	replyDenied   = 1 // the call has another RPC version, or bad credentials

	acceptSuccess      = 0 // results follow
	acceptProgUnavail  = 1 // no such program
	acceptProgMismatch = 2 // no such version; the lowest and the highest follow
	acceptProcUnavail  = 3 // no such procedure
	acceptGarbageArgs  = 4 // malformed arguments
	acceptSystemErr    = 5 // the procedure failed without a status

	rejectRPCMismatch = 0 // another RPC version; the lowest and the highest follow
	rejectAuthError   = 1 // credentials are not accepted; the reason follows

	authBadCred = 1 // the credentials are malformed or of an unknown flavor
)

// Authentication flavors (RFC 5531 section 8.2).
const (
	AuthNone = 0 // no credentials
	AuthSys  = 1 // user and groups, as the client claims them
)

// Bounds of RFC 5531 section 8.2 and appendix A.
const (
	maxAuth        = 400 // bytes of a credential or verifier
	maxMachineName = 255 // bytes of the machine name in AUTH_SYS
	maxGIDs        = 16  // supplementary groups in AUTH_SYS
)

// Nobody is the user and the group of a call without credentials.
const Nobody = 65534

// Cred contains the credentials of a call. The client can claim any.
type Cred struct {
	Flavor   uint32   // AuthNone or AuthSys
	Machine  string   // the client's name for itself
	UID, GID uint32   // Nobody without AUTH_SYS
	GIDs     []uint32 // supplementary groups
}

// A Call is a decoded call header, with the hooks that Decode sets.
type Call struct {
	XID, Program, Version, Procedure uint32

	Cred        Cred           // Cred contains the credentials.
	Peer, Local netip.AddrPort // Peer and Local are the ends of the connection.

	// Args decodes the arguments from the record. Only Decode may use it.
	Args *xdr.Decoder

	// Expect is the size of the reply in bytes, if that is more than a few KiB. Decode sets it. The call
	// is answered when memory of that size is free.
	Expect int

	// Sum is a checksum of the payload. It separates the call from others with the same beginning, for
	// Procedure.Once. Decode sets it if the arguments have a payload.
	Sum uint32

	// Quick executes the call if that need not wait, and reports whether it did. Then the Answer only
	// encodes, and the connection's reader calls it. Decode sets Quick for very frequent calls: it saves a
	// goroutine for each, and a wake-up of the client for each reply. It may be nil.
	Quick func() bool

	// Free is called if the Answer of a decoded call is not called: the call is a repetition, or the
	// server ends. Decode sets it to release resources of the call. It may be nil.
	Free func()

	flush func() // sends held replies; nil for a datagram
}

// Pause sends held replies to earlier calls. A Decode must call it before it waits for anything but its
// Args.
func (c *Call) Pause() {
	if c.flush != nil {
		c.flush()
	}
}

// freeDecoded calls Free if Decode set it.
func (c *Call) freeDecoded() {
	if c.Free != nil {
		c.Free()
	}
}

// errNoCall reports a record that is not a call: its sender uses another protocol.
var errNoCall = errors.New("not an RPC call")

// errCred reports credentials that are malformed or of an unknown flavor.
var errCred = errors.New("bad credential")

// errVersion reports a call of another version of RPC.
var errVersion = errors.New("another version of RPC")

// decodeHeader decodes a call header (RFC 5531 section 9). After errVersion and errCred the call can be
// denied. After any other error the stream is unusable.
func decodeHeader(c *Call, d *xdr.Decoder) error {
	c.XID = d.Uint32()
	if kind := d.Uint32(); d.Err() == nil && kind != msgCall {
		return fmt.Errorf("%w: message type %d", errNoCall, kind)
	}
	version := d.Uint32()
	if d.Err() == nil && version != rpcVersion {
		return errVersion
	}
	c.Program, c.Version, c.Procedure = d.Uint32(), d.Uint32(), d.Uint32()
	flavor, body := d.Uint32(), d.Opaque(maxAuth)
	_, _ = d.Uint32(), d.Opaque(maxAuth) // the verifier, which AUTH_NONE and AUTH_SYS do not use
	if err := d.Err(); err != nil {
		return fmt.Errorf("%w: %w", errNoCall, err)
	}
	return decodeCred(&c.Cred, flavor, body)
}

// decodeCred decodes the body of a credential. It fails with errCred for unknown flavors.
func decodeCred(cred *Cred, flavor uint32, body []byte) error {
	*cred = Cred{Flavor: flavor, UID: Nobody, GID: Nobody}
	switch flavor {
	case AuthNone:
		return nil
	case AuthSys:
		return decodeAuthSys(cred, xdr.NewDecoder(strings.NewReader(string(body))))
	}
	return fmt.Errorf("%w: flavor %d", errCred, flavor)
}

// decodeAuthSys decodes authsys_parms (RFC 5531 appendix A).
func decodeAuthSys(cred *Cred, d *xdr.Decoder) error {
	_ = d.Uint32() // stamp: an arbitrary number
	cred.Machine = d.String(maxMachineName)
	cred.UID, cred.GID = d.Uint32(), d.Uint32()
	n := d.Length(maxGIDs)
	for range n {
		cred.GIDs = append(cred.GIDs, d.Uint32())
	}
	if d.Err() != nil {
		return fmt.Errorf("%w: AUTH_SYS: %w", errCred, d.Err())
	}
	return nil
}
