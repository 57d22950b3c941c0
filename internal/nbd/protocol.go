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
	serverMagic = "NBDMAGICIHAVEOPT" // first 16 bytes of the server: NBDMAGIC, IHAVEOPT
	optionMagic = 0x49484156454f5054 // begins each option: "IHAVEOPT"
	answerMagic = 0x3e889045565a9    // begins each reply to an option
	callMagic   = 0x25609513         // begins each request
	replyMagic  = 0x67446698         // begins each simple reply to a request
)

// Flags of the handshake, which both sides send.
const (
	fixedNewstyle = 1 // NBD_FLAG_FIXED_NEWSTYLE, NBD_FLAG_C_FIXED_NEWSTYLE
	noZeroes      = 2 // NBD_FLAG_NO_ZEROES: the export's description has no padding
)

// Flags of an export.
const (
	hasFlags   = 1 << 0 // NBD_FLAG_HAS_FLAGS: always set
	readOnly   = 1 << 1 // NBD_FLAG_READ_ONLY
	sendFlush  = 1 << 2 // NBD_FLAG_SEND_FLUSH: NBD_CMD_FLUSH is supported
	sendZeroes = 1 << 6 // NBD_FLAG_SEND_WRITE_ZEROES: NBD_CMD_WRITE_ZEROES is supported
)

// Options of the handshake, and the answers to them.
const (
	optExportName = 1 // NBD_OPT_EXPORT_NAME: ends the handshake
	optAbort      = 2 // NBD_OPT_ABORT: ends the connection
	optInfo       = 6 // NBD_OPT_INFO: describes the export
	optGo         = 7 // NBD_OPT_GO: describes the export and ends the handshake

	repAck     = 1         // NBD_REP_ACK: last reply to an option
	repInfo    = 3         // NBD_REP_INFO: one piece of information
	repUnknown = 1<<31 | 1 // NBD_REP_ERR_UNSUP: the option is not supported

	infoExport = 0 // NBD_INFO_EXPORT: size and flags
)

// Commands.
const (
	cmdRead       = 0 // NBD_CMD_READ
	cmdWrite      = 1 // NBD_CMD_WRITE
	cmdDisconnect = 2 // NBD_CMD_DISC; has no reply
	cmdFlush      = 3 // NBD_CMD_FLUSH
	cmdZeroes     = 6 // NBD_CMD_WRITE_ZEROES
)

// Errors of the answers that the server sends.
const (
	errIO    = 5  // NBD_EIO
	errInval = 22 // NBD_EINVAL
	errNoSpc = 28 // NBD_ENOSPC
)
