package initramfs

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/guest/budget"
	"github.com/decamp/decamp/internal/guest/budget/budgettest"
)

func hasModules(c Content, modules ...string) bool {
	return !slices.ContainsFunc(modules, func(m string) bool { return !c.Modules[m] })
}

// run starts a tool that scripts/setup.sh installs, and returns what it prints.
func run(t testing.TB, dir string, stdin []byte, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v: %s: run scripts/setup.sh test", name, err, &stderr)
	}
	return out
}

// cpio packs files of some size, of which the first are these.
func cpio(t testing.TB, names ...string) []byte {
	t.Helper()
	dir := t.TempDir()
	random := rand.New(rand.NewPCG(1, 2))
	for i, name := range names {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		data := make([]byte, 50_000+i*40_000) // half of it can be compressed
		for j := 0; j < len(data)/2; j++ {
			data[j] = byte(random.Uint32())
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list := run(t, dir, nil, "find", ".", "-mindepth", "1")
	return run(t, dir, list, "cpio", "-o", "-H", "newc", "--quiet")
}

// limited returns a budget as Detect has it, and fails the test if memory is not given back.
func limited(t testing.TB) *budget.Budget {
	t.Helper()
	return budgettest.New(t)
}

func read(t testing.TB, r io.Reader) (Content, error) {
	t.Helper()
	b := limited(t)
	c, err := Read(b, r)
	if u := b.Used(); u.Memory != 0 || u.Peak > budget.Examination().Memory {
		t.Errorf("memory: %+v", u)
	}
	return c, err
}

const modules = "usr/lib/modules/6.1.0/kernel/drivers/"

// wholeArchive and packedArchives are made by the first test that needs them.
var (
	wholeArchive   []byte            // archive of whole
	packedArchives map[string][]byte // archive of whole by its compressor
)

// whole returns an archive with all that is read, of more than the 1 MiB that xz refers back to.
func whole(t testing.TB) []byte {
	if wholeArchive == nil {
		wholeArchive = makeWhole(t)
	}
	return bytes.Clone(wholeArchive)
}

// packed returns whole, packed by each compressor.
func packed(t testing.TB) map[string][]byte {
	if packedArchives == nil {
		packedArchives = map[string][]byte{}
		for name, command := range compressors() {
			packedArchives[name] = run(t, "", whole(t), command[0], command[1:]...)
		}
	}
	return packedArchives
}

func makeWhole(t testing.TB) []byte {
	return cpio(t, "init", "scripts/functions", "conf/initramfs.conf", modules+"block/virtio_blk.ko",
		modules+"scsi/virtio_scsi.ko.xz", modules+"virtio/virtio_pci.ko.zst", modules+"scsi/vmw-pvscsi.ko.gz", "usr/bin/resume")
}

// compressors are those that initramfs-tools, dracut and mkinitcpio call, as they do.
func compressors() map[string][]string {
	return map[string][]string{
		"none": {"cat"},
		"gzip": {"gzip", "-n", "-9"},
		"zstd": {"zstd", "-q", "-19", "-T0"},
		"xz":   {"xz", "--check=crc32", "--lzma2=dict=1MiB"},
		"lz4":  {"lz4", "-9", "-l", "-c", "-q"},
		"lzma": {"lzma", "-9"},
	}
}

func TestReadsWhatTheMakersWrite(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	microcode := cpio(t, "kernel/x86/microcode/GenuineIntel.bin")
	added := run(t, "", cpio(t, modules+"net/virtio_net.ko"), "gzip", "-n")
	for name, packed := range packed(t) {
		t.Run(name, func(t *testing.T) {
			// Four zeros at least: LZ4 has no end but a block of no bytes, and a gzip could begin with a length.
			image := slices.Concat(microcode, make([]byte, 512-len(microcode)%512), packed, make([]byte, 4+-len(packed)&3), added)
			c, err := read(t, bytes.NewReader(image))
			if err != nil {
				t.Fatal(err)
			}
			if want := []string{"none", name, "gzip"}; !slices.Equal(c.Compression, want) {
				t.Errorf("archives %q, want %q", c.Compression, want)
			}
			if !hasModules(c, "virtio_blk", "virtio_scsi", "virtio_pci", "vmw_pvscsi", "virtio_net") || hasModules(c, "virtio_balloon") || len(c.Modules) != 5 {
				t.Errorf("modules %v", c.Modules)
			}
			if c.Maker != "initramfs-tools" || !c.Resume {
				t.Errorf("%+v", c)
			}
			c, err = read(t, bytes.NewReader(packed))
			if err != nil || c.Last() != name || hasModules(c, "virtio_net") {
				t.Errorf("alone: %+v, %v", c, err)
			}
		})
	}
}

func TestMakers(t *testing.T) {
	for name, want := range map[string]string{
		"usr/lib/dracut/hooks/x": "dracut", "scripts/functions": "initramfs-tools", "init_functions": "mkinitcpio", "linuxrc": "",
	} {
		c, err := read(t, bytes.NewReader(cpio(t, name)))
		if err != nil || c.Maker != want {
			t.Errorf("%s: %q, %v", name, c.Maker, err)
		}
	}
}

// Several blocks of xz, several frames of zstd, and all that it can check.
func TestOtherWaysOfTheCompressors(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	plain := whole(t)
	for _, command := range [][]string{
		{"xz", "--check=none"}, {"xz", "--check=sha256", "--block-size=65536"}, {"xz", "-T2", "--block-size=100000"},
		{"zstd", "-q", "--no-check"}, {"zstd", "-q", "-1", "--single-thread"}, {"zstd", "-q", "--ultra", "-22", "--long=27"},
	} {
		packed := run(t, "", plain, command[0], command[1:]...)
		if c, err := read(t, bytes.NewReader(append(packed, plain...))); err != nil || len(c.Compression) != 2 || len(c.Modules) != 4 {
			t.Errorf("%q: %+v, %v", command, c, err)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	plain := whole(t)
	bomb := run(t, "", make([]byte, 8<<20), "zstd", "-q")
	for name, test := range map[string]struct {
		image []byte
		want  string
	}{
		"rubbish": {[]byte("something else"), "begins with"},
		"short":   {plain[:5], "5 bytes"},
		"cut":     {plain[:len(plain)/2], "truncated"},
		"lzo":     {[]byte("\x89LZO\x00\x0d\x0a\x1a\x0a"), "lzo are not supported"},
		"bzip2":   {[]byte("BZh91AY&SY"), "bzip2 are not supported"},
		"zeros":   {bomb, "zeros"},
		"gzip":    {run(t, "", []byte("no archive"), "gzip", "-n"), "no cpio"},
		"number":  {append(append([]byte{}, plain[:54]...), []byte(strings.Repeat("z", 100))...), "for a number"},
		"dict":    {run(t, "", []byte("x"), "xz", "--lzma2=dict=256MiB"), "dictionary"},
		"filter":  {run(t, "", []byte("x"), "xz", "--x86", "--lzma2"), "filters"},
	} {
		if _, err := read(t, bytes.NewReader(test.image)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want an error about %q", name, err, test.want)
		}
	}
	for name, packed := range packed(t) {
		if _, err := read(t, bytes.NewReader(packed[:len(packed)*2/3])); err == nil {
			t.Errorf("%s that is cut short was read", name)
		}
	}
}

func TestModule(t *testing.T) {
	for file, want := range map[string]string{
		"kernel/drivers/block/virtio-blk.ko.zst": "virtio_blk", "a.ko": "a", "a.ko.gz": "a", "lib/modules/x/modules.dep": "", "a.ko.bak": "",
	} {
		if got := Module(file); got != want {
			t.Errorf("%s: %q, want %q", file, got, want)
		}
	}
}

// FuzzRead reads anything: no panic, and an end.
func FuzzRead(f *testing.F) {
	small := []byte(fmt.Sprintf("070701%0104xa\x00\x00\x00", 0))
	f.Add(small)
	for _, command := range compressors() {
		f.Add(run(f, "", small, command[0], command[1:]...))
	}
	f.Add([]byte("\xfd7zXZ\x00\x00\x01\x69\x22\xde\x36\x02\x00\x21\x01\x16\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, image []byte) {
		b := limited(t)
		defer budgettest.Charged(t, b)()
		_, _ = Read(b, bytes.NewReader(image))
		if u := b.Used(); u.Memory != 0 || u.Peak > budget.Examination().Memory || u.Unpacked > freeBytes+maxRatio*int64(len(image))+1<<20 || u.Steps > 1<<20 {
			t.Errorf("%d bytes cost %+v", len(image), u)
		}
	})
}
