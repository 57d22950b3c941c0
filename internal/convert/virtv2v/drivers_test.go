package virtv2v

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
)

// winFolder is a virtio-win with those files, unpacked.
func winFolder(t *testing.T, files ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "virtio-win")
	for _, name := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("[Version]\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// whole is what a virtio-win has for two Windows.
var whole = []string{"viostor/2k19/amd64/viostor.inf", "vioscsi/2k19/amd64/vioscsi.inf", "NetKVM/2k19/amd64/netkvm.inf",
	"vioscsi/w8.1/x86/vioscsi.inf", "NetKVM/w8.1/x86/netkvm.inf", "virtio-win_license.txt"}

func TestDriversAreLookedFor(t *testing.T) {
	t.Parallel()
	folder := winFolder(t, whole...)
	places := map[string]string{"folder": folder, "iso": isoOf(t, folder, "-J", "-r"), "iso without Joliet": isoOf(t, folder)}
	for name, place := range places {
		for _, c := range []struct {
			w    *Windows
			good bool
		}{
			{nil, true},
			{&Windows{Build: 17763, Arch: "x86_64", Server: true}, true},
			{&Windows{Build: 20348, Arch: "x86_64", Server: true}, true}, // those of 2019 do
			{&Windows{Build: 17763, Arch: "aarch64", Server: true}, false},
			{&Windows{Build: 9600, Arch: "i386"}, true},
			{&Windows{Build: 9600, Arch: "x86_64"}, false},
			{&Windows{Build: 7601, Arch: "x86_64"}, false},
		} {
			if name == "iso without Joliet" && c.w != nil && c.w.Build == 9600 {
				continue // ECMA-119 has no folder w8.1
			}
			err := New(Options{Drivers: place}).CheckDrivers(c.w)
			if (err == nil) != c.good {
				t.Errorf("%s, %v: %v", name, c.w, err)
			}
			if err != nil && (!fault.Is(err, fault.NotFound) || !strings.Contains(fault.HintOf(err), "--virtio-win")) {
				t.Errorf("%s, %v: %v (%s)", name, c.w, err, fault.HintOf(err))
			}
		}
	}
}

func TestDriversThatAreNone(t *testing.T) {
	t.Parallel()
	other := filepath.Join(t.TempDir(), "other.iso")
	if err := os.WriteFile(other, make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	for place, kind := range map[string]fault.Kind{
		"": fault.NotFound, "/nowhere/virtio-win.iso": fault.NotFound, other: fault.Corrupt, t.TempDir(): fault.NotFound,
		winFolder(t, "viostor/2k19/amd64/viostor.inf"): fault.NotFound, // no network
	} {
		err := New(Options{Drivers: place, Environ: func() []string { return nil }}).CheckDrivers(nil)
		if !fault.Is(err, kind) || !strings.Contains(fault.HintOf(err), "--virtio-win") {
			t.Errorf("%q: %v (%s)", place, err, fault.HintOf(err))
		}
	}
	e := New(Options{Environ: func() []string { return []string{"VIRTIO_WIN=/a"} }})
	if e.Drivers() != "/a" {
		t.Errorf("drivers %q", e.Drivers())
	}
}

// isoOf makes an ISO image of a folder by a tool that others use.
func isoOf(t *testing.T, folder string, args ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.iso")
	args = append([]string{"-quiet", "-o", path}, append(args, folder)...)
	if out, err := exec.Command("genisoimage", args...).CombinedOutput(); err != nil {
		t.Fatalf("genisoimage: %v: %s", err, out)
	}
	return path
}

// A tool of others lists the same files.
func TestISOFiles(t *testing.T) {
	t.Parallel()
	var many []string
	for i := range 300 {
		many = append(many, "many/folder with a long name/"+strings.Repeat("x", i%40)+string(rune('a'+i%26))+".inf")
	}
	slices.Sort(many)
	many = slices.Compact(many)
	folder := winFolder(t, append(many, whole...)...)
	f, err := os.Open(isoOf(t, folder, "-J", "-joliet-long"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, err := isoFiles(f)
	if err != nil {
		t.Fatal(err)
	}
	want, err := folderFiles(folder)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%d files, want %d: %q", len(got), len(want), got)
	}
}

func FuzzISO(f *testing.F) {
	sector := make([]byte, 20*isoSector)
	copy(sector[16*isoSector:], "\x01CD001")
	copy(sector[16*isoSector+156:], []byte{34, 0, 18, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0})
	sector[16*isoSector+156+25], sector[16*isoSector+156+32] = 2, 1
	copy(sector[18*isoSector:], []byte{40, 0, 19})
	sector[18*isoSector+32] = 5
	copy(sector[18*isoSector+33:], "A.B;1")
	f.Add(sector)
	f.Fuzz(func(t *testing.T, p []byte) {
		files, err := isoFiles(bytes.NewReader(p))
		if err == nil && len(files) > len(p) {
			t.Errorf("%d files in %d bytes", len(files), len(p))
		}
	})
}
