// Package initramfs reads initramfs images of Linux kernels: archives one after the other, each plain or
// compressed, such as early microcode followed by the main archive.
//
// It returns the modules in them and the tool that made them. It also makes archives to append, whose files
// replace earlier ones.
//
// The input is untrusted. All archives share one decompressor of each method, whose memory is charged to
// the budget before it is allocated: 64 MiB at most for zstd, xz and lzma, 8 MiB for lz4. Limits apply to
// the number of archives and names, the unpacked size, and the ratio of unpacked to packed bytes. The format
// is that of the kernel's Documentation/driver-api/early-userspace/buffer-format.rst.
package initramfs

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/decamp/decamp/internal/guest/budget"
)

const (
	maxUnpacked = 2 << 30 // bytes of all archives together, compressed or not
	maxArchives = 256
	maxNames    = 1 << 18
	maxName     = 4096 // bytes

	maxModules    = 1 << 15 // a kernel has some 7,000
	maxModuleName = 255     // bytes

	// Decompressed bytes may be maxRatio times the bytes read, and freeBytes more. Real archives
	// of modules and firmware stay below 10 times.
	maxRatio  = 32
	freeBytes = 48 << 20
)

// Content is what an initramfs holds.
type Content struct {
	Maker       string          // "dracut", "initramfs-tools", "mkinitcpio", or "" where it is another
	Compression []string        // method of each archive, in order: "none", "gzip", "zstd", …
	Modules     map[string]bool // names as lsmod has them: virtio_blk
	Resume      bool            // whether it can resume from hibernation
}

// Read reads an initramfs from its first byte to its last. An error comes with the contents read until
// then; it is a *budget.Error if a limit was reached.
// understood until then; it is a *budget.Error if a bound was reached.
func Read(b *budget.Budget, r io.Reader) (Content, error) { return Walk(b, r, nil) }

// Walk reads an initramfs, and calls visit with each entry's name and content, in order, as it
// goes: of a file that is there twice, the kernel keeps the later one. An error of visit ends it.
func Walk(b *budget.Budget, r io.Reader, visit func(name string, body io.Reader) error) (Content, error) {
	packed := &tally{r: r}
	c := &reader{
		in: bufio.NewReaderSize(packed, 1<<20), packed: packed, found: Content{Modules: map[string]bool{}}, left: maxUnpacked,
		visit: visit, budget: b, tools: &tools{budget: b},
	}
	defer c.close()
	for {
		if err := b.Step(1); err != nil {
			return c.found, err
		}
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
	in     *bufio.Reader
	packed *tally // counts the bytes of in
	found  Content
	left   int64 // bytes that may still be unpacked
	names  int
	visit  func(name string, body io.Reader) error // called for each file, if not nil
	budget *budget.Budget
	held   int64         // bytes of module names charged to the budget
	tools  *tools        // decompressors of all archives
	plain  *bufio.Reader // reader of the archive being decompressed
	more   int64         // bytes decompressed from all archives
}

// close releases the memory. The modules of c.found are the caller's.
func (c *reader) close() {
	c.tools.close()
	c.budget.Release(c.held)
}

// tally counts the bytes read.
type tally struct {
	r io.Reader
	n int64
}

func (t *tally) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	t.n += int64(n)
	return n, err
}

// metered charges what a decompressor returns.
type metered struct {
	c *reader
	r io.Reader
}

func (m metered) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	if spent := m.c.unpackedMore(int64(n)); spent != nil {
		return n, spent
	}
	return n, err
}

func (c *reader) unpackedMore(n int64) error {
	if c.more += n; c.more > freeBytes+maxRatio*c.packed.n {
		return budget.Exceeded("%d bytes are packed into %d", c.more, c.packed.n)
	}
	return c.budget.Unpack(n)
}

// maxPadding bounds the zeros between two archives, in bytes.
const maxPadding = 1 << 20

// skipZeros goes to the next byte that is not zero: archives are padded.
func (c *reader) skipZeros(r *bufio.Reader) (more bool, err error) {
	for i := range maxPadding {
		if i%4096 == 4095 {
			if err := c.budget.Step(64); err != nil {
				return false, err
			}
		}
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
	if len(c.found.Compression) == maxArchives {
		return budget.Exceeded("it consists of more than %d archives", maxArchives)
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
	plain, err := how.open(c.tools, c.in)
	if err != nil {
		return fmt.Errorf("%s: %w", how.name, err)
	}
	if c.plain == nil {
		c.plain = bufio.NewReaderSize(nil, 256<<10)
	}
	c.plain.Reset(metered{c, plain})
	if err := c.unpacked(c.plain); err != nil {
		return fmt.Errorf("%s: %w", how.name, err)
	}
	return nil
}

// unpacked reads the archives within a compressed one, to its end.
func (c *reader) unpacked(r *bufio.Reader) error {
	for {
		if err := c.budget.Step(1); err != nil {
			return err
		}
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
		return budget.Exceeded("it has more than %d names", maxNames)
	}
	if err := c.budget.Step(4); err != nil {
		return err
	}
	name = strings.TrimPrefix(strings.TrimPrefix(name, "."), "/")
	if module := Module(name); module != "" && len(module) <= maxModuleName && !c.found.Modules[module] {
		if len(c.found.Modules) == maxModules {
			return budget.Exceeded("it has more than %d modules", maxModules)
		}
		const entry = 64 // bytes of a map's entry, about
		if err := c.budget.Hold(entry + int64(len(module))); err != nil {
			return err
		}
		c.held += entry + int64(len(module))
		c.found.Modules[strings.Clone(module)] = true
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

// Module returns the name of the kernel module in a file of that path, as lsmod prints it: "virtio_blk"
// for kernel/drivers/block/virtio-blk.ko.zst. It is empty for other files.
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

// clean takes off what archives may have before a name.
func clean(name string) string { return strings.TrimLeft(strings.TrimPrefix(name, "./"), "/") }

// Unpack returns a kernel's module, which may be packed, of limit bytes at most.
func Unpack(b *budget.Budget, data []byte, limit int64) ([]byte, error) {
	if bytes.HasPrefix(data, []byte("\x7fELF")) {
		return data, nil
	}
	how, err := methodOf(data[:min(6, len(data))])
	if err != nil {
		return nil, err
	}
	t := &tools{budget: b}
	defer t.close()
	plain, err := how.open(t, bufio.NewReader(bytes.NewReader(data)))
	if err != nil {
		return nil, err
	}
	if err := b.Unpack(limit); err != nil {
		return nil, err
	}
	out, err := io.ReadAll(io.LimitReader(plain, limit+1))
	if err == nil && int64(len(out)) > limit {
		err = fmt.Errorf("more than %d bytes unpacked", limit)
	}
	return out, err
}
