// Package nbd implements the Network Block Device protocol as QEMU speaks it: a server of one disk, and
// a client of one export. Both use the fixed newstyle handshake and one export without a name. The
// caller provides the connection.
//
// Serve answers reads, writes and flushes of one client, one at a time, so its memory is one request.
// The client is not trusted: a request has at most maxServed bytes, and ranges outside of the disk are
// refused.
//
// Client reads, writes, zeroes and flushes. Calls may be concurrent, as many as there are callers. Its
// memory is the callers' buffers. The server is not trusted: an answer without a request ends the
// connection.
//
// Source: NetworkBlockDevice/nbd, doc/proto.md.
package nbd

// Numbers that messages begin with.
const (
	serverMagic = "NBDMAGICIHAVEOPT"
	optionMagic = 0x49484156454f5054 // "IHAVEOPT"
	answerMagic = 0x3e889045565a9
	callMagic   = 0x25609513
	replyMagic  = 0x67446698
)

// Flags of the handshake, which both sides send.
const (
	fixedNewstyle = 1
	noZeroes      = 2
)

// Flags of an export.
const (
	hasFlags   = 1 << 0
	readOnly   = 1 << 1
	sendFlush  = 1 << 2
	sendZeroes = 1 << 6
)

// Options of the handshake, and the answers to them.
const (
	optExportName = 1
	optAbort      = 2
	optInfo       = 6
	optGo         = 7

	repAck     = 1
	repInfo    = 3
	repUnknown = 1<<31 | 1

	infoExport = 0
)

// Commands.
const (
	cmdRead       = 0
	cmdWrite      = 1
	cmdDisconnect = 2
	cmdFlush      = 3
	cmdZeroes     = 6
)

// Errors of the answers that the server sends.
const (
	errIO    = 5
	errInval = 22
	errNoSpc = 28
)
