package nfc

import (
	"slices"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

const (
	magic      = 0xA100DA7A
	headerSize = 16

	// longestPayload bounds what the host may announce: replies have 16 to 60 bytes.
	longestPayload = 1 << 10
)

// Types of AIO frames.
const (
	frameError       = 1
	frameOpenSession = 2
	frameCloseAll    = 3 // the session
	frameOpenFile    = 4
	frameCloseFile   = 5
	frameIO          = 7
	frameSockOpts    = 9
	frameAllocated   = 13
	frameResPool     = 22
)

// header begins every AIO frame. size is that of the payload; a trailer may follow it
// whose length the payload says.
type header struct {
	kind, size, id uint32
}

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

// encodeFrame returns a request as it is written, in one piece.
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
	openSize  = 60
	fileDisk  = 2    // type of file
	readOnly  = 0x1e // flags
	leastOpen = 52   // of a reply: what follows is not known
)

// openFileRequest asks for a disk by its descriptor's datastore path.
func openFileRequest(path string) (payload, trailer []byte) {
	p := encodeWords(uint32(len(path)), 0, 0, 0, fileDisk, readOnly)
	return append(p, make([]byte, openSize-len(p))...), []byte(path)
}

// opened is what the host says of an open disk.
type openedDisk struct {
	handle   uint64
	capacity int64
}

// parseOpened reads the reply to openFileRequest.
func parseOpened(p []byte) (o openedDisk, err error) {
	if len(p) < leastOpen {
		return o, badAnswer("an open disk is told in %d bytes", len(p))
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
	sectorSize   = disk.SectorSize
	mostCapacity = 1 << 50 // 1 PiB; VMDKs end at 62 TiB
)

// ioSize is the payload of a read request and of each of its replies.
const (
	ioSize = 44
	ioRead = 1
)

// readRequest asks for n bytes at off.
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

// badAnswer is an answer that cannot be. Nothing of it is used, and the connection is
// not trusted any more.
func badAnswer(format string, args ...any) error {
	return fault.New(fault.Corrupt, "answer of the host: "+format, args...).
		WithHint("something between here and the host changes answers, or the host speaks another NFC; use --transport https")
}
