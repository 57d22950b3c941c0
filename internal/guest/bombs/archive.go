package bombs

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/ulikunitz/xz/lzma"
)

// cpioEntry returns the header of a newc archive for one file of size bytes. The content and the
// trailer are missing, so a reader must not trust the size.
func cpioEntry(name string, size uint32) []byte {
	// Magic, inode, mode, owner, group, links, time, size, four device numbers, length of the name, check.
	h := fmt.Appendf(nil, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00", 1, 0o100644, 0, 0, 1, 0, size, 0, 0, 0, 0, len(name)+1, 0, name)
	return append(h, make([]byte, -len(h)&3)...)
}

// cpioArchive returns a complete archive with one empty file.
func cpioArchive(name string) []byte {
	return append(cpioEntry(name, 0), cpioEntry("TRAILER!!!", 0)...)
}

// xzArchive packs plain into one xz stream without compression. The stream requires a dictionary of
// 64 MiB.
func xzArchive(plain []byte) []byte {
	// Stream header without checks; its CRC is not verified.
	out := []byte("\xfd7zXZ\x00\x00\x00....")
	out = append(out, xzBlock(plain)...)
	out = append(out, 0, 0, 0, 0, 0, 0, 0, 0) // an index of no records
	return append(out, make([]byte, 12)...)   // its footer
}

// xzBlock returns one block of an xz stream. It has no checksum, because the readers do not verify it.
func xzBlock(plain []byte) []byte {
	const dict64MiB = 28
	// Header of 12 bytes with one filter, LZMA2; then an uncompressed chunk that resets the dictionary.
	out := []byte{2, 0, 0x21, 1, dict64MiB, 0, 0, 0, 0, 0, 0, 0}
	if n := len(plain) - 1; n >= 0 {
		out = append(append(out, 1, byte(n>>8), byte(n)), plain...)
	}
	out = append(out, 0)
	return append(out, make([]byte, -len(out)&3)...)
}

// lzmaAlone compresses plain in the format of lzma_alone. The header requires a dictionary of 64 MiB.
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
		panic(err) // writes to a buffer do not fail
	}
	// Bytes 1 to 4 of the header are the size of the dictionary.
	le32(out.Bytes(), 1, 64<<20)
	return out.Bytes()
}

// zstdBomb returns an archive with one file of size equal bytes. Each block of 4 bytes expands to
// 128 KiB, and the header requires a window of 128 MiB.
func zstdBomb(size int) []byte {
	// Magic, frame descriptor without a content size, window descriptor: 1 << (10 + 17) bytes.
	out := []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 17 << 3}
	block := func(kind, length int, last bool, data ...byte) {
		// Block header of 24 bits: last block, type (0 raw, 1 RLE), size.
		v := length<<3 | kind<<1
		if last {
			v |= 1
		}
		out = append(append(out, byte(v), byte(v>>8), byte(v>>16)), data...)
	}
	head := cpioEntry("large", uint32(size))
	block(0, len(head), false, head...)
	for ; size > 128<<10; size -= 128 << 10 {
		block(1, 128<<10, false, 'x')
	}
	block(1, size, true, 'x')
	return out
}

// zstdArchive packs plain into one zstd frame without compression. The header requires a window of 128
// MiB.
func zstdArchive(plain []byte) []byte {
	v := len(plain)<<3 | 1
	return append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0, 17 << 3, byte(v), byte(v >> 8), byte(v >> 16)}, plain...)
}

// lz4Archive packs plain as literals in the legacy format of LZ4.
func lz4Archive(plain []byte) []byte {
	// Token: number of literals in the upper four bits; 15 means that more bytes follow.
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

// gzipBomb compresses an archive with one file of size zeros, a multiple of 1 MiB.
func gzipBomb(size int) []byte {
	head, zeros := cpioEntry("large", uint32(size)), make([]byte, 1<<20)
	out := bytes.NewBuffer([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff})
	w, err := flate.NewWriter(out, flate.DefaultCompression)
	sum := crc32.ChecksumIEEE(head)
	_, write := w.Write(head)
	err = errors.Join(err, write)
	last := 0 // begin of the last MiB in out
	for range 2 {
		last = out.Len()
		_, write := w.Write(zeros)
		err = errors.Join(err, write, w.Flush())
	}
	// After zeros, each MiB of zeros is compressed into the same bytes.
	again := bytes.Clone(out.Bytes()[last:])
	for done := 0; done < size; done += len(zeros) {
		sum = crc32.Update(sum, crc32.IEEETable, zeros)
		if done >= 2*len(zeros) {
			out.Write(again)
		}
	}
	if err = errors.Join(err, w.Close()); err != nil {
		panic(err) // writes to a buffer do not fail
	}
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(out.Bytes(), sum), uint32(len(head)+size))
}

// repeatBytes returns n copies of b as a string, the form of initramfsBomb.
func repeatBytes(b []byte, n int) string { return strings.Repeat(string(b), n) }
