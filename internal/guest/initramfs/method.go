package initramfs

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz/lzma"

	"github.com/decamp/decamp/internal/guest/budget"
)

// maxDict limits the dictionary or window of a decompressor, in bytes. It is sufficient for xz -9 and
// lzma -9.
const maxDict = 64 << 20

// A method is a compression format.
type method struct {
	name  string // name for reports: "zstd"
	magic string // first bytes of the compressed data
	// open returns a reader that ends with the compressed data and consumes no byte of r after it, because
	// another archive may follow. It is nil for formats that are recognized only.
	open func(t *decompressors, r *bufio.Reader) (plain io.Reader, err error)
}

// knownMethods returns the formats that kernels support.
func knownMethods() []method {
	return []method{
		{"gzip", "\x1f\x8b", (*decompressors).openGzip},
		{"zstd", zstdMagic, (*decompressors).openZstd},
		{"xz", xzMagic, (*decompressors).openXZ},
		{"lz4", lz4Magic, (*decompressors).openLZ4},
		{"lzma", "\x5d\x00\x00", (*decompressors).openLZMA},
		{"bzip2", "BZh", nil},
		{"lzo", "\x89LZO", nil},
	}
}

// methodOf returns the method by the first bytes of an archive. It fails if the method is not
// supported.
func methodOf(head []byte) (method, error) {
	for _, m := range knownMethods() {
		if !strings.HasPrefix(string(head), m.magic) {
			continue
		}
		if m.open == nil {
			return method{}, fmt.Errorf("archives compressed with %s are not supported", m.name)
		}
		return m, nil
	}
	return method{}, fmt.Errorf("an archive that begins with % x", head)
}

// decompressors contains one decompressor of each method. Archives use them one after the other, so
// a second archive of a method needs no further memory.
type decompressors struct {
	budget  *budget.Budget // budget that the memory is charged to
	charged int64          // bytes charged so far, which closeAll releases

	gzip   *gzip.Reader  // decoder; nil until the first archive of the method
	zstd   *zstd.Decoder // decoder; nil until the first archive of the method
	window int64         // bytes charged for the window of zstd
	lzma2  *lzma2        // decoder of xz; nil until the first archive
	lz4    *lz4Legacy    // decoder; nil until the first archive of the method
}

// charge charges n bytes that are in use until closeAll.
func (t *decompressors) charge(n int64) error {
	err := t.budget.Hold(n)
	if err == nil {
		t.charged += n
	}
	return err
}

// growBuffer charges a buffer of to bytes that replaces one of *has bytes, and updates *has. It
// does nothing if the buffer is large enough.
func (t *decompressors) growBuffer(has *int64, to int64) error {
	if to <= *has {
		return nil
	}
	t.budget.Release(*has)
	t.charged -= *has
	*has = 0
	err := t.charge(to)
	if err == nil {
		*has = to
	}
	return err
}

// closeAll frees the decompressors and releases their memory.
func (t *decompressors) closeAll() {
	if t.zstd != nil {
		t.zstd.Close()
	}
	t.budget.Release(t.charged)
}

// openGzip returns the reader for one gzip member.
func (t *decompressors) openGzip(r *bufio.Reader) (_ io.Reader, err error) {
	const state = 48 << 10
	if t.gzip == nil {
		if err = t.charge(state); err == nil {
			t.gzip, err = gzip.NewReader(r)
		}
	} else {
		err = t.gzip.Reset(r)
	}
	if err != nil {
		return nil, err
	}
	// Another archive may follow, which the decompressor must not consume.
	t.gzip.Multistream(false)
	return t.gzip, nil
}

// openZstd returns the reader for one zstd frame. It charges the window that the frame requires.
func (t *decompressors) openZstd(r *bufio.Reader) (io.Reader, error) {
	f := &zstdFrame{r: r}
	window, err := f.windowSize()
	if err != nil {
		return nil, err
	}
	if err := t.growBuffer(&t.window, window); err != nil {
		return nil, err
	}
	if t.zstd == nil {
		t.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxDict), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, err
		}
	}
	return t.zstd, t.zstd.Reset(f)
}

// openLZMA returns the reader for the format lzma_alone, which xz writes with --format=lzma.
func (t *decompressors) openLZMA(r *bufio.Reader) (io.Reader, error) {
	head, err := r.Peek(lzma.HeaderLen)
	if err != nil {
		return nil, fmt.Errorf("truncated header: %w", err)
	}
	dict := min(int64(binary.LittleEndian.Uint32(head[1:])), maxDict)
	// The decoder needs no larger dictionary than the content; -1 means an unknown size.
	if size := int64(binary.LittleEndian.Uint64(head[5:])); size >= 0 {
		dict = min(dict, size)
	}
	if err := t.charge(dict); err != nil { // each archive gets a separate dictionary
		return nil, err
	}
	return lzma.ReaderConfig{DictCap: maxDict}.NewReader(r)
}
