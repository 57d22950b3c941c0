// Package initramfs reads what a Linux kernel unpacks at boot: archives one behind the
// other, each plain or compressed, such as early microcode and the real thing after it.
//
// It knows names, not contents: which modules are there, and who made it. What it reads
// was written by strangers, so there are bounds: of what is unpacked, of names, and of
// the memory a decompressor may ask for (128 MiB for zstd's window, 64 MiB for xz and
// lzma, 8 MiB for lz4). The format is the kernel's,
// Documentation/driver-api/early-userspace/buffer-format.rst.
package initramfs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
)

const (
	maxUnpacked = 2 << 30 // bytes of all archives together
	maxNames    = 1 << 18
	maxName     = 4096 // bytes
)

// Content is what an initramfs holds.
type Content struct {
	Maker       string          // "dracut", "initramfs-tools", "mkinitcpio", or "" where it is another
	Compression []string        // of each archive, in order: "none", "gzip", "zstd", …
	Modules     map[string]bool // names as lsmod has them: virtio_blk
	Resume      bool            // it can go on from a hibernation
}

// Read reads an initramfs from its first byte to its last. An error comes with what was
// understood until then.
func Read(r io.Reader) (Content, error) {
	c := &reader{in: bufio.NewReaderSize(r, 1<<20), found: Content{Modules: map[string]bool{}}, left: maxUnpacked}
	for {
		more, err := c.skipZeros(c.in)
		if err == nil && more {
			err = c.archive()
		}
		if err != nil || !more {
			return c.found, err
		}
	}
}

type reader struct {
	in    *bufio.Reader
	found Content
	left  int64 // bytes that may still be unpacked
	names int
}

// maxPadding bounds the zeros between two archives, in bytes.
const maxPadding = 1 << 20

// skipZeros goes to the next byte that is not zero: archives are padded.
func (c *reader) skipZeros(r *bufio.Reader) (more bool, err error) {
	for range maxPadding {
		b, err := r.ReadByte()
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if b != 0 {
			return true, r.UnreadByte()
		}
		c.left--
	}
	return false, fmt.Errorf("more than %d zeros between archives", maxPadding)
}

// archive reads one archive, whatever it is compressed with.
func (c *reader) archive() error {
	head, err := c.in.Peek(6)
	if len(head) < 6 {
		return fmt.Errorf("%d bytes where an archive should be: %w", len(head), err)
	}
	if isNewc(head) {
		c.found.Compression = append(c.found.Compression, "none")
		return c.newc(c.in)
	}
	how, err := methodOf(head)
	if err != nil {
		return err
	}
	c.found.Compression = append(c.found.Compression, how.name)
	plain, closing, err := how.open(c.in)
	if err != nil {
		return fmt.Errorf("%s: %w", how.name, err)
	}
	defer closing()
	if err := c.unpacked(bufio.NewReaderSize(plain, 256<<10)); err != nil {
		return fmt.Errorf("%s: %w", how.name, err)
	}
	return nil
}

// unpacked reads the archives within a compressed one, to its end.
func (c *reader) unpacked(r *bufio.Reader) error {
	for {
		if more, err := c.skipZeros(r); err != nil || !more {
			return err
		}
		head, err := r.Peek(6)
		if !isNewc(head) {
			return fmt.Errorf("no cpio archive in it: %w", cmpErr(err, errors.New("another magic number")))
		}
		if err := c.newc(r); err != nil {
			return err
		}
	}
}

func cmpErr(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

// note takes the name of a file.
func (c *reader) note(name string) error {
	if c.names++; c.names > maxNames {
		return fmt.Errorf("more than %d names", maxNames)
	}
	name = strings.TrimPrefix(strings.TrimPrefix(name, "."), "/")
	if module := Module(name); module != "" {
		c.found.Modules[module] = true
	}
	if maker := makerOf(name); maker != "" {
		c.found.Maker = maker
	}
	if strings.HasSuffix(name, "systemd-hibernate-resume") || strings.HasSuffix(name, "/resume") {
		c.found.Resume = true
	}
	return nil
}

// makerOf recognises files that only one of the makers puts there.
func makerOf(name string) string {
	switch {
	case strings.Contains(name, "lib/dracut/"), strings.HasPrefix(name, "dracut-state.sh"):
		return "dracut"
	case name == "conf/initramfs.conf", name == "scripts/functions":
		return "initramfs-tools"
	case name == "init_functions", name == "buildconfig":
		return "mkinitcpio"
	}
	return ""
}

// Module returns the name of the kernel module in a file of that path, as lsmod has it,
// or "" if it is none: "virtio_blk" for kernel/drivers/block/virtio-blk.ko.zst.
func Module(file string) string {
	base := path.Base(file)
	for _, suffix := range []string{".xz", ".gz", ".zst"} {
		base = strings.TrimSuffix(base, suffix)
	}
	name, ok := strings.CutSuffix(base, ".ko")
	if !ok {
		return ""
	}
	return strings.ReplaceAll(name, "-", "_")
}

// Last returns how the last archive is compressed, which is the real thing; "" if there
// is no archive at all.
func (c Content) Last() string {
	if len(c.Compression) == 0 {
		return ""
	}
	return c.Compression[len(c.Compression)-1]
}

// Has reports whether all of the modules are there.
func (c Content) Has(modules ...string) bool {
	return !slices.ContainsFunc(modules, func(m string) bool { return !c.Modules[m] })
}
