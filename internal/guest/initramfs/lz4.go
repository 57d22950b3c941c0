package initramfs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// An lz4 reads the "legacy" frames of LZ4 that kernels unpack: after the magic, blocks with
// their packed length before them, each of lz4Block bytes unpacked but for the last. See
// LZ4's doc/lz4_Frame_format.md and doc/lz4_Block_format.md.
type lz4 struct {
	in   *bytes.Reader
	rest []byte // of a block
}

const (
	lz4Block = 8 << 20
	lz4Magic = 0x184c2102
)

var errLZ4 = errors.New("damaged LZ4 block")

func openLZ4(in *bytes.Reader) (io.ReadCloser, error) {
	if _, err := in.Seek(4, io.SeekCurrent); err != nil {
		return nil, err
	}
	return io.NopCloser(&lz4{in: in}), nil
}

func (z *lz4) Read(p []byte) (int, error) {
	for len(z.rest) == 0 {
		if err := z.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, z.rest)
	z.rest = z.rest[n:]
	return n, nil
}

// next unpacks the next block. Zeros where its length should be are the end.
func (z *lz4) next() error {
	var head [4]byte
	if _, err := io.ReadFull(z.in, head[:]); err != nil {
		return io.EOF
	}
	switch size := binary.LittleEndian.Uint32(head[:]); {
	case size == 0:
		return io.EOF
	case size == lz4Magic: // another frame
		return nil
	case int64(size) > int64(z.in.Len()):
		return fmt.Errorf("an LZ4 block of %d bytes, %d are left: %w", size, z.in.Len(), errLZ4)
	default:
		packed := make([]byte, size)
		_, _ = z.in.Read(packed) // there are as many
		var err error
		z.rest, err = lz4Unpack(packed)
		return err
	}
}

// lz4Unpack unpacks a block: literals and copies of what came before, by turns.
func lz4Unpack(in []byte) ([]byte, error) {
	out := make([]byte, 0, min(lz4Block, 4*len(in)))
	for len(in) > 0 {
		token := in[0]
		literals, rest, err := lz4Length(in[1:], int(token>>4))
		if err != nil || literals > len(rest) || len(out)+literals > lz4Block {
			return nil, errLZ4
		}
		out, in = append(out, rest[:literals]...), rest[literals:]
		if len(in) == 0 {
			return out, nil
		}
		if len(in) < 2 {
			return nil, errLZ4
		}
		back := int(binary.LittleEndian.Uint16(in))
		match, rest, err := lz4Length(in[2:], int(token&15))
		match += 4
		if err != nil || back == 0 || back > len(out) || len(out)+match > lz4Block {
			return nil, errLZ4
		}
		for range match { // byte by byte: it may run into itself
			out = append(out, out[len(out)-back])
		}
		in = rest
	}
	return out, nil
}

// lz4Length goes on with a length that did not fit its four bits.
func lz4Length(in []byte, n int) (int, []byte, error) {
	if n < 15 {
		return n, in, nil
	}
	for len(in) > 0 {
		c := in[0]
		in, n = in[1:], n+int(c)
		if c < 255 {
			return n, in, nil
		}
		if n > lz4Block {
			break
		}
	}
	return 0, nil, errLZ4
}
