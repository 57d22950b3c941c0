package initramfs

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/ulikunitz/xz/lzma"
)

const xzMagic = "\xfd7zXZ\x00"

// An xzStream reads one stream of the .xz format, version 1.2.0. Only the one filter that
// initramfs are made with is known, and its memory is bounded before it is taken, which is
// why the container is read here. Checks are skipped: nothing here depends on contents.
type xzStream struct {
	tools   *tools
	r       *counted
	check   int64 // bytes behind each block
	inBlock bool
	start   int64 // byte at which the block's data begins
	err     error
}

// counted counts the bytes read, for the padding.
type counted struct {
	r *bufio.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

func (c *counted) ReadByte() (byte, error) {
	b, err := c.r.ReadByte()
	if err == nil {
		c.n++
	}
	return b, err
}

func (c *counted) skip(n int64) error {
	got, err := c.r.Discard(int(n))
	c.n += int64(got)
	return err
}

func (t *tools) openXZ(r *bufio.Reader) (io.Reader, error) {
	h := make([]byte, 12)
	if _, err := io.ReadFull(r, h); err != nil {
		return nil, err
	}
	x := &xzStream{tools: t, r: &counted{r: r, n: 12}}
	switch h[7] {
	case 0:
	case 1:
		x.check = 4
	case 4:
		x.check = 8
	case 10:
		x.check = 32
	default:
		return nil, fmt.Errorf("check %d is not understood", h[7])
	}
	return x, nil
}

func (x *xzStream) Read(p []byte) (int, error) {
	for x.err == nil {
		if x.err = x.tools.budget.Step(1); x.err != nil {
			break
		}
		if !x.inBlock {
			x.err = x.next()
			continue
		}
		n, err := x.tools.lzma2.Read(p)
		if errors.Is(err, io.EOF) {
			x.inBlock = false
			err = x.r.skip(pad(x.r.n-x.start) + x.check)
		}
		x.err = err
		if n > 0 {
			return n, nil
		}
	}
	return 0, x.err
}

// next reads the header of a block, or the index, behind which the stream ends.
func (x *xzStream) next() error {
	first, err := x.r.ReadByte()
	if err != nil {
		return io.ErrUnexpectedEOF
	}
	if first == 0 {
		return cmpErr(x.index(), io.EOF)
	}
	h := make([]byte, 4*(int(first)+1)-1)
	if _, err := io.ReadFull(x.r, h); err != nil {
		return fmt.Errorf("a block that is cut short: %w", err)
	}
	size, err := xzDict(h[:len(h)-4])
	if err != nil {
		return err
	}
	x.start, x.inBlock = x.r.n, true
	return x.tools.block(x.r, size)
}

// xzDict returns how many bytes a block's decoder looks back.
func xzDict(h []byte) (int, error) {
	flags := h[0]
	h = h[1:]
	for _, bit := range []byte{0x40, 0x80} { // two sizes that are there if wanted
		if flags&bit != 0 {
			_, n := binary.Uvarint(h)
			if n <= 0 {
				return 0, errors.New("a block's size without an end")
			}
			h = h[n:]
		}
	}
	const lzma2 = 0x21
	if flags&0x3 != 0 || len(h) < 3 || h[0] != lzma2 || h[1] != 1 {
		return 0, errors.New("filters other than LZMA2 are not understood")
	}
	size, err := lzma.DecodeDictCap(h[2])
	if err != nil || size > maxDict {
		return 0, fmt.Errorf("a dictionary of %d bytes: %w", size, cmpErr(err, fmt.Errorf("%d are allowed", maxDict)))
	}
	return int(size), nil
}

// index skips the list of blocks, whose first byte was read, and the footer.
func (x *xzStream) index() error {
	start := x.r.n - 1
	records, err := binary.ReadUvarint(x.r)
	if err != nil {
		return err
	}
	for range min(records, 1<<20) {
		if err := x.tools.budget.Step(1); err != nil {
			return err
		}
		for range 2 {
			if _, err := binary.ReadUvarint(x.r); err != nil {
				return err
			}
		}
	}
	const crc, footer = 4, 12
	return x.r.skip(pad(x.r.n-start) + crc + footer)
}
