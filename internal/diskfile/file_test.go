package diskfile

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/vmdk/vmdktest"
)

func writeChain(t *testing.T, layers ...vmdktest.Layer) *vmdktest.Disk {
	t.Helper()
	d, err := vmdktest.Chain{Seed: 5, Layers: layers}.Write(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func baseLayer() vmdktest.Layer { return vmdktest.Layer{Sectors: vmdktest.Odd, Data: 0.5} }
func deltaLayer() vmdktest.Layer {
	return vmdktest.Layer{Format: vmdktest.COWD, Data: 0.2, Zero: 0.1, Run: 4}
}

func openFile(t *testing.T, path string, o Options) *File {
	t.Helper()
	f, err := Open(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// writeFile creates a file that begins with head and has size bytes.
func writeFile(t *testing.T, name, head string, size int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := errors.Join(os.WriteFile(path, []byte(head), 0o600), os.Truncate(path, size)); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestContentDecidesTheFormat(t *testing.T) {
	vdi := strings.Repeat("\x00", 64) + "\x7f\x10\xda\xbe"
	tar := strings.Repeat("x", 257) + "ustar"
	for _, c := range []struct {
		name, head string
		want       Kind
		message    string // part of the warning or the error; empty if there is no warning
	}{
		{"x.vmdk", "KDMV", VMDK, ""},
		{"x", "COWD", VMDK, ""},
		{"x", "\xbe\xba\xfe\xca\x00\x00\x00\x00", VMDK, ""},
		{"x", "QFI\xfb\x00\x00\x00\x03", QCOW2, ""},
		{"x.qcow2", "QFI\xfb\x00\x00\x00\x02", QCOW2, ""},
		{"x.raw", "", Raw, ""},
		{"x.img", "\x7fELF", Raw, ""},
		{"x.raw", "KDMV", VMDK, "named like a raw image, but its content is VMDK"},
		{"x.IMG", "QFI\xfb\x00\x00\x00\x03", QCOW2, "named like a raw image, but its content is qcow2"},
		{"x.img", "# Disk DescriptorFile\n", VMDK, "named like a raw image"},
		{"x.vmdk", "QFI\xfb\x00\x00\x00\x03", QCOW2, "named like a vmdk image, but its content is qcow2"},
		{"x.qcow2", "COWD", VMDK, "named like a qcow2 image, but its content is VMDK"},
		{"x", "\x7fELF", "", "no disk format"},
		{"x.vmdk", "", "", "no disk format"},
		{"x.qcow2", "", "", "no disk format"},
		{"x-flat.vmdk", "KDMV", "", "descriptor is another file"},
		{"web-flat.VMDK", "", "", "descriptor is another file"},
		{"x.img", "QFI\xfb\x00\x00\x00\x01", "", "qcow (version 1)"},
		{"x.raw", "QED\x00", "", "QED"},
		{"x.img", vdi, "", "VDI"},
		{"x", "vhdxfile", "", "VHDX"},
		{"x.img", "conectix", "", "VHD"},
		{"x.img", "WithoutFreeSpace", "", "Parallels"},
		{"x.raw", "\x1f\x8b\x08\x00", "", "gzip"},
		{"x.img", "\xfd7zXZ\x00", "", "xz"},
		{"x.img", "\x28\xb5\x2f\xfd", "", "zstd"},
		{"x.img", "BZh91AY&SY", "", "bzip2"},
		{"x.ova", tar, "", "tar"},
		{"x.img", "PK\x03\x04", "", "zip"},
		{"x.img", "BZhello", Raw, ""}, // too short for a signature
	} {
		path := writeFile(t, c.name, c.head, 4<<20)
		f, err := findKind(path, Options{})
		message := f.warning
		if err != nil {
			message = err.Error()
		}
		if f.kind != c.want || (err != nil) != (c.want == "") || (c.message == "") != (message == "") || !strings.Contains(message, c.message) {
			t.Errorf("%s with head %q: got %q, %q, want %q, %q", c.name, c.head, f.kind, message, c.want, c.message)
		}
		if err != nil && fault.HintOf(err) == "" || message != "" && !strings.Contains(message, path) {
			t.Errorf("%s with head %q: %v (%s)", c.name, c.head, message, fault.HintOf(err))
		}
		if f, err := findKind(path, Options{Kind: Raw}); f.kind != Raw || err != nil {
			t.Errorf("%s with head %q, Options.Kind raw: %v, %v", c.name, c.head, f, err)
		}
	}
}

func TestFormatsWithTrailingSignature(t *testing.T) {
	for _, c := range []struct {
		tail, want string
		back       int64 // offset of the tail from the end of the file
	}{{"conectix", "VHD", 512}, {"conectix", "VHD", 511}, {"koly", "DMG", 512}} {
		path := writeFile(t, "x.img", "", 1<<20)
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteAt([]byte(c.tail), 1<<20-c.back)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		if _, err := findKind(path, Options{}); !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), c.want) || !strings.Contains(fault.HintOf(err), "qemu-img convert -f") {
			t.Errorf("format %s: got %v (%s), want an unsupported error with a command", c.want, err, fault.HintOf(err))
		}
	}
}

func TestNonDiskFilesAreRefused(t *testing.T) {
	if _, err := findKind(t.TempDir(), Options{}); !fault.Is(err, fault.Invalid) {
		t.Errorf("a folder: %v", err)
	}
	if _, err := findKind(writeFile(t, "empty", "", 0), Options{}); !fault.Is(err, fault.Unsupported) {
		t.Errorf("an empty file: %v", err)
	}
	if _, err := findKind(writeFile(t, "x.ovf", "<?xml version='1.0'?>\n<Envelope/>", 34), Options{}); !fault.Is(err, fault.Unsupported) || !strings.Contains(fault.HintOf(err), "href") {
		t.Errorf("an OVF: %v", err)
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := findKind(pipe, Options{}); !fault.Is(err, fault.Invalid) {
		t.Errorf("a pipe: %v", err)
	}
}

// A descriptor can be padded with NUL bytes. The remedy must not suggest reading it as a raw disk of 512
// bytes.
func TestRawIsNeverSuggestedForADescriptor(t *testing.T) {
	for name, head := range map[string]string{
		"first line":            "# Disk DescriptorFile\nversion=1\n",
		"no blank, byte order":  "\ufeff#disk descriptorfile\r\n",
		"first line, no #":      "Disk DescriptorFile\n",
		"an entry":              "version=1\n",
		"an entry with a blank": "\n# some comment\n CID = 1f\n",
		"an extent":             "RW 8 FLAT \"y\" 0\n",
	} {
		for _, file := range []string{"x.vmdk", "x.img", "x"} {
			for _, size := range []int64{int64(len(head)), 512, 4096, 2 << 20} {
				path := writeFile(t, file, head, size)
				f, err := findKind(path, Options{})
				if f.kind != VMDK || err != nil || strings.Contains(f.warning, "--from raw") {
					t.Errorf("%s in %s of %d bytes: %+v, %v", name, file, size, f, err)
				}
				if _, err := Open(t.Context(), path, Options{}); err == nil || strings.Contains(fault.HintOf(err), "raw") {
					t.Errorf("%s in %s of %d bytes: %v (%s)", name, file, size, err, fault.HintOf(err))
				}
			}
		}
	}
}

func TestForcedFormatMustMatch(t *testing.T) {
	qcow2 := writeFile(t, "x.vmdk", "QFI\xfb\x00\x00\x00\x03", 1<<20)
	if _, err := findKind(qcow2, Options{Kind: VMDK}); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "qcow2") {
		t.Errorf("qcow2 as VMDK: %v", err)
	}
	f := openFile(t, qcow2, Options{Kind: Raw})
	if w := f.Warnings(); f.Size() != 1<<20 || len(w) != 1 || !strings.Contains(w[0], "qcow2") || !strings.Contains(w[0], "--from raw") {
		t.Errorf("qcow2 as raw: %d bytes, %q", f.Size(), w)
	}
}

// A guest controls the beginning of its disk. A raw image that decamp wrote is always opened as raw. A file with the
// name of a raw image never opens other files.
func TestGuestCannotChooseTheFormat(t *testing.T) {
	path := writeFile(t, "web01.raw", "QFI\xfb\x00\x00\x00\x03", 1<<20)
	log, err := manifest.Create(path+".manifest", manifest.Info{Disk: "web01.raw", Size: 1 << 20, Source: "test"})
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	f := openFile(t, path, Options{})
	if w := f.Warnings(); f.Kind != Raw || f.Size() != 1<<20 || len(w) != 1 || !strings.Contains(w[0], "decamp wrote it as a raw image") {
		t.Errorf("%s of %d bytes, %q", f.Kind, f.Size(), w)
	}

	image := writeFile(t, "web01.raw", "KDMV", 1<<20)
	if f := openFile(t, image, Options{RecordedRaw: true}); f.Kind != Raw {
		t.Errorf("recorded as raw, opened as %s", f.Kind)
	}

	d := writeChain(t, baseLayer(), deltaLayer())
	for _, name := range []string{"disk.vmdk", "disk-000001.vmdk"} {
		image := filepath.Join(d.Folder, "stolen.img")
		text, err := os.ReadFile(filepath.Join(d.Folder, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(image, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), image, Options{}); !fault.Is(err, fault.Unsupported) || !strings.Contains(fault.HintOf(err), "--from vmdk") {
			t.Errorf("%s with the extension .img: got %v, want an unsupported error with --from vmdk", name, err)
		}
		openFile(t, image, Options{Kind: VMDK})
	}
}

func TestFlatFileNamesItsDescriptor(t *testing.T) {
	_, err := findKind(writeFile(t, "web01-flat.vmdk", "", 512), Options{})
	if hint := fault.HintOf(err); !strings.Contains(hint, "web01.vmdk") {
		t.Errorf("remedy %q", hint)
	}
}

func TestReadsAChainByASymbolicLink(t *testing.T) {
	d := writeChain(t, baseLayer(), deltaLayer())
	link := filepath.Join(t.TempDir(), "link.vmdk")
	if err := os.Symlink(d.Path(), link); err != nil {
		t.Fatal(err)
	}
	f := openFile(t, link, Options{})
	if err := d.Want.Compare(t.Context(), f); err != nil {
		t.Error(err)
	}
	if f.Path != d.Path() || f.Kind != VMDK {
		t.Errorf("path %s, kind %s", f.Path, f.Kind)
	}
}

func TestIdentityChangesWithAnyFile(t *testing.T) {
	d := writeChain(t, baseLayer(), deltaLayer())
	before := openFile(t, d.Path(), Options{}).Identity()
	if again := openFile(t, d.Path(), Options{}).Identity(); again != before {
		t.Errorf("identity %q, then %q", before, again)
	}
	files, err := filepath.Glob(filepath.Join(d.Folder, "*"))
	if err != nil || len(files) != 4 {
		t.Fatalf("files %v, want 4, error %v", files, err)
	}
	for _, path := range files {
		if err := os.Chtimes(path, time.Time{}, time.Unix(1e9, 0)); err != nil {
			t.Fatal(err)
		}
		after := openFile(t, d.Path(), Options{}).Identity()
		if after == before {
			t.Errorf("the identity does not change with the time of %s", path)
		}
		before = after
	}
}

func TestLayerUsageEqualsDiskSize(t *testing.T) {
	d := writeChain(t, baseLayer(), deltaLayer(), deltaLayer())
	f := openFile(t, d.Path(), Options{})
	layers, err := f.Layers(t.Context())
	if err != nil || len(layers) != 3 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	for i, l := range layers {
		if u := l.Usage; u.Data+u.Zero+u.Absent != l.Size || u.Runs == 0 || l.Name != d.Names[2-i] || len(l.Extents) != 1 {
			t.Errorf("layer %d: %+v, usage %+v", i, l, u)
		}
	}
	if layers[0].ParentCID != layers[1].CID || layers[2].ParentCID != "" {
		t.Errorf("CIDs do not chain: %+v", layers)
	}
	usage, err := f.Usage(t.Context())
	if err != nil || usage.Data+usage.Zero != d.Want.Size() {
		t.Errorf("usage %+v, %v", usage, err)
	}
}

func TestBackingFilesRequireAnOption(t *testing.T) {
	dir := t.TempDir()
	for _, args := range [][]string{
		{"create", "-q", "-f", "qcow2", "base.qcow2", "8M"},
		{"create", "-q", "-f", "qcow2", "-b", "base.qcow2", "-F", "qcow2", "top.qcow2"},
	} {
		cmd := exec.Command("qemu-img", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("qemu-img: %v: %s", err, out)
		}
	}
	top := filepath.Join(dir, "top.qcow2")
	if _, err := Open(t.Context(), top, Options{}); !fault.Is(err, fault.Unsupported) {
		t.Errorf("without Options.Backing: got %v, want an unsupported error", err)
	}
	f := openFile(t, top, Options{Backing: true})
	layers, err := f.Layers(t.Context())
	if err != nil || len(layers) != 2 || f.Size() != 8<<20 {
		t.Errorf("%d layers, %d bytes, %v", len(layers), f.Size(), err)
	}
}

func TestForcedRawReadsAnyFile(t *testing.T) {
	path := writeFile(t, "noise", "\x00\x01", 1<<20)
	f := openFile(t, path, Options{Kind: Raw})
	layers, err := f.Layers(t.Context())
	if err != nil || len(layers) != 1 || f.Size() != 1<<20 || f.Warnings() != nil {
		t.Errorf("%v, %d bytes, %v", layers, f.Size(), err)
	}
	if _, err := Open(t.Context(), path, Options{Kind: "vhd"}); !fault.Is(err, fault.Invalid) {
		t.Errorf("an unknown kind: %v", err)
	}
	if _, err := Open(t.Context(), path+".gone", Options{}); !fault.Is(err, fault.NotFound) {
		t.Errorf("no file: %v", err)
	}
}
