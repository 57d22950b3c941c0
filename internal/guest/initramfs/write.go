package initramfs

import (
	"bytes"
	"fmt"
	"path"
)

// A Writer makes one newc archive in memory. Files belong to root and are dated 1970, so that equal
// content results in equal bytes. The zero Writer is ready to use.
type Writer struct {
	out     bytes.Buffer    // archive so far
	ino     int             // inode number of the last entry
	folders map[string]bool // folders that DirsBelow has added; nil if none
}

// Dir adds a folder with mode 0755.
func (w *Writer) Dir(name string) { w.writeEntry(name, 0o040755, nil) }

// File adds a file with mode 0644.
func (w *Writer) File(name string, data []byte) { w.writeEntry(name, 0o100644, data) }

// Program adds an executable file with mode 0755.
func (w *Writer) Program(name string, data []byte) { w.writeEntry(name, 0o100755, data) }

// DirsBelow adds the folders between base and name, without these two, unless it has added them
// before. The kernel replaces a symbolic link by a folder of the same name. Therefore base must include
// all folders that may be links in the preceding archive, such as lib.
func (w *Writer) DirsBelow(base, name string) {
	dir := path.Dir(name)
	if len(dir) <= len(base) || w.folders[dir] {
		return
	}
	w.DirsBelow(base, dir)
	if w.folders == nil {
		w.folders = map[string]bool{}
	}
	w.folders[dir] = true
	w.Dir(dir)
}

// Bytes adds the trailer and returns the archive. The Writer must not be used afterwards.
func (w *Writer) Bytes() []byte {
	w.writeEntry(trailer, 0, nil)
	return w.out.Bytes()
}

// writeEntry writes the header, the name and the content of an entry.
func (w *Writer) writeEntry(name string, mode uint32, data []byte) {
	w.ino++
	const links = 1
	fmt.Fprintf(&w.out, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
		w.ino, mode, 0, 0, links, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)
	w.out.WriteString(name)
	w.out.WriteByte(0)
	w.writePadding()
	w.out.Write(data)
	w.writePadding()
}

// writePadding adds zeros up to a multiple of four bytes.
func (w *Writer) writePadding() { w.out.Write(make([]byte, -w.out.Len()&3)) }
