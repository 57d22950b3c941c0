package guest

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/test/repository"
)

// requireTool returns the path of a tool. It skips the test if the tool is missing.
func requireTool(t *testing.T, tool string) string {
	t.Helper()
	path, err := lookTool(tool)
	if err != nil {
		t.Skip(err)
	}
	return path
}

func TestImagePartitions(t *testing.T) {
	sfdisk := requireTool(t, "sfdisk")
	want := map[Name]struct {
		label string
		parts int
	}{BIOS: {"dos", 1}, NoVirtio: {"dos", 1}, UEFI: {"gpt", 2}}
	for name, w := range want {
		out, err := exec.Command(sfdisk, "-J", Image(t, name)).Output()
		if err != nil {
			t.Fatalf("sfdisk %s: %v", name, err)
		}
		var seen struct {
			PartitionTable struct {
				Label      string
				Partitions []struct{ Start, Size int64 }
			}
		}
		if err := json.Unmarshal(out, &seen); err != nil {
			t.Fatal(err)
		}
		if got := seen.PartitionTable; got.Label != w.label || len(got.Partitions) != w.parts {
			t.Errorf("%s: table %s with %d partitions, want %s with %d", name, got.Label, len(got.Partitions), w.label, w.parts)
		}
	}
}

func TestRootFileSystem(t *testing.T) {
	e2fsck, debugfs := requireTool(t, "e2fsck"), requireTool(t, "debugfs")
	for _, v := range allVariants() {
		b := builder{variant: v}
		slice := filepath.Join(t.TempDir(), "root.ext4")
		cutRoot(t, Image(t, v.name), slice, b.rootOffset())
		if out, err := exec.Command(e2fsck, "-fn", slice).CombinedOutput(); err != nil {
			t.Errorf("%s: e2fsck: %v: %s", v.name, err, out)
		}
		out, err := exec.Command(debugfs, "-R", "cat /etc/os-release", slice).Output()
		if err != nil || !strings.Contains(string(out), "ID="+OSID+"\n") {
			t.Errorf("%s: os-release %q, err %v", v.name, out, err)
		}
	}
}

func cutRoot(t *testing.T, image, to string, off int64) {
	t.Helper()
	data, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data[off:], 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestBuildKeepsFreshImages(t *testing.T) {
	first, err := os.Stat(Image(t, BIOS))
	if err != nil {
		t.Fatal(err)
	}
	second, err := os.Stat(Image(t, BIOS))
	if err != nil {
		t.Fatal(err)
	}
	if !os.SameFile(first, second) || !first.ModTime().Equal(second.ModTime()) {
		t.Error("Build replaced a fresh image")
	}
}

func TestModulesFollowTheirDependencies(t *testing.T) {
	root, err := repository.Root()
	if err != nil {
		t.Fatal(err)
	}
	k, err := findKernel(filepath.Join(root, "build", "kernel"))
	if err != nil {
		t.Skip(err)
	}
	order, err := k.modulesWithNeeds("sd_mod", "virtio-net", "virtio_pci")
	if err != nil {
		t.Fatal(err)
	}
	for i, path := range order {
		needs, err := moduleDepends(filepath.Join(k.dir, path))
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range needs {
			if at := slices.Index(order, k.modules[moduleName(n)]); at < 0 || at >= i {
				t.Errorf("%s is at %d and needs %s, which is at %d", path, i, n, at)
			}
		}
	}
	if _, err := k.modulesWithNeeds("no_such_module"); err == nil {
		t.Error("no error for a module that does not exist")
	}
}

func TestCPIO(t *testing.T) {
	cpioTool := requireTool(t, "cpio")
	var out bytes.Buffer
	c := &cpio{w: &out}
	c.addDir("sbin")
	c.addFile("sbin/init", []byte("odd"))
	c.addCharDevice("console", 5, 1)
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
	list := exec.Command(cpioTool, "-itv", "--quiet")
	list.Stdin = &out
	text, err := list.CombinedOutput()
	if err != nil {
		t.Fatalf("cpio: %v: %s", err, text)
	}
	for _, want := range []string{"drwxr-xr-x", "-rwxr-xr-x", "crw-------", " 5,   1 ", "sbin/init"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("cpio does not list %q:\n%s", want, text)
		}
	}
}
