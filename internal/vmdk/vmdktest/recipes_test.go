package vmdktest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// requireProgram skips the test if the program is not installed. scripts/setup.sh installs it.
func requireProgram(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("%s is not installed", program)
	}
}

func writeChain(t *testing.T, c Chain) *Disk {
	t.Helper()
	d, err := c.Write(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// qemu-img reads the generated files as their overlay. It is an independent check of the generators:
// files and overlay come from the same recipe.
func TestQEMUReadsTheOverlay(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	requireProgram(t, "qemu-img")
	for _, r := range Recipes() {
		t.Run(r.Name, func(t *testing.T) {
			t.Parallel()
			d := writeChain(t, r.Chain)
			checkLayersAreVisible(t, d, r.Chain)
			raw, err := QEMU(t.Context(), d.Path(), filepath.Join(d.Folder, "raw"))
			if err == nil {
				defer raw.Close()
				err = d.Want.Compare(t.Context(), raw)
			}
			if r.Unread == "" && err != nil {
				t.Fatal(err)
			}
			if r.Unread != "" && err == nil {
				t.Errorf("qemu-img reads this recipe; the recipe expects a failure because qemu-img %s", r.Unread)
			}
		})
	}
}

// checkLayersAreVisible requires that at least 50 sectors of each layer with data are visible.
func checkLayersAreVisible(t *testing.T, d *Disk, c Chain) {
	t.Helper()
	seen := map[uint8]int{}
	for _, w := range d.Want.writers {
		seen[w]++
	}
	for i, l := range c.Layers {
		if l.Data > 0 && seen[uint8(i+1)] < 50 {
			t.Errorf("layer %d is visible in %d sectors, want at least 50", i, seen[uint8(i+1)])
		}
	}
}

func TestRecipesAreDeterministic(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for _, r := range []Recipe{baseRecipes()[4], baseRecipes()[8], streamRecipes()[4], chainRecipes()[2], chainRecipes()[3]} {
		a, b := writeChain(t, r.Chain), writeChain(t, r.Chain)
		if err := a.Want.Compare(t.Context(), b.Want); err != nil {
			t.Errorf("%s: %v", r.Name, err)
		}
		files, err := filepath.Glob(filepath.Join(a.Folder, "*"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: files %v, %v", r.Name, files, err)
		}
		for _, f := range files {
			if name := filepath.Base(f); !bytes.Equal(readFile(t, f), readFile(t, filepath.Join(b.Folder, name))) {
				t.Errorf("%s: %s differs", r.Name, name)
			}
		}
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
