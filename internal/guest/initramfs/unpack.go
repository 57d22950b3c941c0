package initramfs

import (
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
	"github.com/ulikunitz/xz/lzma"
)

// maxWindow bounds the memory that a decompressor takes, in bytes. Archives of distributions
// have windows of 128 MiB at most.
const maxWindow = 128 << 20

// A format is a way to compress, told by how it begins.
type format struct {
	magic string
	open  func(in *bytes.Reader) (io.ReadCloser, error)
	exact bool // it ends reading where it ends
}

// formats are those that kernels unpack, by what they begin with.
func formats() []format {
	return []format{
		{"\x1f\x8b", openGzip, true},
		{"\xfd7zXZ\x00", openXZ, false},
		{"\x28\xb5\x2f\xfd", openZstd, false},
		{"\x02\x21\x4c\x18", openLZ4, false},
		{"BZh", openBzip2, false},
		{"\x5d\x00\x00", openLZMA, false},
	}
}

// unpack returns what is packed at in, and whether in will be at its end after it was read.
func unpack(in *bytes.Reader, magic []byte) (r io.ReadCloser, exact bool, err error) {
	for _, f := range formats() {
		if bytes.HasPrefix(magic, []byte(f.magic)) {
			r, err = f.open(in)
			return r, f.exact, err
		}
	}
	return nil, false, fmt.Errorf("compressed in a way that is not known: begins % x", magic)
}

// Unpack returns what is packed in data, limit bytes at most: a kernel's module, by xz, zstd
// or gzip. What is not packed is returned as it is.
func Unpack(data []byte, limit int64) ([]byte, error) {
	magic := data[:min(6, len(data))]
	if bytes.HasPrefix(magic, []byte("\x7fELF")) {
		return data, nil
	}
	r, _, err := unpack(bytes.NewReader(data), magic)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	out, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(out)) > limit {
		err = fmt.Errorf("more than %d bytes unpacked", limit)
	}
	return out, err
}

func openGzip(in *bytes.Reader) (io.ReadCloser, error) {
	z, err := gzip.NewReader(in)
	if err == nil {
		z.Multistream(false)
	}
	return z, err
}

func openXZ(in *bytes.Reader) (io.ReadCloser, error) {
	header := make([]byte, 64)
	n, _ := in.ReadAt(header, in.Size()-int64(in.Len()))
	if window := xzWindow(header[:n]); window > maxWindow {
		return nil, fmt.Errorf("an xz window of %d bytes", window)
	}
	z, err := xz.ReaderConfig{DictCap: 1 << 16, SingleStream: true}.NewReader(in)
	if err != nil {
		return nil, err
	}
	return io.NopCloser(z), nil
}

// xzWindow returns the window that the first block of a stream asks for: the decompressor
// would allocate it. The block's header, after the 12 bytes of the stream's, is its length, flags,
// sizes as flags say, then filters; LZMA2's number is 0x21, and its window 2 or 3 times a
// power of two.
func xzWindow(stream []byte) int64 {
	if len(stream) < 14 {
		return 0
	}
	rest := stream[14:]
	for flags := stream[13] & 0xc0; flags != 0; flags &= flags - 1 {
		for len(rest) > 0 && rest[0]&0x80 != 0 {
			rest = rest[1:]
		}
		rest = rest[min(1, len(rest)):]
	}
	if len(rest) < 3 || rest[0] != 0x21 {
		return 0 // refused by the decompressor
	}
	bits := min(rest[2], 40)
	return int64(2|bits&1) << (bits/2 + 11)
}

func openZstd(in *bytes.Reader) (io.ReadCloser, error) {
	z, err := zstd.NewReader(in, zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	return z.IOReadCloser(), nil
}

func openBzip2(in *bytes.Reader) (io.ReadCloser, error) {
	return io.NopCloser(bzip2.NewReader(in)), nil
}

func openLZMA(in *bytes.Reader) (io.ReadCloser, error) {
	header := make([]byte, 5)
	if n, _ := in.ReadAt(header, in.Size()-int64(in.Len())); n < 5 || binary.LittleEndian.Uint32(header[1:]) > maxWindow {
		return nil, fmt.Errorf("an LZMA window of more than %d bytes", maxWindow)
	}
	z, err := lzma.NewReader(in)
	if err != nil {
		return nil, err
	}
	return io.NopCloser(z), nil
}
