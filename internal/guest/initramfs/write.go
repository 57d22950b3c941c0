package initramfs

import (
	"bytes"
	"fmt"
	"path"
)

// A Writer makes one archive. Its files belong to root and are dated 1970, so that equal
// content is equal bytes.
type Writer struct {
	out  bytes.Buffer
	ino  int
	made map[string]bool
}

// Dir adds a folder.
func (w *Writer) Dir(name string) { w.entry(name, 0o040755, nil) }

// File adds a file.
func (w *Writer) File(name string, data []byte) { w.entry(name, 0o100644, data) }

// Program adds a file that can be run.
func (w *Writer) Program(name string, data []byte) { w.entry(name, 0o100755, data) }

// DirsBelow adds the folders that lead from base to name, neither included, once each. The
// kernel replaces a link by a folder of the same name: so folders that may be links in the
// archive before, as lib is, are for base.
func (w *Writer) DirsBelow(base, name string) {
	dir := path.Dir(name)
	if len(dir) <= len(base) || w.made[dir] {
		return
	}
	w.DirsBelow(base, dir)
	if w.made == nil {
		w.made = map[string]bool{}
	}
	w.made[dir] = true
	w.Dir(dir)
}

// Bytes ends the archive and returns it.
func (w *Writer) Bytes() []byte {
	w.entry(trailer, 0, nil)
	return w.out.Bytes()
}

func (w *Writer) entry(name string, mode uint32, data []byte) {
	w.ino++
	const links = 1
	fmt.Fprintf(&w.out, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
		w.ino, mode, 0, 0, links, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)
	w.out.WriteString(name)
	w.out.WriteByte(0)
	w.pad()
	w.out.Write(data)
	w.pad()
}

func (w *Writer) pad() { w.out.Write(make([]byte, -w.out.Len()&3)) }
