package qcow2

import (
	"strings"

	"github.com/decamp/decamp/internal/fault"
)

// A filePath is the path of an image. It creates the errors about the image, whose remedies contain
// commands.
type filePath string

// shellQuoted returns the path as a word of a shell command. qemu-img interprets it neither as a flag
// nor as an address (nbd:…).
func (p filePath) shellQuoted() string {
	if strings.HasPrefix(string(p), "-") || p.isAddress() {
		p = "./" + p
	}
	return fault.Quote(string(p))
}

// isAddress reports whether qemu interprets p as an address: there is a colon before the first slash.
func (p filePath) isAddress() bool {
	i := strings.IndexAny(string(p), ":/")
	return i >= 0 && p[i] == ':'
}

// copyCommand returns the command that copies the image to one without special features.
func (p filePath) copyCommand() string {
	return "qemu-img convert -f qcow2 -O qcow2 " + p.shellQuoted() + " " + (p + ".plain").shellQuoted()
}

// corrupt returns a fault.Corrupt error with the command that checks the image.
func (p filePath) corrupt(format string, args ...any) *fault.Error {
	return fault.New(fault.Corrupt, format, args...).
		WithHint("the image is damaged or not qcow2; for details run: qemu-img check %s; then copy the disk again", p.shellQuoted())
}

// unsupported returns a fault.Unsupported error with the command that copies the image to a supported
// one.
func (p filePath) unsupported(format string, args ...any) *fault.Error {
	return fault.New(fault.Unsupported, format, args...).
		WithHint("make a plain copy of it: %s", p.copyCommand())
}
