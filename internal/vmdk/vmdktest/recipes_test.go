package vmdktest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// requires skips a test whose judge is not installed. scripts/setup.sh installs it.
func requires(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("%s is not installed", program)
	}
}

func write(t *testing.T, c Chain) *Disk {
	t.Helper()
	d, err := c.Write(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// The generators are judged before they judge: files and overlay come from the same
// recipe, but an independent reader must see in the files what the overlay says.
func TestQEMUReadsWhatTheOverlaySays(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	requires(t, "qemu-img")
	for _, r := range Recipes() {
		t.Run(r.Name, func(t *testing.T) {
			t.Parallel()
			d := write(t, r.Chain)
			checkLayersShow(t, d, r.Chain)
			raw, err := QEMU(t.Context(), d.Path(), filepath.Join(d.Folder, "raw"))
			if err == nil {
				defer raw.Close()
				err = d.Want.Compare(t.Context(), raw)
			}
			if r.Unread == "" && err != nil {
				t.Fatal(err)
			}
			if r.Unread != "" && err == nil {
				t.Errorf("qemu-img reads this by now; it was to be no judge because it %s", r.Unread)
			}
		})
	}
}

// checkLayersShow requires sectors of each layer: a recipe without data would prove nothing.
func checkLayersShow(t *testing.T, d *Disk, c Chain) {
	t.Helper()
	seen := map[uint8]int{}
	for _, w := range d.Want.writers {
		seen[w]++
	}
	for i, l := range c.Layers {
		if l.Data > 0 && seen[uint8(i+1)] < 50 {
			t.Errorf("layer %d shows in %d sectors", i, seen[uint8(i+1)])
		}
	}
}

func TestSameRecipeSameBytes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for _, r := range []Recipe{baseRecipes()[4], baseRecipes()[8], streamRecipes()[4], chainRecipes()[2], chainRecipes()[3]} {
		a, b := write(t, r.Chain), write(t, r.Chain)
		if err := a.Want.Compare(t.Context(), b.Want); err != nil {
			t.Errorf("%s: %v", r.Name, err)
		}
		files, err := filepath.Glob(filepath.Join(a.Folder, "*"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: files %v, %v", r.Name, files, err)
		}
		for _, f := range files {
			if name := filepath.Base(f); !bytes.Equal(content(t, f), content(t, filepath.Join(b.Folder, name))) {
				t.Errorf("%s: %s differs", r.Name, name)
			}
		}
	}
}

func content(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
