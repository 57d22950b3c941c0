package convert

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/decamp/decamp/internal/guest/initramfs"
)

// mark is the end of appended data: an unpacked archive with one file that contains the original size
// of the initramfs. It shows a later run which data is present already, also after archives whose end
// only their decompressor can find.
func mark(before int) []byte {
	var w initramfs.Writer
	w.File("decamp-appended", fmt.Appendf(nil, "after byte %020d\n", before))
	return w.Bytes()
}

// parts cuts an initramfs where it was appended to.
func parts(data []byte) (out [][]byte) {
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

// markedAt returns where data ended before it was appended to, or -1.
func markedAt(data []byte) int {
	length := len(mark(0))
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
	if !bytes.Equal(end, mark(before)) {
		return -1
	}
	return before
}

// appended is what goes to the end of an initramfs of that size: the packed archive, between
// zeros that decompressors and alignment need, and the mark.
func appended(size int, packed []byte) []byte {
	out := make([]byte, 4+-size&3)
	out = append(out, packed...)
	out = append(out, make([]byte, -len(packed)&3)...)
	return append(out, mark(size)...)
}
