package nfc

import (
	"slices"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

const (
	magic      = 0xA100DA7A // first word of each frame
	headerSize = 16         // bytes before the payload

	// longestPayload bounds the payload that a host may announce, in bytes; replies have 16 to 60.
	longestPayload = 1 << 10
)

// Types of AIO frames.
const (
	frameError       = 1  // reply: the host refuses a request
	frameOpenSession = 2  // opens the session, with its buffers
	frameCloseAll    = 3  // closes the session
	frameOpenFile    = 4  // opens a disk
	frameCloseFile   = 5  // closes a disk
	frameIO          = 7  // reads a range
	frameSockOpts    = 9  // sets socket options
	frameAllocated   = 13 // requests the allocation map
	frameResPool     = 22 // selects a resource pool
)

// header starts every AIO frame. A trailer may follow the payload, which contains the trailer's length.
type header struct {
	kind, size, id uint32 // frame type, bytes of the payload, and number of the request
}

// parseHeader parses a header of headerSize bytes. It fails for another magic or a payload above
// longestPayload.
func parseHeader(b []byte) (h header, err error) {
	if m := le.Uint32(b); m != magic {
		return h, badAnswer("a frame begins with %08x", m)
	}
	h = header{le.Uint32(b[4:]), le.Uint32(b[8:]), le.Uint32(b[12:])}
	if h.size > longestPayload {
		return h, badAnswer("a frame of type %d announces %d bytes", h.kind, h.size)
	}
	return h, nil
}

// encodeFrame returns a request in one slice, so that it is sent with one write.
func encodeFrame(kind, id uint32, payload, trailer []byte) []byte {
	b := make([]byte, headerSize, headerSize+len(payload)+len(trailer))
	le.PutUint32(b, magic)
	le.PutUint32(b[4:], kind)
	le.PutUint32(b[8:], uint32(len(payload)))
	le.PutUint32(b[12:], id)
	return append(append(b, payload...), trailer...)
}

// encodeWords returns a payload of 32-bit words.
func encodeWords(w ...uint32) []byte {
	b := make([]byte, 0, 4*len(w))
	for _, v := range w {
		b = le.AppendUint32(b, v)
	}
	return b
}

// encodeLongs returns a payload of 64-bit words.
func encodeLongs(w ...uint64) []byte {
	b := make([]byte, 0, 8*len(w))
	for _, v := range w {
		b = le.AppendUint64(b, v)
	}
	return b
}

const (
	openSize  = 60   // bytes of the request without the path
	fileDisk  = 2    // file type of a disk
	readOnly  = 0x1e // flags of a disk that is only read
	leastOpen = 52   // bytes of the reply that are understood; hosts may send more
)

// openFileRequest returns the request to open a disk. path is the datastore path of its descriptor.
func openFileRequest(path string) (payload, trailer []byte) {
	p := encodeWords(uint32(len(path)), 0, 0, 0, fileDisk, readOnly)
	return append(p, make([]byte, openSize-len(p))...), []byte(path)
}

// openedDisk is the host's description of an open disk.
type openedDisk struct {
	handle   uint64 // number of the file in further requests
	capacity int64  // size in bytes
}

// parseOpened parses the reply to openFileRequest. It fails for another file type or other sectors than
// 512 bytes.
func parseOpened(p []byte) (o openedDisk, err error) {
	if len(p) < leastOpen {
		return o, badAnswer("the reply to the opening of a disk has %d bytes", len(p))
	}
	if status := le.Uint64(p); status != 0 {
		return o, refusedOpen(&Refusal{Code: status})
	}
	if kind := le.Uint32(p[16:]); kind != fileDisk {
		return o, badAnswer("a file of type %d was opened, not a disk", kind)
	}
	capacity, sector := le.Uint64(p[28:]), le.Uint32(p[36:])
	switch {
	case sector != 0 && sector != sectorSize:
		return o, fault.New(fault.Unsupported, "the disk has sectors of %d bytes", sector).
			WithHint("decamp's NFC reads disks with sectors of 512 bytes; use --transport https")
	case capacity > mostCapacity || capacity%sectorSize != 0:
		return o, badAnswer("a disk of %d bytes was opened", capacity)
	}
	return openedDisk{le.Uint64(p[8:]), int64(capacity)}, nil
}

const (
	sectorSize   = disk.SectorSize // unit of all offsets and sizes, in bytes
	mostCapacity = 1 << 50         // largest disk that is accepted: 1 PiB. VMDKs end at 62 TiB.
)

// ioSize is the payload of a read request and of each of its replies.
const (
	ioSize = 44 // bytes of the payload
	ioRead = 1  // operation: read
)

// readRequest returns the request for n bytes at off of an open file.
func readRequest(handle uint64, off int64, n int, c Compression) []byte {
	p := slices.Grow(encodeLongs(handle), ioSize-8)
	p = le.AppendUint32(p, ioRead)
	p = le.AppendUint32(p, uint32(c))
	p = le.AppendUint64(p, uint64(off))
	p = le.AppendUint64(p, uint64(n))
	p = le.AppendUint32(p, uint32(n))
	p = le.AppendUint32(p, uint32(n))
	return le.AppendUint32(p, 0)
}

// badAnswer returns the fault for an invalid answer. None of its data is used, and the connection must
// not be used after it.
func badAnswer(format string, args ...any) error {
	return fault.New(fault.Corrupt, "answer of the host: "+format, args...).
		WithHint("something between here and the host changes answers, or the host speaks another NFC; use --transport https")
}
