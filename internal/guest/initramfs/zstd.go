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

	windowed bool // byte 5 of the header is the size of the window
	given    int  // bytes returned so far
}

func (f *frame) Read(p []byte) (int, error) {
	if f.left == 0 && f.err == nil {
		f.err = f.next()
	}
	if f.err != nil {
		return 0, f.err
	}
	n, err := f.r.Read(p[:min(len(p), f.left)])
	f.clamp(p[:n])
	f.left -= n
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// clamp lowers a window that is larger than maxDict. The decoder refuses a frame that really
// looks back as far; most that declare it do not.
func (f *frame) clamp(p []byte) {
	const at, largest = 5, 16 << 3 // 2^(10+16) bytes
	if i := at - f.given; f.windowed && i >= 0 && i < len(p) && p[i] > largest && p[i]>>3 <= 17 {
		p[i] = largest
	}
	f.given += len(p)
}

// next parses the next header, and determines the number of bytes to pass on.
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

// window returns how far back the frame may look, without reading it. The layout is that of
// RFC 8878, section 3.1.1.1.2.
func (f *frame) window() (int64, error) {
	h, err := f.r.Peek(5)
	if err != nil {
		return 0, fmt.Errorf("a frame that is cut short: %w", io.ErrUnexpectedEOF)
	}
	single, dict, sized := h[4]>>5&1 != 0, [4]int{0, 1, 2, 4}[h[4]&3], [4]int{0, 2, 4, 8}[h[4]>>6]
	if !single {
		if h, err = f.r.Peek(6); err != nil {
			return 0, fmt.Errorf("a frame that is cut short: %w", io.ErrUnexpectedEOF)
		}
		base := int64(1) << (10 + h[5]>>3)
		return min(base+base/8*int64(h[5]&7), maxDict), nil
	}
	sized = max(sized, 1)
	if h, err = f.r.Peek(5 + dict + sized); err != nil {
		return 0, fmt.Errorf("a frame that is cut short: %w", io.ErrUnexpectedEOF)
	}
	size := uint64(0)
	for i := range sized {
		size |= uint64(h[5+dict+i]) << (8 * i)
	}
	return int64(min(size+256, maxDict)), nil
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
	if f.windowed = !single; f.windowed {
		f.left++
	} else if sized == 0 {
		f.left++
	}
	if d>>2&1 != 0 {
		f.sum = 4
	}
	f.begun = true
	return nil
}
