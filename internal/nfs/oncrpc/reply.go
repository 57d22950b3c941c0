package oncrpc

import (
	"encoding/binary"
	"errors"

	"github.com/decamp/decamp/internal/nfs/xdr"
)

// beginReply starts a reply in e, with room for its record mark.
func beginReply(e *xdr.Encoder, xid uint32) {
	e.Truncate(0)
	clear(e.Extend(markSize))
	e.Uint32(xid)
	e.Uint32(msgReply)
}

// encodeAccepted appends the header of an accepted_reply (RFC 5531 section 9). stat is an accept
// constant.
func encodeAccepted(e *xdr.Encoder, stat uint32) {
	e.Uint32(replyAccepted)
	e.Uint32(AuthNone)
	e.Uint32(0)
	e.Uint32(stat)
}

// encodeDenied appends the rejected_reply for errVersion or errCred.
func encodeDenied(e *xdr.Encoder, err error) {
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

// finishReply sets the record mark of a complete reply, which is one fragment, and returns the reply.
// It is valid until e is used again.
func finishReply(e *xdr.Encoder) []byte {
	reply := e.Bytes()
	binary.BigEndian.PutUint32(reply, uint32(len(reply)-markSize)|lastFragment)
	return reply
}
