package oncrpc

import (
	"encoding/binary"
	"errors"

	"github.com/decamp/decamp/internal/nfs/xdr"
)

// begin begins a reply, leaving room for its record mark.
func begin(e *xdr.Encoder, xid uint32) {
	e.Truncate(0)
	clear(e.Extend(markSize))
	e.Uint32(xid)
	e.Uint32(msgReply)
}

// accept encodes the header of an accepted_reply: the call was understood, and stat says
// how far it came.
func accept(e *xdr.Encoder, stat uint32) {
	e.Uint32(replyAccepted)
	e.Uint32(AuthNone)
	e.Uint32(0)
	e.Uint32(stat)
}

// deny encodes the rejected_reply that errVersion or errCred deserve.
func deny(e *xdr.Encoder, err error) {
	e.Uint32(replyDenied)
	if errors.Is(err, errVersion) {
		e.Uint32(rejectRPCMismatch)
		e.Uint32(rpcVersion)
		e.Uint32(rpcVersion)
		return
	}
	e.Uint32(rejectAuthError)
	e.Uint32(authBadCred)
}

// finish writes the record mark of a complete reply, which is one fragment, and returns it.
func finish(e *xdr.Encoder) []byte {
	reply := e.Bytes()
	binary.BigEndian.PutUint32(reply, uint32(len(reply)-markSize)|lastFragment)
	return reply
}
