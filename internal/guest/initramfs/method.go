package initramfs

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz/lzma"
)

const (
	maxWindow = 128 << 20 // bytes zstd may look back: what --ultra -22 asks for
	maxDict   = 64 << 20  // bytes xz and lzma may look back: what -9 asks for
)

// A method is one way to compress. What open returns ends where the compressed data ends,
// and takes no byte more of r: another archive may follow.
type method struct {
	name  string
	magic string
	open  func(r *bufio.Reader) (plain io.Reader, closing func(), err error)
}

func methods() []method {
	return []method{
		{"gzip", "\x1f\x8b", openGzip},
		{"zstd", zstdMagic, openZstd},
		{"xz", xzMagic, openXZ},
		{"lz4", lz4Magic, openLZ4},
		{"lzma", "\x5d\x00\x00", openLZMA},
		{"bzip2", "BZh", nil},
		{"lzo", "\x89LZO", nil},
	}
}

func methodOf(head []byte) (method, error) {
	for _, m := range methods() {
		if !strings.HasPrefix(string(head), m.magic) {
			continue
		}
		if m.open == nil {
			return method{}, fmt.Errorf("archives compressed with %s are not understood", m.name)
		}
		return m, nil
	}
	return method{}, fmt.Errorf("an archive that begins with % x", head)
}

func openGzip(r *bufio.Reader) (io.Reader, func(), error) {
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, nil, err
	}
	z.Multistream(false)
	return z, func() {}, nil
}

func openZstd(r *bufio.Reader) (io.Reader, func(), error) {
	z, err := zstd.NewReader(&frame{r: r}, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, nil, err
	}
	return z, z.Close, nil
}

// openLZMA reads the format of lzma_alone, which xz writes with --format=lzma.
func openLZMA(r *bufio.Reader) (io.Reader, func(), error) {
	z, err := lzma.ReaderConfig{DictCap: maxDict}.NewReader(r)
	return z, func() {}, err
}
