package initramfs

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/ulikunitz/xz/lzma"
)

// first bytes of a stream
const xzMagic = "\xfd7zXZ\x00"

// An xzStream reads one stream of the .xz format, version 1.2.0. It supports only LZMA2, the filter
// of initramfs. The container is parsed here so that the memory is limited before it is allocated.
// Checksums are skipped, because no result depends on intact content.
type xzStream struct {
	tools     *decompressors  // owner of the LZMA2 decoder
	r         *countingReader // input
	checkSize int64           // bytes of the checksum after each block
	inBlock   bool            // a block is being read
	start     int64           // position of the block's first byte
	err       error           // first error, or io.EOF at the end of the stream
}

// A countingReader counts the bytes read, for the padding of blocks.
type countingReader struct {
	r *bufio.Reader // source
	n int64         // position in the stream
}

// Read implements io.Reader.
func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// ReadByte implements io.ByteReader.
func (c *countingReader) ReadByte() (byte, error) {
	b, err := c.r.ReadByte()
	if err == nil {
		c.n++
	}
	return b, err
}

// skipBytes skips n bytes.
func (c *countingReader) skipBytes(n int64) error {
	got, err := c.r.Discard(int(n))
	c.n += int64(got)
	return err
}

// openXZ reads the stream header and returns the reader for the stream.
func (t *decompressors) openXZ(r *bufio.Reader) (io.Reader, error) {
	h := make([]byte, 12)
	if _, err := io.ReadFull(r, h); err != nil {
		return nil, err
	}
	x := &xzStream{tools: t, r: &countingReader{r: r, n: 12}}
	// Byte 7 is the type of check: none, CRC32, CRC64 or SHA-256.
	switch h[7] {
	case 0:
	case 1:
		x.checkSize = 4
	case 4:
		x.checkSize = 8
	case 10:
		x.checkSize = 32
	default:
		return nil, fmt.Errorf("check %d is not supported", h[7])
	}
	return x, nil
}

// Read implements io.Reader. It returns io.EOF after the footer of the stream.
func (x *xzStream) Read(p []byte) (int, error) {
	for x.err == nil {
		if x.err = x.tools.budget.Step(1); x.err != nil {
			break
		}
		if !x.inBlock {
			x.err = x.readHeader()
			continue
		}
		n, err := x.tools.lzma2.Read(p)
		if errors.Is(err, io.EOF) {
			x.inBlock = false
			err = x.r.skipBytes(padding(x.r.n-x.start) + x.checkSize)
		}
		x.err = err
		if n > 0 {
			return n, nil
		}
	}
	return 0, x.err
}

// readHeader reads the header of the next block. If the index follows instead, it skips that and
// the footer, and returns io.EOF.
func (x *xzStream) readHeader() error {
	first, err := x.r.ReadByte()
	if err != nil {
		return io.ErrUnexpectedEOF
	}
	if first == 0 {
		return firstError(x.skipIndex(), io.EOF)
	}
	// The first byte is the size of the header in words, minus one.
	h := make([]byte, 4*(int(first)+1)-1)
	if _, err := io.ReadFull(x.r, h); err != nil {
		return fmt.Errorf("truncated block: %w", err)
	}
	size, err := xzDict(h[:len(h)-4])
	if err != nil {
		return err
	}
	x.start, x.inBlock = x.r.n, true
	return x.tools.beginBlock(x.r, size)
}

// xzDict returns the dictionary size of a block, from its header without size byte and CRC. It
// fails if the block uses other filters than LZMA2 or a dictionary of more than maxDict.
func xzDict(h []byte) (int, error) {
	flags := h[0]
	h = h[1:]
	for _, bit := range []byte{0x40, 0x80} { // optional sizes before and after compression
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
		return 0, errors.New("filters other than LZMA2 are not supported")
	}
	size, err := lzma.DecodeDictCap(h[2])
	if err != nil || size > maxDict {
		return 0, fmt.Errorf("a dictionary of %d bytes: %w", size, firstError(err, fmt.Errorf("%d are allowed", maxDict)))
	}
	return int(size), nil
}

// skipIndex skips the index, whose first byte was read, and the footer.
func (x *xzStream) skipIndex() error {
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
	return x.r.skipBytes(padding(x.r.n-start) + crc + footer)
}
