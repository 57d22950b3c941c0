package convert

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/decamp/decamp/internal/guest/initramfs"
)

// appendMark returns the end of appended data: an uncompressed archive with one file that contains the
// original size of the initramfs. A later run finds appended data by it, even after archives whose end
// only their decompressor can find.
func appendMark(before int) []byte {
	var w initramfs.Writer
	w.File("decamp-appended", fmt.Appendf(nil, "after byte %020d\n", before))
	return w.Bytes()
}

// splitAppended splits an initramfs into the original and the appended parts.
func splitAppended(data []byte) (out [][]byte) {
	for {
		before := markedAt(data)
		if before < 0 {
			out = append(out, data)
			slices.Reverse(out)
			return out
		}
		out = append(out, data[before:])
		data = data[:before]
	}
}

// markedAt returns the size of the initramfs before the last addition; -1 if there is no mark.
func markedAt(data []byte) int {
	// The number has a fixed width, so all marks have the same length.
	length := len(appendMark(0))
	if len(data) < length {
		return -1
	}
	end := data[len(data)-length:]
	var before int
	at := bytes.Index(end, []byte("after byte "))
	if at < 0 {
		return -1
	}
	if _, err := fmt.Sscanf(string(end[at:]), "after byte %d\n", &before); err != nil || before < 0 || before >= len(data)-length {
		return -1
	}
	if !bytes.Equal(end, appendMark(before)) {
		return -1
	}
	return before
}

// appendedData returns the data to append to an initramfs of size bytes: the compressed archive between
// zeros, which decompressors and the alignment require, and the mark.
func appendedData(size int, packed []byte) []byte {
	// At least four zeros end the compressed data before; cpio archives begin at a multiple of four.
	out := make([]byte, 4+-size&3)
	out = append(out, packed...)
	out = append(out, make([]byte, -len(packed)&3)...)
	return append(out, appendMark(size)...)
}
