package initramfs

import (
	"bufio"
	"fmt"
	"io"
)

const zstdMagic = "\x28\xb5\x2f\xfd"

// A frame gives the bytes of one zstd frame and then io.EOF, whatever follows it. The
// layout is that of RFC 8878, section 3.1.
type frame struct {
	r     *bufio.Reader
	left  int  // bytes to give before the next header
	last  bool // the block under way is the last
	sum   int  // bytes of the checksum behind it
	begun bool
	err   error
}

func (f *frame) Read(p []byte) (int, error) {
	if f.left == 0 && f.err == nil {
		f.err = f.next()
	}
	if f.err != nil {
		return 0, f.err
	}
	n, err := f.r.Read(p[:min(len(p), f.left)])
	f.left -= n
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// next looks at the header that comes, and says how much to give.
func (f *frame) next() error {
	switch {
	case !f.begun:
		return f.header()
	case f.last && f.sum > 0:
		f.left, f.sum = f.sum, 0
		return nil
	case f.last:
		return io.EOF
	}
	h, err := f.r.Peek(3)
	if err != nil {
		return fmt.Errorf("a block that is cut short: %w", io.ErrUnexpectedEOF)
	}
	bits := int(h[0]) | int(h[1])<<8 | int(h[2])<<16
	const runOfOneByte = 1
	f.last, f.left = bits&1 != 0, 3+bits>>3
	if bits>>1&3 == runOfOneByte {
		f.left = 3 + 1
	}
	return nil
}

// header reads how long the frame's header is.
func (f *frame) header() error {
	h, err := f.r.Peek(5)
	if err != nil {
		return fmt.Errorf("a frame that is cut short: %w", io.ErrUnexpectedEOF)
	}
	d := h[4]
	single, sized := d>>5&1 != 0, d>>6
	f.left = 5 + [4]int{0, 1, 2, 4}[d&3] + [4]int{0, 2, 4, 8}[sized]
	if !single {
		f.left++ // the window
	} else if sized == 0 {
		f.left++
	}
	if d>>2&1 != 0 {
		f.sum = 4
	}
	f.begun = true
	return nil
}
