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
	rpcVersion = 2

	msgCall  = 0
	msgReply = 1

	replyAccepted = 0
	replyDenied   = 1

	acceptSuccess      = 0
	acceptProgUnavail  = 1
	acceptProgMismatch = 2
	acceptProcUnavail  = 3
	acceptGarbageArgs  = 4
	acceptSystemErr    = 5

	rejectRPCMismatch = 0
	rejectAuthError   = 1

	authBadCred = 1
)

// Authentication flavors (RFC 5531 section 8.2).
const (
	AuthNone = 0
	AuthSys  = 1
)

// Bounds of RFC 5531 section 8.2 and appendix A.
const (
	maxAuth        = 400
	maxMachineName = 255
	maxGIDs        = 16
)

// Nobody is the user and group of a call without credentials.
const Nobody = 65534

// Cred is who a call says it comes from. It is believed.
type Cred struct {
	Flavor   uint32
	Machine  string
	UID, GID uint32
	GIDs     []uint32
}

// A Call is one call as its procedure sees it.
type Call struct {
	XID, Program, Version, Procedure uint32

	Cred        Cred
	Peer, Local netip.AddrPort

	// Args are the arguments. Only Decode may read them.
	Args *xdr.Decoder

	// Expect is what the reply will take, in bytes, where that is more than a few KiB.
	// Decode sets it; the call is answered when memory of that size is free.
	Expect int

	// Sum tells the call from others that begin like it, for Procedure.Once. Decode sets it
	// to a checksum of a payload, of which only the beginning is looked at otherwise.
	Sum uint32

	// Quick tries to do the call without waiting for anything, and reports whether it is
	// done; then the Answer, which only encodes, does not wait either, and the connection's
	// reader gives it. Decode sets it for calls that come by the thousand: they are spared a
	// goroutine, and their client a wake-up for each answer. It may be nil.
	Quick func() bool

	// Free is called when a call that was decoded is not going to be answered by its
	// Answer: it was a repetition, or the server ends. Decode sets it where it took
	// something. It may be nil.
	Free func()

	flush func() // nil where no answers are held back
}

// Pause is for a Decode that is going to wait for anything but its Args: answers to earlier
// calls that are held back go out first.
func (c *Call) Pause() {
	if c.flush != nil {
		c.flush()
	}
}

func (c *Call) freeDecoded() {
	if c.Free != nil {
		c.Free()
	}
}

// errNoCall is a record that is not a call: its sender speaks something else.
var errNoCall = errors.New("not an RPC call")

// errCred is a credential nobody can be.
var errCred = errors.New("bad credential")

// errVersion is a call of another version of RPC.
var errVersion = errors.New("another version of RPC")

// decodeHeader takes a call's header (RFC 5531 section 9). For errVersion and errCred the
// call can be denied; after any other error there is nobody to talk to.
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
	_, _ = d.Uint32(), d.Opaque(maxAuth) // the verifier: none of our flavors has one
	if err := d.Err(); err != nil {
		return fmt.Errorf("%w: %w", errNoCall, err)
	}
	return decodeCred(&c.Cred, flavor, body)
}

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

// decodeAuthSys takes authsys_parms (RFC 5531 appendix A).
func decodeAuthSys(cred *Cred, d *xdr.Decoder) error {
	_ = d.Uint32() // stamp: any number the client likes
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
