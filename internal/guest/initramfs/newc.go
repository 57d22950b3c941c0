package initramfs

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"

	"github.com/decamp/decamp/internal/guest/budget"
)

const (
	newcHeader = 110
	trailer    = "TRAILER!!!"
)

// isNewc reports the magic numbers of cpio's newc format, without and with checksums.
func isNewc(head []byte) bool {
	return len(head) >= 6 && (string(head[:6]) == "070701" || string(head[:6]) == "070702")
}

// newc reads one archive to its trailer. A header is 110 characters: the magic number and
// thirteen numbers in hex; name and file follow, each up to a multiple of four.
func (c *reader) newc(r *bufio.Reader) error {
	h := make([]byte, newcHeader)
	for {
		if _, err := io.ReadFull(r, h); err != nil {
			return fmt.Errorf("an archive that is cut short: %w", err)
		}
		if !isNewc(h) {
			return fmt.Errorf("a file in an archive begins with %q", h[:6])
		}
		fileSize, err := field(h, 6)
		if err != nil {
			return err
		}
		nameSize, err := field(h, 11)
		if err != nil {
			return err
		}
		if nameSize == 0 || nameSize > maxName {
			return fmt.Errorf("a name of %d bytes", nameSize)
		}
		name := make([]byte, nameSize)
		if _, err := io.ReadFull(r, name); err != nil {
			return fmt.Errorf("an archive that is cut short: %w", err)
		}
		if err := c.discard(r, pad(newcHeader+nameSize)); err != nil {
			return err
		}
		if string(name[:nameSize-1]) == trailer {
			return nil
		}
		if err := c.file(r, string(name[:nameSize-1]), fileSize); err != nil {
			return err
		}
	}
}

// file takes a file's name, and goes past its content.
func (c *reader) file(r *bufio.Reader, name string, size int64) error {
	if err := c.note(name); err != nil {
		return err
	}
	if c.visit == nil {
		return c.discard(r, size+pad(size))
	}
	body := &io.LimitedReader{R: r, N: size}
	if err := c.visit(clean(name), body); err != nil {
		return err
	}
	c.left -= size - body.N
	return c.discard(r, body.N+pad(size))
}

// field returns number n of a header.
func field(h []byte, n int) (int64, error) {
	var b [4]byte
	if _, err := hex.Decode(b[:], h[6+8*n:][:8]); err != nil {
		return 0, fmt.Errorf("a header with %q for a number", h[6+8*n:][:8])
	}
	return int64(b[0])<<24 | int64(b[1])<<16 | int64(b[2])<<8 | int64(b[3]), nil
}

// pad returns the number of bytes to a multiple of four.
func pad(n int64) int64 { return -n & 3 }

// discard skips bytes, and counts them.
func (c *reader) discard(r *bufio.Reader, n int64) error {
	if c.left -= n + newcHeader; c.left < 0 {
		return budget.Exceeded("it unpacks to more than %d bytes", int64(maxUnpacked))
	}
	for n > 0 {
		part := min(n, 1<<20)
		if err := c.budget.Step(part >> 12); err != nil {
			return err
		}
		if _, err := r.Discard(int(part)); err != nil {
			return fmt.Errorf("an archive that is cut short: %w", err)
		}
		n -= part
	}
	return nil
}
