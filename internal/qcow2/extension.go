package qcow2

import "encoding/binary"

// Header extensions that a reader needs. Others may be ignored: required ones are incompatible
// features.
const (
	extensionEnd           = 0          // end of the extensions
	extensionBackingFormat = 0xe2792aca // name of the backing file's format
)

// backingRef is a header's reference to a backing file.
type backingRef struct {
	name   string // path or address as in the header
	format string // "raw", "qcow2" or another format; "" if the image does not contain it
}

// parseBacking returns name and format of the backing file. first is the first cluster of the image at
// p.
func (h *header) parseBacking(p filePath, first []byte) (backingRef, error) {
	end := h.backing + int64(h.backingLen)
	if end > int64(len(first)) {
		return backingRef{}, p.corrupt("the file ends before the name of its backing file")
	}
	format, err := findExtension(p, first[:h.backing], int64(h.length), extensionBackingFormat)
	return backingRef{name: string(first[h.backing:end]), format: string(format)}, err
}

// findExtension returns the content of the first extension of type want, or nil. The list
// begins at offset off of b and ends with b at the latest.
func findExtension(p filePath, b []byte, off int64, want uint32) ([]byte, error) {
	for off+8 <= int64(len(b)) {
		kind, n := binary.BigEndian.Uint32(b[off:]), int64(binary.BigEndian.Uint32(b[off+4:]))
		if kind == extensionEnd {
			return nil, nil
		}
		body := off + 8
		if n > int64(len(b))-body {
			return nil, p.corrupt("its header extension %#x at %#x has %d bytes, more than there is room for", kind, off, n)
		}
		if kind == want {
			return b[body : body+n], nil
		}
		off = body + ceilDiv(n, 8)*8
	}
	return nil, nil
}
