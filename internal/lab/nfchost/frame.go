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
	aioMagic   = 0xA100DA7A
	headerSize = 16

	aioError        = 1
	aioOpenSession  = 2
	aioCloseSession = 3
	aioOpenFile     = 4
	aioCloseFile    = 5
	aioIO           = 7
	aioSockOpts     = 9
	aioEntry        = 11
	aioMap          = 13
	aioResPool      = 22

	errorSize    = 16
	openFileSize = 60
	ioSize       = 44
	mapSize      = 48

	maxPath = 4096
	maxKey  = 256
)

var (
	errMagic   = errors.New("not an AIO message")
	errPayload = errors.New("payload of a wrong size")
	errTrailer = errors.New("trailer too long")
)

// payloadSizes are those each request may have.
var payloadSizes = map[uint32][]int{
	aioOpenSession: {16}, aioCloseSession: {4, 16}, aioOpenFile: {openFileSize}, aioCloseFile: {8, 16}, aioIO: {ioSize},
	aioSockOpts: {12}, aioEntry: {16}, aioMap: {mapSize}, aioResPool: {4},
}

// operations are the names by which faults know the requests.
var operations = map[uint32]string{
	aioOpenSession: OpOpenSession, aioCloseSession: OpCloseSession, aioOpenFile: OpOpenFile, aioCloseFile: OpCloseFile,
	aioIO: OpRead, aioEntry: OpEntry, aioMap: OpMap,
}

// request is one AIO request.
type request struct {
	kind    uint32
	opID    uint32
	payload []byte
	trailer string
	ready   time.Time // the earliest moment of a read's reply
	memory  int64     // taken for a read, given back with its reply
	refused *Refusal  // decided when it came
}

func (q *request) u32(at int) uint32 { return binary.LittleEndian.Uint32(q.payload[at:]) }
func (q *request) u64(at int) uint64 { return binary.LittleEndian.Uint64(q.payload[at:]) }

// readRequest takes one request from the stream. What a host does with nonsense is not
// known; here the connection ends.
func (s *stream) readRequest() (*request, error) {
	head, err := s.startMessage(headerSize)
	if err != nil {
		return nil, err
	}
	if binary.LittleEndian.Uint32(head) != aioMagic {
		return nil, errMagic
	}
	q := &request{kind: binary.LittleEndian.Uint32(head[4:]), opID: binary.LittleEndian.Uint32(head[12:])}
	size := int(binary.LittleEndian.Uint32(head[8:]))
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

func sizeAllowed(kind uint32, size int) bool {
	for _, n := range payloadSizes[kind] {
		if n == size {
			return true
		}
	}
	return false
}

func (q *request) trailerSize() (n, limit int) {
	switch q.kind {
	case aioOpenFile:
		return int(q.u32(0)), maxPath
	case aioEntry:
		return int(q.u32(8)), maxKey
	}
	return 0, 0
}

// appendHeader begins a message.
func appendHeader(p []byte, kind uint32, size int, opID uint32) []byte {
	p = binary.LittleEndian.AppendUint32(p, aioMagic)
	p = binary.LittleEndian.AppendUint32(p, kind)
	p = binary.LittleEndian.AppendUint32(p, uint32(size))
	return binary.LittleEndian.AppendUint32(p, opID)
}
