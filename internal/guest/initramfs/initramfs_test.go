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

// runTool runs a tool that scripts/setup.sh installs, and returns its output.
func runTool(t testing.TB, dir string, stdin []byte, name string, args ...string) []byte {
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

// newCPIO returns a cpio archive with files of increasing size.
func newCPIO(t testing.TB, names ...string) []byte {
	t.Helper()
	dir := t.TempDir()
	random := rand.New(rand.NewPCG(1, 2))
	for i, name := range names {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		data := make([]byte, 50_000+i*40_000) // half of the content is compressible
		for j := 0; j < len(data)/2; j++ {
			data[j] = byte(random.Uint32())
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list := runTool(t, dir, nil, "find", ".", "-mindepth", "1")
	return runTool(t, dir, list, "cpio", "-o", "-H", "newc", "--quiet")
}

// newBudget returns a budget with the limits of Detect.
func newBudget(t testing.TB) *budget.Budget {
	t.Helper()
	return budgettest.New(t)
}

func readArchive(t testing.TB, r io.Reader) (Content, error) {
	t.Helper()
	b := newBudget(t)
	c, err := Read(b, r)
	if u := b.Used(); u.Memory != 0 || u.Peak > budget.Examination().Memory {
		t.Errorf("memory: %+v", u)
	}
	return c, err
}

const modules = "usr/lib/modules/6.1.0/kernel/drivers/"

// wholeArchive and packedArchives are created by the first test that uses them.
var (
	wholeArchive   []byte            // result of fullArchive
	packedArchives map[string][]byte // result of compressedArchives
)

// fullArchive returns an archive with all files that Read interprets. It is larger than the xz dictionary of 1 MiB.
func fullArchive(t testing.TB) []byte {
	if wholeArchive == nil {
		wholeArchive = newFullArchive(t)
	}
	return bytes.Clone(wholeArchive)
}

// compressedArchives returns fullArchive compressed by each compressor.
func compressedArchives(t testing.TB) map[string][]byte {
	if packedArchives == nil {
		packedArchives = map[string][]byte{}
		for name, command := range compressors() {
			packedArchives[name] = runTool(t, "", fullArchive(t), command[0], command[1:]...)
		}
	}
	return packedArchives
}

func newFullArchive(t testing.TB) []byte {
	return newCPIO(t, "init", "scripts/functions", "conf/initramfs.conf", modules+"block/virtio_blk.ko",
		modules+"scsi/virtio_scsi.ko.xz", modules+"virtio/virtio_pci.ko.zst", modules+"scsi/vmw-pvscsi.ko.gz", "usr/bin/resume")
}

// compressors returns the compressors of initramfs-tools, dracut and mkinitcpio, with their arguments.
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

func TestReadsArchivesOfEveryCompressor(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	microcode := newCPIO(t, "kernel/x86/microcode/GenuineIntel.bin")
	added := runTool(t, "", newCPIO(t, modules+"net/virtio_net.ko"), "gzip", "-n")
	for name, packed := range compressedArchives(t) {
		t.Run(name, func(t *testing.T) {
			// At least four zeros: LZ4 data ends with a block of 0 bytes, and the start of gzip data could be a block length.
			image := slices.Concat(microcode, make([]byte, 512-len(microcode)%512), packed, make([]byte, 4+-len(packed)&3), added)
			c, err := readArchive(t, bytes.NewReader(image))
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
				t.Errorf("maker %q, resume %v", c.Maker, c.Resume)
			}
			c, err = readArchive(t, bytes.NewReader(packed))
			if err != nil || c.Last() != name || hasModules(c, "virtio_net") {
				t.Errorf("a single archive: %+v, %v", c, err)
			}
		})
	}
}

func TestInitramfsMakersAreDetected(t *testing.T) {
	for name, want := range map[string]string{
		"usr/lib/dracut/hooks/x": "dracut", "scripts/functions": "initramfs-tools", "init_functions": "mkinitcpio", "linuxrc": "",
	} {
		c, err := readArchive(t, bytes.NewReader(newCPIO(t, name)))
		if err != nil || c.Maker != want {
			t.Errorf("%s: maker %q, want %q, error %v", name, c.Maker, want, err)
		}
	}
}

// These options produce several xz blocks, several zstd frames, and different checksums.
func TestCompressorOptions(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	plain := fullArchive(t)
	for _, command := range [][]string{
		{"xz", "--check=none"}, {"xz", "--check=sha256", "--block-size=65536"}, {"xz", "-T2", "--block-size=100000"},
		{"zstd", "-q", "--no-check"}, {"zstd", "-q", "-1", "--single-thread"}, {"zstd", "-q", "--ultra", "-22", "--long=27"},
	} {
		packed := runTool(t, "", plain, command[0], command[1:]...)
		if c, err := readArchive(t, bytes.NewReader(append(packed, plain...))); err != nil || len(c.Compression) != 2 || len(c.Modules) != 4 {
			t.Errorf("%q: %+v, %v", command, c, err)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	plain := fullArchive(t)
	bomb := runTool(t, "", make([]byte, 8<<20), "zstd", "-q")
	for name, test := range map[string]struct {
		image []byte
		want  string
	}{
		"rubbish": {[]byte("something else"), "begins with"},
		"short":   {plain[:5], "5 bytes"},
		"half":    {plain[:len(plain)/2], "truncated"},
		"lzo":     {[]byte("\x89LZO\x00\x0d\x0a\x1a\x0a"), "lzo are not supported"},
		"bzip2":   {[]byte("BZh91AY&SY"), "bzip2 are not supported"},
		"zeros":   {bomb, "zeros"},
		"gzip":    {runTool(t, "", []byte("no archive"), "gzip", "-n"), "no cpio"},
		"number":  {append(append([]byte{}, plain[:54]...), []byte(strings.Repeat("z", 100))...), "for a number"},
		"dict":    {runTool(t, "", []byte("x"), "xz", "--lzma2=dict=256MiB"), "dictionary"},
		"filter":  {runTool(t, "", []byte("x"), "xz", "--x86", "--lzma2"), "filters"},
	} {
		if _, err := readArchive(t, bytes.NewReader(test.image)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want an error about %q", name, err, test.want)
		}
	}
	for name, packed := range compressedArchives(t) {
		if _, err := readArchive(t, bytes.NewReader(packed[:len(packed)*2/3])); err == nil {
			t.Errorf("Read accepts truncated %s data", name)
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

// FuzzRead checks that Read terminates without a panic and within the limits.
func FuzzRead(f *testing.F) {
	small := []byte(fmt.Sprintf("070701%0104xa\x00\x00\x00", 0))
	f.Add(small)
	for _, command := range compressors() {
		f.Add(runTool(f, "", small, command[0], command[1:]...))
	}
	f.Add([]byte("\xfd7zXZ\x00\x00\x01\x69\x22\xde\x36\x02\x00\x21\x01\x16\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, image []byte) {
		b := newBudget(t)
		defer budgettest.Charged(t, b)()
		_, _ = Read(b, bytes.NewReader(image))
		if u := b.Used(); u.Memory != 0 || u.Peak > budget.Examination().Memory || u.Unpacked > freeBytes+maxRatio*int64(len(image))+1<<20 || u.Steps > 1<<20 {
			t.Errorf("%d bytes cost %+v", len(image), u)
		}
	})
}
