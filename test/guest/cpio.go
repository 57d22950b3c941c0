package guest

import (
	"fmt"
	"io"
)

// A cpio writes an initramfs in the "newc" format. All files belong to root and are dated 1970. See the
// kernel's Documentation/driver-api/early-userspace/buffer-format.rst.
type cpio struct {
	w   io.Writer // receives the archive
	n   int64     // number of bytes written
	ino int       // inode number of the last entry
	err error     // first error; later writes do nothing
}

const (
	cpioDir     = 0o040755 // mode of a directory
	cpioProgram = 0o100755 // mode of a file; all are executable
	cpioChar    = 0o020600 // mode of a character device
)

// addDir adds a directory.
func (c *cpio) addDir(name string) { c.addEntry(name, cpioDir, 0, 0, nil) }

// addFile adds a file.
func (c *cpio) addFile(name string, data []byte) { c.addEntry(name, cpioProgram, 0, 0, data) }

// addCharDevice adds a character device.
func (c *cpio) addCharDevice(name string, maj, min int) { c.addEntry(name, cpioChar, maj, min, nil) }

// close writes the trailer and returns the first error of the archive.
func (c *cpio) close() error {
	c.addEntry("TRAILER!!!", 0, 0, 0, nil)
	return c.err
}

// addEntry writes header, name and data of an entry, each padded to four bytes.
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

// padToFour writes zeros up to a multiple of four bytes.
func (c *cpio) padToFour() { c.write(make([]byte, -c.n&3)) }

// write writes p, unless an earlier write has failed.
func (c *cpio) write(p []byte) {
	if c.err != nil {
		return
	}
	n, err := c.w.Write(p)
	c.n, c.err = c.n+int64(n), err
}
