package qcow2

import (
	"strings"

	"github.com/decamp/decamp/internal/fault"
)

// filePath is where an image is. It makes the errors about it, whose remedies are
// commands to paste.
type filePath string

// shellQuoted returns the path as a word for a shell that qemu-img takes neither for a flag nor
// for an address (nbd:…).
func (p filePath) shellQuoted() string {
	if strings.HasPrefix(string(p), "-") || p.isAddress() {
		p = "./" + p
	}
	return fault.Quote(string(p))
}

// isAddress reports whether qemu takes p for something else than a path: there is a colon
// before the first slash.
func (p filePath) isAddress() bool {
	i := strings.IndexAny(string(p), ":/")
	return i >= 0 && p[i] == ':'
}

// copyCommand makes a copy without whatever it is that this package does not read.
func (p filePath) copyCommand() string {
	return "qemu-img convert -f qcow2 -O qcow2 " + p.shellQuoted() + " " + (p + ".plain").shellQuoted()
}

func (p filePath) corrupt(format string, args ...any) *fault.Error {
	return fault.New(fault.Corrupt, format, args...).
		WithHint("the image is damaged or not qcow2; for details run: qemu-img check %s; then copy the disk again", p.shellQuoted())
}

func (p filePath) unsupported(format string, args ...any) *fault.Error {
	return fault.New(fault.Unsupported, format, args...).
		WithHint("make a plain copy of it: %s", p.copyCommand())
}
