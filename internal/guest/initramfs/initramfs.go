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
	maxUnpacked = 2 << 30 // bytes of all archives together, after decompression
	maxArchives = 256     // archives of one initramfs
	maxNames    = 1 << 18 // entries of all archives together
	maxName     = 4096    // bytes of a name

	maxModules    = 1 << 15 // modules of all archives; a kernel has about 7,000
	maxModuleName = 255     // bytes of a module's name; longer ones are ignored

	// Decompressed bytes may be maxRatio times the bytes read, and freeBytes more. Real archives
	// of modules and firmware stay below 10 times.
	maxRatio  = 32
	freeBytes = 48 << 20
)

// Content describes an initramfs.
type Content struct {
	Maker       string          // tool that made it: "dracut", "initramfs-tools", "mkinitcpio"; empty if unknown
	Compression []string        // method of each archive, in order: "none", "gzip", "zstd", …
	Modules     map[string]bool // set of modules, with names as printed by lsmod: virtio_blk
	Resume      bool            // the initramfs can resume from hibernation
}

// Read reads an initramfs from its first byte to its last. If it fails, it also returns the content
// that precedes the error; the error is a *budget.Error if a limit was reached.
func Read(b *budget.Budget, r io.Reader) (Content, error) { return Walk(b, r, nil) }

// Walk reads an initramfs like Read and calls visit with the name and content of each entry, in
// order. If a name occurs more than once, the kernel uses the last one. An error of visit ends the
// walk and is returned. body is valid during the call only; visit may read it in part.
func Walk(b *budget.Budget, r io.Reader, visit func(name string, body io.Reader) error) (Content, error) {
	packed := &byteCounter{r: r}
	c := &reader{
		in: bufio.NewReaderSize(packed, 1<<20), packed: packed, found: Content{Modules: map[string]bool{}}, unpackLeft: maxUnpacked,
		visit: visit, budget: b, tools: &decompressors{budget: b},
	}
	defer c.releaseMemory()
	for {
		if err := b.Step(1); err != nil {
			return c.found, err
		}
		// Archives are padded with zeros, and a zero byte never begins one.
		more, err := c.skipZeros(c.in)
		if err == nil && more {
			err = c.readArchive()
		}
		if err != nil || !more {
			return c.found, err
		}
	}
}

// A reader reads all archives of one initramfs.
type reader struct {
	in            *bufio.Reader                           // compressed input
	packed        *byteCounter                            // counter of the bytes read by in
	found         Content                                 // results so far
	unpackLeft    int64                                   // bytes that may still be unpacked
	names         int                                     // entries so far, at most maxNames
	visit         func(name string, body io.Reader) error // function to call for each entry; may be nil
	budget        *budget.Budget                          // budget of the examination
	charged       int64                                   // bytes of module names charged to the budget
	tools         *decompressors                          // decompressors, shared by all archives
	plain         *bufio.Reader                           // buffer of decompressed bytes, shared by all archives; nil until the first one
	unpackedBytes int64                                   // bytes decompressed from all archives
}

// releaseMemory frees the decompressors and returns their memory to the budget. c.found remains
// valid and is no longer charged.
func (c *reader) releaseMemory() {
	c.tools.closeAll()
	c.budget.Release(c.charged)
}

// A byteCounter counts the bytes read.
type byteCounter struct {
	r io.Reader // source
	n int64     // bytes read so far
}

// Read implements io.Reader.
func (t *byteCounter) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	t.n += int64(n)
	return n, err
}

// A chargedReader charges the bytes that a decompressor returns.
type chargedReader struct {
	c *reader   // reader that is charged
	r io.Reader // decompressor
}

// Read implements io.Reader. It fails after the bytes that exceed a limit.
func (m chargedReader) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	if spent := m.c.chargeUnpacked(int64(n)); spent != nil {
		return n, spent
	}
	return n, err
}

// chargeUnpacked charges n decompressed bytes. It fails if the ratio of decompressed to compressed
// bytes is too high.
func (c *reader) chargeUnpacked(n int64) error {
	if c.unpackedBytes += n; c.unpackedBytes > freeBytes+maxRatio*c.packed.n {
		return budget.Exceeded("%d bytes are packed into %d", c.unpackedBytes, c.packed.n)
	}
	return c.budget.Unpack(n)
}

// maxPadding limits the zeros between two archives, in bytes.
const maxPadding = 1 << 20

// skipZeros skips the padding before the next archive. more is false at the end of r.
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
		c.unpackLeft--
	}
	return false, fmt.Errorf("more than %d zeros between archives", maxPadding)
}

// readArchive reads one archive, plain or compressed. The next byte of c.in is not zero.
func (c *reader) readArchive() error {
	head, err := c.in.Peek(6)
	if len(head) < 6 {
		return fmt.Errorf("%d bytes where an archive should be: %w", len(head), err)
	}
	if len(c.found.Compression) == maxArchives {
		return budget.Exceeded("it consists of more than %d archives", maxArchives)
	}
	// An uncompressed archive, for example early microcode.
	if isNewc(head) {
		c.found.Compression = append(c.found.Compression, "none")
		return c.readNewc(c.in)
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
	c.plain.Reset(chargedReader{c, plain})
	if err := c.readCompressed(c.plain); err != nil {
		return fmt.Errorf("%s: %w", how.name, err)
	}
	return nil
}

// readCompressed reads the archives in the decompressed stream r, up to its end.
func (c *reader) readCompressed(r *bufio.Reader) error {
	for {
		if err := c.budget.Step(1); err != nil {
			return err
		}
		if more, err := c.skipZeros(r); err != nil || !more {
			return err
		}
		head, err := r.Peek(6)
		if !isNewc(head) {
			return fmt.Errorf("no cpio archive in it: %w", firstError(err, errors.New("another magic number")))
		}
		if err := c.readNewc(r); err != nil {
			return err
		}
	}
}

// firstError returns err, or other if err is nil.
func firstError(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

// addName evaluates the name of one entry: modules, and files that identify the maker.
func (c *reader) addName(name string) error {
	if c.names++; c.names > maxNames {
		return budget.Exceeded("it has more than %d names", maxNames)
	}
	if err := c.budget.Step(4); err != nil {
		return err
	}
	// Tools write names as "./lib", "/lib" or "lib".
	name = strings.TrimPrefix(strings.TrimPrefix(name, "."), "/")
	if module := Module(name); module != "" && len(module) <= maxModuleName && !c.found.Modules[module] {
		if len(c.found.Modules) == maxModules {
			return budget.Exceeded("it has more than %d modules", maxModules)
		}
		const entry = 64 // approximate size of a map entry in bytes
		if err := c.budget.Hold(entry + int64(len(module))); err != nil {
			return err
		}
		c.charged += entry + int64(len(module))
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

// makerOf returns the tool that creates a file of this name; empty for files that do not identify one.
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

// Last returns the compression of the last archive, which is the main one; empty if there is no
// archive.
func (c Content) Last() string {
	if len(c.Compression) == 0 {
		return ""
	}
	return c.Compression[len(c.Compression)-1]
}

// cleanName removes the prefixes "./" and "/", which archives may have.
func cleanName(name string) string { return strings.TrimLeft(strings.TrimPrefix(name, "./"), "/") }

// Unpack returns the content of a kernel module, which may be compressed with a method that kernels
// support. It fails if the content exceeds limit bytes. Decompressed content is charged to the memory of
// b until the examination ends.
func Unpack(b *budget.Budget, data []byte, limit int64) ([]byte, error) {
	if bytes.HasPrefix(data, []byte("\x7fELF")) {
		return data, nil
	}
	how, err := methodOf(data[:min(6, len(data))])
	if err != nil {
		return nil, err
	}
	t := &decompressors{budget: b}
	defer t.closeAll()
	plain, err := how.open(t, bufio.NewReader(bytes.NewReader(data)))
	if err != nil {
		return nil, err
	}
	// The size is unknown in advance, so the maximum is charged.
	if err := b.Unpack(limit); err != nil {
		return nil, err
	}
	return readCharged(b, plain, limit)
}

// readCharged reads r to its end. It fails after limit bytes. The memory is charged to b before it is
// allocated, and released if readCharged fails.
func readCharged(b *budget.Budget, r io.Reader, limit int64) (out []byte, err error) {
	defer func() {
		if err != nil {
			budget.ReleaseSlice(b, out)
			out = nil
		}
	}()
	const first = 64 << 10 // bytes of the first array; later ones are twice as large each
	for err == nil {
		room := 1
		if out == nil {
			room = first
		}
		if out, err = budget.Grow(b, out, room); err != nil {
			return out, err
		}
		var n int
		n, err = r.Read(out[len(out):cap(out)])
		if out = out[:len(out)+n]; int64(len(out)) > limit {
			return out, fmt.Errorf("more than %d bytes unpacked", limit)
		}
	}
	if err == io.EOF {
		err = nil
	}
	return out, err
}
