package initramfs

import (
	"bufio"
	"fmt"
	"io"
)

// magic number of a frame
const zstdMagic = "\x28\xb5\x2f\xfd"

// A zstdFrame returns the bytes of one zstd frame and then io.EOF, although other data may follow.
// The layout is that of RFC 8878, section 3.1.
type zstdFrame struct {
	r            *bufio.Reader // input
	left         int           // bytes to return before the next header
	last         bool          // the current block is the last one
	checksumSize int           // bytes of the checksum after the last block: 0 or 4
	begun        bool          // the frame header was parsed
	err          error         // first error, or io.EOF at the end of the frame

	windowed bool // byte 5 of the frame header is the window descriptor
	passed   int  // bytes returned so far
}

// Read implements io.Reader.
func (f *zstdFrame) Read(p []byte) (int, error) {
	if f.left == 0 && f.err == nil {
		f.err = f.nextPart()
	}
	if f.err != nil {
		return 0, f.err
	}
	n, err := f.r.Read(p[:min(len(p), f.left)])
	f.clampWindow(p[:n])
	f.left -= n
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// clampWindow lowers a declared window that exceeds maxDict. Most such frames do not use it. The
// decoder refuses a frame that does.
func (f *zstdFrame) clampWindow(p []byte) {
	const at, largest = 5, 16 << 3 // 2^(10+16) bytes
	if i := at - f.passed; f.windowed && i >= 0 && i < len(p) && p[i] > largest && p[i]>>3 <= 17 {
		p[i] = largest
	}
	f.passed += len(p)
}

// nextPart parses the next header and sets the number of bytes to return. It does not consume the
// header, which is part of the result.
func (f *zstdFrame) nextPart() error {
	switch {
	case !f.begun:
		return f.readHeader()
	case f.last && f.checksumSize > 0:
		f.left, f.checksumSize = f.checksumSize, 0
		return nil
	case f.last:
		return io.EOF
	}
	h, err := f.r.Peek(3)
	if err != nil {
		return fmt.Errorf("truncated block: %w", io.ErrUnexpectedEOF)
	}
	// Bit 0 marks the last block, bits 1 and 2 are the type, the others the size.
	bits := int(h[0]) | int(h[1])<<8 | int(h[2])<<16
	const runOfOneByte = 1
	f.last, f.left = bits&1 != 0, 3+bits>>3
	if bits>>1&3 == runOfOneByte {
		f.left = 3 + 1
	}
	return nil
}

// windowSize returns the window that the frame requires, without consuming input. The layout is
// that of RFC 8878, section 3.1.1.1.2.
func (f *zstdFrame) windowSize() (int64, error) {
	h, err := f.r.Peek(5)
	if err != nil {
		return 0, fmt.Errorf("truncated frame: %w", io.ErrUnexpectedEOF)
	}
	// Frame header descriptor: flag for a single segment, sizes of the dictionary ID and of the content size.
	single, dict, sized := h[4]>>5&1 != 0, [4]int{0, 1, 2, 4}[h[4]&3], [4]int{0, 2, 4, 8}[h[4]>>6]
	if !single {
		if h, err = f.r.Peek(6); err != nil {
			return 0, fmt.Errorf("truncated frame: %w", io.ErrUnexpectedEOF)
		}
		base := int64(1) << (10 + h[5]>>3)
		return min(base+base/8*int64(h[5]&7), maxDict), nil
	}
	sized = max(sized, 1)
	if h, err = f.r.Peek(5 + dict + sized); err != nil {
		return 0, fmt.Errorf("truncated frame: %w", io.ErrUnexpectedEOF)
	}
	size := uint64(0)
	for i := range sized {
		size |= uint64(h[5+dict+i]) << (8 * i)
	}
	return int64(min(size+256, maxDict)), nil
}

// readHeader determines the length of the frame header, section 3.1.1.1.
func (f *zstdFrame) readHeader() error {
	h, err := f.r.Peek(5)
	if err != nil {
		return fmt.Errorf("truncated frame: %w", io.ErrUnexpectedEOF)
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
		f.checksumSize = 4
	}
	f.begun = true
	return nil
}
