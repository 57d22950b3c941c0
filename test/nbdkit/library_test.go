package nbdkit

import (
	"debug/elf"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// newestGlibc is the newest minor version of glibc 2 that the plugin may need: that of CentOS Stream 9, on which images
// of virt-v2v are based.
const newestGlibc = 34

// The plugin needs only libc, at most of version newestGlibc, and its Go runtime does not start when it is loaded.
func TestPluginNeedsOnlyOldLibc(t *testing.T) {
	t.Parallel()
	f, err := elf.Open(plugin)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if libraries, err := f.ImportedLibraries(); err != nil || !slices.Equal(libraries, []string{"libc.so.6"}) {
		t.Errorf("the plugin needs %v, error %v, want libc.so.6 only", libraries, err)
	}
	symbols, err := f.ImportedSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		switch {
		case s.Version == "":
			if !strings.HasPrefix(s.Name, "nbdkit_") && s.Library != "" {
				t.Errorf("%s has no version", s.Name)
			}
		case !strings.HasPrefix(s.Version, "GLIBC_2."):
			t.Errorf("%s needs %s", s.Name, s.Version)
		default:
			minor, _, _ := strings.Cut(strings.TrimPrefix(s.Version, "GLIBC_2."), ".")
			if n, err := strconv.Atoi(minor); err != nil || n > newestGlibc {
				t.Errorf("%s needs %s", s.Name, s.Version)
			}
		}
	}
	if s := f.Section("go_init_array"); s == nil || s.Size == 0 {
		t.Error("the constructors of the Go runtime are not in their section")
	}
}
