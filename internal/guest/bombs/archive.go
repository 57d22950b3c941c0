package bombs

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/ulikunitz/xz/lzma"
)

// cpio returns an archive that declares one file of size bytes, without its content and without a
// trailer.
func cpio(name string, size uint32) []byte {
	h := fmt.Appendf(nil, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00", 1, 0o100644, 0, 0, 1, 0, size, 0, 0, 0, 0, len(name)+1, 0, name)
	return append(h, make([]byte, -len(h)&3)...)
}

// whole is an archive of one empty file.
func whole(name string) []byte { return append(cpio(name, 0), cpio("TRAILER!!!", 0)...) }

// xz packs plain, without compressing it, for a dictionary of 64 MiB.
func xz(plain []byte) []byte {
	out := []byte("\xfd7zXZ\x00\x00\x00....")
	out = append(out, xzBlock(plain)...)
	out = append(out, 0, 0, 0, 0, 0, 0, 0, 0) // an index of no records
	return append(out, make([]byte, 12)...)   // its footer
}

// xzBlock is one block; checksums are left out.
func xzBlock(plain []byte) []byte {
	const dict64MiB = 28
	out := []byte{2, 0, 0x21, 1, dict64MiB, 0, 0, 0, 0, 0, 0, 0}
	if n := len(plain) - 1; n >= 0 {
		out = append(append(out, 1, byte(n>>8), byte(n)), plain...)
	}
	out = append(out, 0)
	return append(out, make([]byte, -len(out)&3)...)
}

// lzmaAlone compresses plain with a dictionary of 64 MiB in the header.
func lzmaAlone(plain []byte) []byte {
	var out bytes.Buffer
	w, err := lzma.WriterConfig{DictCap: 1 << 16, EOSMarker: true}.NewWriter(&out)
	if err == nil {
		_, err = w.Write(plain)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		panic(err) // a buffer takes everything
	}
	le32(out.Bytes(), 1, 64<<20)
	return out.Bytes()
}

// zstd compresses a file of equal bytes, 128 KiB in each block of 4, with a window of 128 MiB in the
// header.
func zstd(size int) []byte {
	out := []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 17 << 3}
	block := func(kind, length int, last bool, data ...byte) {
		v := length<<3 | kind<<1
		if last {
			v |= 1
		}
		out = append(append(out, byte(v), byte(v>>8), byte(v>>16)), data...)
	}
	head := cpio("large", uint32(size))
	block(0, len(head), false, head...)
	for ; size > 128<<10; size -= 128 << 10 {
		block(1, 128<<10, false, 'x')
	}
	block(1, size, true, 'x')
	return out
}

// zstdOf packs plain, without compressing it, for a window of 128 MiB.
func zstdOf(plain []byte) []byte {
	v := len(plain)<<3 | 1
	return append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0, 17 << 3, byte(v), byte(v >> 8), byte(v >> 16)}, plain...)
}

// lz4 packs plain as literals.
func lz4(plain []byte) []byte {
	var packed []byte
	if n := len(plain); n < 15 {
		packed = []byte{byte(n << 4)}
	} else {
		packed = []byte{0xf0}
		for n -= 15; n >= 255; n -= 255 {
			packed = append(packed, 255)
		}
		packed = append(packed, byte(n))
	}
	packed = append(packed, plain...)
	out := binary.LittleEndian.AppendUint32([]byte("\x02\x21\x4c\x18"), uint32(len(packed)))
	return append(append(out, packed...), 0, 0, 0, 0)
}

// gz packs an archive of a file of zeros.
func gz(size int) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(cpio("large", uint32(size)))
	zeros := make([]byte, 1<<20)
	for ; err == nil && size > 0; size -= len(zeros) {
		_, err = w.Write(zeros[:min(size, len(zeros))])
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		panic(err) // a buffer takes everything
	}
	return out.Bytes()
}

func repeat(b []byte, n int) string { return strings.Repeat(string(b), n) }
