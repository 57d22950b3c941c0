package nbd

// Numbers that messages begin with.
const (
	serverMagic = "NBDMAGICIHAVEOPT" // first 16 bytes of the server: NBDMAGIC, IHAVEOPT
	optionMagic = 0x49484156454f5054 // begins each option: "IHAVEOPT"
	answerMagic = 0x3e889045565a9    // begins each reply to an option
	callMagic   = 0x25609513         // begins each request
	replyMagic  = 0x67446698         // begins each simple reply to a request
	chunkMagic  = 0x668e33ef         // begins each chunk of a structured reply
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
	sendDF     = 1 << 7 // NBD_FLAG_SEND_DF: flagDF is supported
	multiConn  = 1 << 8 // NBD_FLAG_CAN_MULTI_CONN: several connections see the same data
)

// Options of the handshake.
const (
	optExportName  = 1  // NBD_OPT_EXPORT_NAME: ends the handshake
	optAbort       = 2  // NBD_OPT_ABORT: ends the connection
	optList        = 3  // NBD_OPT_LIST: names of the exports
	optStartTLS    = 5  // NBD_OPT_STARTTLS
	optInfo        = 6  // NBD_OPT_INFO: describes the export
	optGo          = 7  // NBD_OPT_GO: describes the export and ends the handshake
	optStructured  = 8  // NBD_OPT_STRUCTURED_REPLY
	optListContext = 9  // NBD_OPT_LIST_META_CONTEXT
	optSetContext  = 10 // NBD_OPT_SET_META_CONTEXT
)

// Replies to options.
const (
	repAck         = 1         // NBD_REP_ACK: last reply to an option
	repServer      = 2         // NBD_REP_SERVER: one export
	repInfo        = 3         // NBD_REP_INFO: one piece of information
	repContext     = 4         // NBD_REP_META_CONTEXT: one context
	repUnsupported = 1<<31 | 1 // NBD_REP_ERR_UNSUP: the option is not supported
	repInvalid     = 1<<31 | 3 // NBD_REP_ERR_INVALID: the option has invalid data
	repNeedsTLS    = 1<<31 | 5 // NBD_REP_ERR_TLS_REQD: TLS must be started first
	repUnknown     = 1<<31 | 6 // NBD_REP_ERR_UNKNOWN: the export does not exist
)

// Information about an export.
const (
	infoExport      = 0 // NBD_INFO_EXPORT: size and flags
	infoName        = 1 // NBD_INFO_NAME
	infoDescription = 2 // NBD_INFO_DESCRIPTION
	infoBlockSize   = 3 // NBD_INFO_BLOCK_SIZE: sizes of requests
)

// Commands.
const (
	cmdRead        = 0 // NBD_CMD_READ
	cmdWrite       = 1 // NBD_CMD_WRITE
	cmdDisconnect  = 2 // NBD_CMD_DISC; has no reply
	cmdFlush       = 3 // NBD_CMD_FLUSH
	cmdZeroes      = 6 // NBD_CMD_WRITE_ZEROES
	cmdBlockStatus = 7 // NBD_CMD_BLOCK_STATUS
)

// Flags of commands.
const (
	flagDF     = 1 << 2 // NBD_CMD_FLAG_DF: a read has one chunk of data
	flagReqOne = 1 << 3 // NBD_CMD_FLAG_REQ_ONE: a block status has one extent
)

// Structured replies.
const (
	chunkDone = 1 << 0 // NBD_REPLY_FLAG_DONE: flag of the last chunk of a reply

	chunkNone        = 0         // NBD_REPLY_TYPE_NONE
	chunkData        = 1         // NBD_REPLY_TYPE_OFFSET_DATA
	chunkHole        = 2         // NBD_REPLY_TYPE_OFFSET_HOLE
	chunkStatus      = 5         // NBD_REPLY_TYPE_BLOCK_STATUS
	chunkError       = 1<<15 | 1 // NBD_REPLY_TYPE_ERROR
	chunkErrorOffset = 1<<15 | 2 // NBD_REPLY_TYPE_ERROR_OFFSET
)

// The only context, and the state of an extent in it.
const (
	contextAllocation = "base:allocation"
	contextID         = 1     // ID of the context; any number
	stateHole         = 1 | 2 // NBD_STATE_HOLE, NBD_STATE_ZERO
)

// Errors of the replies that the server sends.
const (
	errPerm  = 1  // NBD_EPERM
	errIO    = 5  // NBD_EIO
	errInval = 22 // NBD_EINVAL
	errNoSpc = 28 // NBD_ENOSPC
)

const (
	maxRead   = 32 << 20 // largest read in bytes; clients that do not request the limit of the server use this one
	maxServed = 16 << 20 // largest write in bytes, and largest read that has one piece; the server announces it
	maxString = 4096     // longest string in bytes, such as a name or a message
)
