package initramfs

import (
	"errors"
	"fmt"
	"io"

	"github.com/ulikunitz/xz/lzma"

	"github.com/decamp/decamp/internal/guest/budget"
)

// An lzma2 decompresses one block of LZMA2 after the other with one dictionary. The library
// takes a new dictionary for each block, so it is given all blocks as one: the byte that ends a
// block is not passed on. A block begins with a chunk that resets the dictionary.
//
// The library reads the header of the next chunk only when more is read than the chunk has, so
// Read stops where a chunk ends.
type lzma2 struct {
	budget *budget.Budget
	in     *counted // input of the block being read
	out    *lzma.Reader2
	dict   int64 // bytes of the dictionary
	wants  int64 // bytes that the block's dictionary needs

	fresh bool   // no chunk of the block was read
	chunk []byte // chunk with its header, as far as it was not passed on
	room  []byte // buffer of chunk
	left  int    // bytes of the chunk that are still to be returned
}

// block begins a block that follows in r.
func (t *tools) block(r *counted, dict int) error {
	if t.lzma2 == nil {
		t.lzma2 = &lzma2{budget: t.budget}
	}
	z := t.lzma2
	z.in, z.fresh, z.left, z.wants = r, true, 0, int64(max(dict, lzma.MinDictCap))
	if z.wants > z.dict {
		z.out = nil // the next chunk makes a decoder
		return t.grow(&z.dict, z.wants)
	}
	return nil
}

// Read returns a part of one chunk, and io.EOF at the end of the block.
func (z *lzma2) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if z.left == 0 {
		if err := z.next(); err != nil {
			return 0, err
		}
	}
	n, err := z.out.Read(p[:min(len(p), z.left)])
	z.left -= n
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// next reads a chunk. Its first byte determines the resets; the sizes, minus one, follow in big-endian
// order.
func (z *lzma2) next() (err error) {
	control, err := z.in.ReadByte()
	if err != nil {
		return io.ErrUnexpectedEOF
	}
	const (
		end        = 0x00
		plainReset = 0x01 // not compressed, after a reset of the dictionary
		plain      = 0x02
		packed     = 0x80
		propsReset = 0xc0 // packed, and the header has a byte of properties
		dictReset  = 0xe0
	)
	length := 3
	switch {
	case control == end:
		return io.EOF
	case z.fresh && control != plainReset && control < dictReset:
		return errors.New("a block that does not begin with a dictionary")
	case control >= propsReset:
		length = 6
	case control >= packed:
		length = 5
	case control > plain:
		return fmt.Errorf("a chunk of kind %#x", control)
	}
	if z.room == nil {
		z.room = make([]byte, 6+1<<16)
	}
	h := z.room[:length]
	h[0] = control
	if _, err := io.ReadFull(z.in, h[1:]); err != nil {
		return fmt.Errorf("a chunk that is cut short: %w", err)
	}
	size := 1 + int(h[1])<<8 + int(h[2])
	follow := size
	if control >= packed {
		size += int(control&0x1f) << 16
		follow = 1 + int(h[3])<<8 + int(h[4])
	}
	if control < packed {
		// The library takes 32 KiB for each chunk that is not compressed, whatever its size.
		const full = 64 << 10
		if err := z.budget.Step(8 + int64(full-size)>>6); err != nil {
			return err
		}
	}
	z.chunk = z.room[:length+follow]
	if _, err := io.ReadFull(z.in, z.chunk[length:]); err != nil {
		return fmt.Errorf("a chunk that is cut short: %w", err)
	}
	z.left, z.fresh = size, false
	if z.out == nil {
		z.out, err = lzma.Reader2Config{DictCap: int(z.dict)}.NewReader2(feed{z})
	}
	return err
}

// A feed passes the current chunk on.
type feed struct{ z *lzma2 }

func (f feed) Read(p []byte) (int, error) {
	n := copy(p, f.z.chunk)
	if n == 0 && len(p) > 0 {
		return 0, io.ErrUnexpectedEOF
	}
	f.z.chunk = f.z.chunk[n:]
	return n, nil
}
