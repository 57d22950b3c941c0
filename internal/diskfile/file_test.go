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
	"github.com/decamp/decamp/internal/vmdk/vmdktest"
)

func chain(t *testing.T, layers ...vmdktest.Layer) *vmdktest.Disk {
	t.Helper()
	d, err := vmdktest.Chain{Seed: 5, Layers: layers}.Write(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func base() vmdktest.Layer { return vmdktest.Layer{Sectors: vmdktest.Odd, Data: 0.5} }
func delta() vmdktest.Layer {
	return vmdktest.Layer{Format: vmdktest.COWD, Data: 0.2, Zero: 0.1, Run: 4}
}

func open(t *testing.T, path string, o Options) *File {
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

// put writes a file that begins with head and has size bytes.
func put(t *testing.T, name, head string, size int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := errors.Join(os.WriteFile(path, []byte(head), 0o600), os.Truncate(path, size)); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestKindOfAFile(t *testing.T) {
	for _, c := range []struct {
		name, head string
		want       Kind
		fault      fault.Kind
	}{
		{"x.vmdk", "KDMV", VMDK, 0},
		{"x", "COWD", VMDK, 0},
		{"x", "\xbe\xba\xfe\xca\x00\x00\x00\x00", VMDK, 0},
		{"x", "QFI\xfb", QCOW2, 0},
		{"x", "\x7fELF", "", fault.Unsupported},
		{"x.raw", "KDMV", Raw, 0},    // a guest may write that
		{"x.IMG", "QFI\xfb", Raw, 0}, // likewise
		{"x-flat.vmdk", "KDMV", "", fault.Invalid},
		{"web-flat.VMDK", "", "", fault.Invalid},
	} {
		kind, err := kindOf(put(t, c.name, c.head, 4<<20))
		if kind != c.want || (err != nil) != (c.want == "") || err != nil && !fault.Is(err, c.fault) {
			t.Errorf("%s beginning %q: %q, %v", c.name, c.head, kind, err)
		}
	}
	text := put(t, "x.vmdk", "# Disk DescriptorFile\n", 22)
	if kind, err := kindOf(text); kind != VMDK || err != nil {
		t.Errorf("a descriptor: %q, %v", kind, err)
	}
	if _, err := kindOf(t.TempDir()); !fault.Is(err, fault.Invalid) {
		t.Errorf("a folder: %v", err)
	}
	if _, err := kindOf(put(t, "empty", "", 0)); !fault.Is(err, fault.Unsupported) {
		t.Errorf("an empty file: %v", err)
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := kindOf(pipe); !fault.Is(err, fault.Invalid) {
		t.Errorf("a pipe: %v", err)
	}
}

func TestFlatFileNamesItsDescriptor(t *testing.T) {
	_, err := kindOf(put(t, "web01-flat.vmdk", "", 512))
	if hint := fault.HintOf(err); !strings.Contains(hint, "web01.vmdk") {
		t.Errorf("remedy %q", hint)
	}
}

func TestReadsAChainByASymbolicLink(t *testing.T) {
	d := chain(t, base(), delta())
	link := filepath.Join(t.TempDir(), "link.vmdk")
	if err := os.Symlink(d.Path(), link); err != nil {
		t.Fatal(err)
	}
	f := open(t, link, Options{})
	if err := d.Want.Compare(t.Context(), f); err != nil {
		t.Error(err)
	}
	if f.Path != d.Path() || f.Kind != VMDK {
		t.Errorf("path %s, kind %s", f.Path, f.Kind)
	}
}

func TestIdentityChangesWithAnyFile(t *testing.T) {
	d := chain(t, base(), delta())
	before := open(t, d.Path(), Options{}).Identity()
	if again := open(t, d.Path(), Options{}).Identity(); again != before {
		t.Errorf("identity %q, then %q", before, again)
	}
	files, err := filepath.Glob(filepath.Join(d.Folder, "*"))
	if err != nil || len(files) != 4 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, path := range files {
		if err := os.Chtimes(path, time.Time{}, time.Unix(1e9, 0)); err != nil {
			t.Fatal(err)
		}
		after := open(t, d.Path(), Options{}).Identity()
		if after == before {
			t.Errorf("%s was touched, and nothing changed", path)
		}
		before = after
	}
}

func TestLayersAddUp(t *testing.T) {
	d := chain(t, base(), delta(), delta())
	f := open(t, d.Path(), Options{})
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

func TestBackingFilesAreReadOnlyWhenAsked(t *testing.T) {
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
		t.Errorf("unasked: %v", err)
	}
	f := open(t, top, Options{Backing: true})
	layers, err := f.Layers(t.Context())
	if err != nil || len(layers) != 2 || f.Size() != 8<<20 {
		t.Errorf("%d layers, %d bytes, %v", len(layers), f.Size(), err)
	}
}

func TestRawOnRequest(t *testing.T) {
	path := put(t, "noise", "\x00\x01", 1<<20)
	f := open(t, path, Options{Kind: Raw})
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
