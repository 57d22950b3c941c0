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

// maxDict bounds the bytes that a decompressor looks back: what xz -9 and lzma -9 need.
const maxDict = 64 << 20

// A method is one way to compress. What open returns ends where the compressed data ends,
// and takes no byte more of r: another archive may follow.
type method struct {
	name  string
	magic string
	open  func(t *tools, r *bufio.Reader) (plain io.Reader, err error)
}

func methods() []method {
	return []method{
		{"gzip", "\x1f\x8b", (*tools).openGzip},
		{"zstd", zstdMagic, (*tools).openZstd},
		{"xz", xzMagic, (*tools).openXZ},
		{"lz4", lz4Magic, (*tools).openLZ4},
		{"lzma", "\x5d\x00\x00", (*tools).openLZMA},
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

// tools are decompressors that are used for one archive after the other. A second archive of a
// method takes no memory again.
type tools struct {
	budget *budget.Budget
	held   int64 // bytes charged, which close releases

	gzip   *gzip.Reader
	zstd   *zstd.Decoder
	window int64 // bytes charged for zstd
	lzma2  *lzma2
	lz4    *lz4Legacy
}

func (t *tools) hold(n int64) error {
	err := t.budget.Hold(n)
	if err == nil {
		t.held += n
	}
	return err
}

// grow charges what a buffer of so many bytes takes beyond the one before it. The budget counts
// the former buffer as given up.
func (t *tools) grow(has *int64, to int64) error {
	if to <= *has {
		return nil
	}
	t.budget.Release(*has)
	t.held -= *has
	*has = 0
	err := t.hold(to)
	if err == nil {
		*has = to
	}
	return err
}

func (t *tools) close() {
	if t.zstd != nil {
		t.zstd.Close()
	}
	t.budget.Release(t.held)
}

func (t *tools) openGzip(r *bufio.Reader) (_ io.Reader, err error) {
	const state = 48 << 10
	if t.gzip == nil {
		if err = t.hold(state); err == nil {
			t.gzip, err = gzip.NewReader(r)
		}
	} else {
		err = t.gzip.Reset(r)
	}
	if err != nil {
		return nil, err
	}
	t.gzip.Multistream(false)
	return t.gzip, nil
}

func (t *tools) openZstd(r *bufio.Reader) (io.Reader, error) {
	f := &frame{r: r}
	window, err := f.window()
	if err != nil {
		return nil, err
	}
	if err := t.grow(&t.window, window); err != nil {
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

// openLZMA reads the format of lzma_alone, which xz writes with --format=lzma.
func (t *tools) openLZMA(r *bufio.Reader) (io.Reader, error) {
	head, err := r.Peek(lzma.HeaderLen)
	if err != nil {
		return nil, fmt.Errorf("a header that is cut short: %w", err)
	}
	dict := min(int64(binary.LittleEndian.Uint32(head[1:])), maxDict)
	if size := int64(binary.LittleEndian.Uint64(head[5:])); size >= 0 {
		dict = min(dict, size)
	}
	if err := t.hold(dict); err != nil { // each archive gets a separate dictionary
		return nil, err
	}
	return lzma.ReaderConfig{DictCap: maxDict}.NewReader(r)
}
