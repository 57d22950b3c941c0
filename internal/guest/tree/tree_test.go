package tree_test

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/guest/tree"
	"github.com/decamp/decamp/internal/guest/tree/treetest"
)

func newSampleTree() *tree.Tree {
	return treetest.Memory(map[string]string{
		"etc/os-release":     "-> ../usr/lib/os-release",
		"usr/lib/os-release": "ID=x\n",
		"lib":                "-> /usr/lib",
		"etc/netplan/b.yaml": "b",
		"etc/netplan/a.yaml": "a",
		"etc/netplan/README": "no",
		"loop":               "-> loop2",
		"loop2":              "-> loop",
		"boot/inside":        "hidden",
		"away":               "-> ../../boot/vmlinuz",
	})
}

func TestReadFile(t *testing.T) {
	fs := newSampleTree()
	for _, path := range []string{
		"usr/lib/os-release", "/usr//lib/./os-release", "etc/os-release", "lib/os-release", "../../lib/../lib/os-release",
	} {
		if got, err := fs.ReadFile(path, 100); err != nil || string(got) != "ID=x\n" {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
}

func TestReadFileRefuses(t *testing.T) {
	files := newSampleTree()
	for _, path := range []string{"nothing", "etc/nothing/x", "usr/lib/os-release/x"} {
		if _, err := files.ReadFile(path, 100); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v, want fs.ErrNotExist", path, err)
		}
	}
	for path, want := range map[string]string{"loop": "symbolic links", "etc": "not a regular file", "lib/os-release": "5 bytes"} {
		if _, err := files.ReadFile(path, 4); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error about %q", path, err, want)
		}
	}
}

func TestMount(t *testing.T) {
	fs := newSampleTree()
	fs.Mount("/boot", treetest.Memory(map[string]string{"vmlinuz": "kernel"}).Root())
	fs.Mount("/boot/efi", treetest.Memory(map[string]string{"EFI/x": "esp"}).Root())
	for path, want := range map[string]string{"boot/vmlinuz": "kernel", "away": "kernel", "boot/efi/EFI/x": "esp", "boot/efi/../vmlinuz": "kernel"} {
		if got, err := fs.ReadFile(path, 100); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	if tree.Has(fs, "boot/inside") {
		t.Error("a file hidden by a mount is still visible")
	}
}

func TestGlob(t *testing.T) {
	fs := newSampleTree()
	if got := tree.Glob(fs, "etc/netplan/*.yaml"); !slices.Equal(got, []string{"etc/netplan/a.yaml", "etc/netplan/b.yaml"}) {
		t.Errorf("got names %q", got)
	}
	if got := tree.Glob(fs, "none/*"); got != nil {
		t.Errorf("got names %q, want none", got)
	}
}
