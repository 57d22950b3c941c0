package initramfs

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/pierrec/lz4/v4"
)

const (
	lz4Magic = "\x02\x21\x4c\x18"
	lz4Block = 8 << 20 // bytes a block unpacks to at most
)

// An lz4Legacy reads the one format of LZ4 that kernels support: blocks with their size before each. It
// has no end marker; an invalid size is the start of something else.
type lz4Legacy struct {
	r      *bufio.Reader
	packed []byte
	plain  []byte
	rest   []byte // part of plain that was not returned yet
}

func (t *tools) openLZ4(r *bufio.Reader) (io.Reader, error) {
	if t.lz4 == nil {
		if err := t.hold(2 * lz4Block); err != nil {
			return nil, err
		}
		t.lz4 = &lz4Legacy{plain: make([]byte, lz4Block)}
	}
	t.lz4.r, t.lz4.rest = r, nil
	_, err := r.Discard(len(lz4Magic))
	return t.lz4, err
}

func (l *lz4Legacy) Read(p []byte) (int, error) {
	for len(l.rest) == 0 {
		if err := l.block(); err != nil {
			return 0, err
		}
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

func (l *lz4Legacy) block() error {
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
		return fmt.Errorf("a block that is cut short: %w", err)
	}
	n, err := lz4.UncompressBlock(l.packed[:size], l.plain)
	if err != nil {
		return err
	}
	l.rest = l.plain[:n]
	return nil
}
