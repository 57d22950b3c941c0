package initramfs

import (
	"errors"
	"fmt"
	"io"

	"github.com/ulikunitz/xz/lzma"

	"github.com/decamp/decamp/internal/guest/budget"
)

// An lzma2 decompresses LZMA2 blocks with one dictionary. The library allocates a dictionary for
// each stream, so it gets all blocks as one stream, without the byte that ends a block. This is
// valid because each block begins with a chunk that resets the dictionary.
//
// The library reads the header of the next chunk only if more bytes are requested than the chunk
// has, so Read stops at the end of a chunk.
type lzma2 struct {
	budget *budget.Budget  // budget for chunks
	in     *countingReader // input of the current block
	out    *lzma.Reader2   // decoder; nil until the next chunk if the dictionary must grow
	dict   int64           // bytes of the dictionary, which are charged
	needed int64           // bytes of dictionary that the current block requires

	fresh bool   // no chunk of the current block was read
	chunk []byte // rest of the current chunk, header included, that the decoder has not read
	room  []byte // buffer of chunk
	left  int    // unpacked bytes of the chunk that were not returned yet
}

// beginBlock prepares the decoder for a block in r that requires a dictionary of dict bytes.
func (t *decompressors) beginBlock(r *countingReader, dict int) error {
	if t.lzma2 == nil {
		t.lzma2 = &lzma2{budget: t.budget}
	}
	z := t.lzma2
	z.in, z.fresh, z.left, z.needed = r, true, 0, int64(max(dict, lzma.MinDictCap))
	if z.needed > z.dict {
		z.out = nil // readChunk creates a decoder
		return t.growBuffer(&z.dict, z.needed)
	}
	return nil
}

// Read returns bytes of at most one chunk. It returns io.EOF at the end of the block.
func (z *lzma2) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if z.left == 0 {
		if err := z.readChunk(); err != nil {
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

// readChunk reads the next chunk into z.chunk. It returns io.EOF at the end of the block. The first
// byte determines the resets; two sizes minus one follow in big-endian order.
func (z *lzma2) readChunk() (err error) {
	control, err := z.in.ReadByte()
	if err != nil {
		return io.ErrUnexpectedEOF
	}
	const (
		end        = 0x00
		plainReset = 0x01 // uncompressed chunk after a reset of the dictionary
		plain      = 0x02
		packed     = 0x80
		propsReset = 0xc0 // compressed chunk with a byte of properties in its header
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
		return fmt.Errorf("truncated chunk: %w", err)
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
		return fmt.Errorf("truncated chunk: %w", err)
	}
	z.left, z.fresh = size, false
	if z.out == nil {
		z.out, err = lzma.Reader2Config{DictCap: int(z.dict)}.NewReader2(chunkReader{z})
	}
	return err
}

// A chunkReader is the input of the decoder: the current chunk.
type chunkReader struct{ z *lzma2 }

// Read implements io.Reader. It fails at the end of the chunk, because the decoder must not read further.
func (f chunkReader) Read(p []byte) (int, error) {
	n := copy(p, f.z.chunk)
	if n == 0 && len(p) > 0 {
		return 0, io.ErrUnexpectedEOF
	}
	f.z.chunk = f.z.chunk[n:]
	return n, nil
}
