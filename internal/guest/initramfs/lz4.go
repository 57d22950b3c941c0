package initramfs

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/pierrec/lz4/v4"
)

const (
	lz4Magic = "\x02\x21\x4c\x18" // magic number of the legacy format
	lz4Block = 8 << 20            // maximum bytes of an unpacked block
)

// An lz4Legacy reads the legacy format of LZ4, the only one that kernels support: blocks that are
// preceded by their size. There is no end marker; an invalid size means that other data follows.
type lz4Legacy struct {
	r      *bufio.Reader // input, positioned at the size of the next block
	packed []byte        // buffer of a compressed block
	plain  []byte        // buffer of an unpacked block, of lz4Block bytes
	rest   []byte        // part of plain that was not returned yet
}

// openLZ4 returns the reader for an archive. The first call charges the buffers.
func (t *decompressors) openLZ4(r *bufio.Reader) (io.Reader, error) {
	if t.lz4 == nil {
		if err := t.charge(2 * lz4Block); err != nil {
			return nil, err
		}
		t.lz4 = &lz4Legacy{plain: make([]byte, lz4Block)}
	}
	t.lz4.r, t.lz4.rest = r, nil
	_, err := r.Discard(len(lz4Magic))
	return t.lz4, err
}

// Read implements io.Reader.
func (l *lz4Legacy) Read(p []byte) (int, error) {
	for len(l.rest) == 0 {
		if err := l.readBlock(); err != nil {
			return 0, err
		}
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// readBlock unpacks the next block. It returns io.EOF if none exists, without consuming input.
func (l *lz4Legacy) readBlock() error {
	head, _ := l.r.Peek(4)
	if len(head) < 4 {
		return io.EOF
	}
	size := int(binary.LittleEndian.Uint32(head))
	if size == 0 || size > lz4.CompressBlockBound(lz4Block) {
		return io.EOF
	}
	if _, err := l.r.Discard(4); err != nil {
		return err
	}
	if cap(l.packed) < size {
		l.packed = make([]byte, size)
	}
	if _, err := io.ReadFull(l.r, l.packed[:size]); err != nil {
		return fmt.Errorf("truncated block: %w", err)
	}
	n, err := lz4.UncompressBlock(l.packed[:size], l.plain)
	if err != nil {
		return err
	}
	l.rest = l.plain[:n]
	return nil
}
