package guest

import (
	"fmt"
	"io"
)

// A cpio writes an initramfs in the "newc" format, owned by root and dated 1970. See
// the kernel's Documentation/driver-api/early-userspace/buffer-format.rst.
type cpio struct {
	w   io.Writer
	n   int64 // bytes written
	ino int
	err error
}

const (
	cpioDir     = 0o040755
	cpioProgram = 0o100755
	cpioChar    = 0o020600
)

func (c *cpio) addDir(name string)                      { c.addEntry(name, cpioDir, 0, 0, nil) }
func (c *cpio) addFile(name string, data []byte)        { c.addEntry(name, cpioProgram, 0, 0, data) }
func (c *cpio) addCharDevice(name string, maj, min int) { c.addEntry(name, cpioChar, maj, min, nil) }

// close ends the archive and returns the first error of all.
func (c *cpio) close() error {
	c.addEntry("TRAILER!!!", 0, 0, 0, nil)
	return c.err
}

func (c *cpio) addEntry(name string, mode, maj, min int, data []byte) {
	c.ino++
	const nlink, nobody = 1, 0
	c.write(fmt.Appendf(nil, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
		c.ino, mode, nobody, nobody, nlink, 0, len(data), 0, 0, maj, min, len(name)+1, 0))
	c.write(append([]byte(name), 0))
	c.padToFour()
	c.write(data)
	c.padToFour()
}

func (c *cpio) padToFour() { c.write(make([]byte, -c.n&3)) }

func (c *cpio) write(p []byte) {
	if c.err != nil {
		return
	}
	n, err := c.w.Write(p)
	c.n, c.err = c.n+int64(n), err
}
