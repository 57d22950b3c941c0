package initramfs

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"

	"github.com/decamp/decamp/internal/guest/budget"
)

const (
	newcHeader = 110          // bytes of an entry's header
	trailer    = "TRAILER!!!" // name of the entry that ends an archive
)

// isNewc reports whether head begins with a magic number of cpio's newc format, without or with
// checksums.
func isNewc(head []byte) bool {
	return len(head) >= 6 && (string(head[:6]) == "070701" || string(head[:6]) == "070702")
}

// readNewc reads one archive up to its trailer. An entry consists of a header of 110 characters, a
// name and the content; the latter two are padded to a multiple of four. The header is a magic
// number and thirteen hexadecimal numbers.
func (c *reader) readNewc(r *bufio.Reader) error {
	h := make([]byte, newcHeader)
	for {
		if _, err := io.ReadFull(r, h); err != nil {
			return fmt.Errorf("truncated archive: %w", err)
		}
		if !isNewc(h) {
			return fmt.Errorf("a file in an archive begins with %q", h[:6])
		}
		// Field 6 is the size of the file, field 11 the size of the name with its zero.
		fileSize, err := headerField(h, 6)
		if err != nil {
			return err
		}
		nameSize, err := headerField(h, 11)
		if err != nil {
			return err
		}
		if nameSize == 0 || nameSize > maxName {
			return fmt.Errorf("a name of %d bytes", nameSize)
		}
		name := make([]byte, nameSize)
		if _, err := io.ReadFull(r, name); err != nil {
			return fmt.Errorf("truncated archive: %w", err)
		}
		if err := c.skipBytes(r, padding(newcHeader+nameSize)); err != nil {
			return err
		}
		if string(name[:nameSize-1]) == trailer {
			return nil
		}
		if err := c.readFile(r, string(name[:nameSize-1]), fileSize); err != nil {
			return err
		}
	}
}

// readFile evaluates the name of an entry, calls visit, and skips the rest of the content.
func (c *reader) readFile(r *bufio.Reader, name string, size int64) error {
	if err := c.addName(name); err != nil {
		return err
	}
	if c.visit == nil {
		return c.skipBytes(r, size+padding(size))
	}
	body := &io.LimitedReader{R: r, N: size}
	if err := c.visit(cleanName(name), body); err != nil {
		return err
	}
	c.unpackLeft -= size - body.N
	return c.skipBytes(r, body.N+padding(size))
}

// headerField returns number n of a header, counted from 0.
func headerField(h []byte, n int) (int64, error) {
	var b [4]byte
	if _, err := hex.Decode(b[:], h[6+8*n:][:8]); err != nil {
		return 0, fmt.Errorf("a header with %q for a number", h[6+8*n:][:8])
	}
	return int64(b[0])<<24 | int64(b[1])<<16 | int64(b[2])<<8 | int64(b[3]), nil
}

// padding returns the number of bytes from n to the next multiple of four.
func padding(n int64) int64 { return -n & 3 }

// skipBytes skips n bytes of an archive and counts them as unpacked.
func (c *reader) skipBytes(r *bufio.Reader, n int64) error {
	if c.unpackLeft -= n + newcHeader; c.unpackLeft < 0 {
		return budget.Exceeded("it unpacks to more than %d bytes", int64(maxUnpacked))
	}
	for n > 0 {
		part := min(n, 1<<20)
		if err := c.budget.Step(part >> 12); err != nil {
			return err
		}
		if _, err := r.Discard(int(part)); err != nil {
			return fmt.Errorf("truncated archive: %w", err)
		}
		n -= part
	}
	return nil
}
