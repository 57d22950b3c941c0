package nfchost

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// AIO messages: a header, a payload of the size it names, and a trailer whose length the
// payload names. Everything is little-endian.
const (
	aioMagic   = 0xA100DA7A // first word of every message
	headerSize = 16         // size of the header in bytes

	aioError        = 1  // ERROR record
	aioOpenSession  = 2  // OPEN_SESSION: negotiate buffers
	aioCloseSession = 3  // CLOSE_SESSION
	aioOpenFile     = 4  // OPEN_FILE: open a disk
	aioCloseFile    = 5  // CLOSE_FILE
	aioIO           = 7  // IO: read
	aioSockOpts     = 9  // socket buffers
	aioEntry        = 11 // DDB_GET: entry of the disk database
	aioMap          = 13 // QUERY_ALLOCATED_BLOCKS
	aioResPool      = 22 // resource pool; answered with zeros

	errorSize    = 16 // payload of an ERROR record in bytes
	openFileSize = 60 // payload of OPEN_FILE in bytes
	ioSize       = 44 // payload of IO in bytes
	mapSize      = 48 // payload of QUERY_ALLOCATED_BLOCKS in bytes

	maxPath = 4096 // longest path in bytes
	maxKey  = 256  // longest key of the disk database in bytes
)

var (
	errMagic   = errors.New("not an AIO message")      // a header without the magic
	errPayload = errors.New("payload of a wrong size") // a payload size that the request must not have
	errTrailer = errors.New("trailer too long")        // a trailer beyond the limit
)

// payloadSizes lists the allowed payload sizes of each request.
var payloadSizes = map[uint32][]int{
	aioOpenSession: {16}, aioCloseSession: {4, 16}, aioOpenFile: {openFileSize}, aioCloseFile: {8, 16}, aioIO: {ioSize},
	aioSockOpts: {12}, aioEntry: {16}, aioMap: {mapSize}, aioResPool: {4},
}

// operations maps requests to the names in Op.
var operations = map[uint32]string{
	aioOpenSession: OpOpenSession, aioCloseSession: OpCloseSession, aioOpenFile: OpOpenFile, aioCloseFile: OpCloseFile,
	aioIO: OpRead, aioEntry: OpEntry, aioMap: OpMap,
}

// A request is an AIO request.
type request struct {
	kind    uint32    // type of the request
	opID    uint32    // number that the client chose; the reply repeats it
	payload []byte    // fixed part, of an allowed size
	trailer string    // path or key; empty for other requests
	ready   time.Time // earliest time of the reply to a read
	memory  int64     // NFC memory reserved for a read, released with its reply
	refused *Refusal  // refusal that was decided at the arrival; nil otherwise
}

// u32 returns the word at an offset of the payload.
func (q *request) u32(at int) uint32 { return binary.LittleEndian.Uint32(q.payload[at:]) }

// u64 returns the double word at an offset of the payload.
func (q *request) u64(at int) uint64 { return binary.LittleEndian.Uint64(q.payload[at:]) }

// readRequest reads one request. The reaction of hosts to malformed requests is not known; here they
// end the connection.
func (s *stream) readRequest() (*request, error) {
	head, err := s.startMessage(headerSize)
	if err != nil {
		return nil, err
	}
	if binary.LittleEndian.Uint32(head) != aioMagic {
		return nil, errMagic
	}
	q := &request{kind: binary.LittleEndian.Uint32(head[4:]), opID: binary.LittleEndian.Uint32(head[12:])}
	size := int(binary.LittleEndian.Uint32(head[8:])) // the kind limits it below
	if !sizeAllowed(q.kind, size) {
		return nil, fmt.Errorf("request %d with %d bytes: %w", q.kind, size, errPayload)
	}
	p, err := s.readRest(size)
	if err != nil {
		return nil, err
	}
	q.payload = append(q.payload, p...)
	n, limit := q.trailerSize()
	if n > limit {
		return nil, fmt.Errorf("request %d: %w", q.kind, errTrailer)
	}
	p, err = s.readRest(n)
	q.trailer = string(p)
	return q, err
}

// sizeAllowed reports whether a request may have a payload of this size.
func sizeAllowed(kind uint32, size int) bool {
	for _, n := range payloadSizes[kind] {
		if n == size {
			return true
		}
	}
	return false
}

// trailerSize returns the length of the trailer according to the payload, and its limit.
func (q *request) trailerSize() (n, limit int) {
	switch q.kind {
	case aioOpenFile:
		return int(q.u32(0)), maxPath
	case aioEntry:
		return int(q.u32(8)), maxKey
	}
	return 0, 0
}

// appendHeader appends the header of a message with a payload of size bytes.
func appendHeader(p []byte, kind uint32, size int, opID uint32) []byte {
	p = binary.LittleEndian.AppendUint32(p, aioMagic)
	p = binary.LittleEndian.AppendUint32(p, kind)
	p = binary.LittleEndian.AppendUint32(p, uint32(size))
	return binary.LittleEndian.AppendUint32(p, opID)
}
