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

// winFolder returns an unpacked virtio-win with the given files.
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

// allDrivers are the files of a virtio-win for two Windows versions.
var allDrivers = []string{"viostor/2k19/amd64/viostor.sys", "vioscsi/2k19/amd64/vioscsi.sys", "NetKVM/2k19/amd64/netkvm.inf",
	"vioscsi/w8.1/x86/vioscsi.sys", "NetKVM/w8.1/x86/netkvm.inf", "virtio-win_license.txt"}

// Releases of virt-v2v: those before 2.4 only install viostor.
var (
	oldTool = Tool{Version: "2.2.0"}
	newTool = Tool{Version: "2.12.1", options: map[string]bool{optionBlockDriver: true}}
)

// toolsFolder returns a folder with the program that virt-v2v installs to run scripts in Windows.
func toolsFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "rhsrvany.exe"), []byte("MZ"), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestWindowsDriversAreFound(t *testing.T) {
	t.Parallel()
	folder, tools := winFolder(t, allDrivers...), toolsFolder(t)
	environ := func() []string { return []string{"VIRT_TOOLS_DATA_DIR=" + tools} }
	places := map[string]string{"folder": folder, "iso": isoOf(t, folder, "-J", "-r"), "iso without Joliet": isoOf(t, folder)}
	for name, place := range places {
		for _, c := range []struct {
			w          *Windows
			old, newer bool // whether oldTool and newTool find their drivers
		}{
			{&Windows{}, true, true},
			{&Windows{Build: 17763, Arch: "x86_64", Server: true}, true, true},
			{&Windows{Build: 20348, Arch: "x86_64", Server: true}, false, false}, // the drivers of 2019 do not match
			{&Windows{Build: 14393, Arch: "x86_64", Server: true}, false, false},
			{&Windows{Build: 14393, Arch: "x86_64", Server: true, OrNewer: true}, true, true},
			{&Windows{Build: 17763, Arch: "aarch64", Server: true}, false, false},
			{&Windows{Build: 9600, Arch: "i386"}, false, true},
			{&Windows{Build: 9600, Arch: "x86_64"}, false, false},
			{&Windows{Build: 7601, Arch: "x86_64"}, false, false},
		} {
			if name == "iso without Joliet" && c.w.Build == 9600 {
				continue // ECMA-119 has no folder w8.1
			}
			for tool, good := range map[*Tool]bool{&oldTool: c.old, &newTool: c.newer} {
				err := New(Options{Drivers: place, Environ: environ}).CheckDrivers(*tool, c.w)
				if (err == nil) != good {
					t.Errorf("%s, %s, %v: %v", name, tool.Version, c.w, err)
				}
				if err != nil && (!fault.Is(err, fault.NotFound) || !strings.Contains(fault.HintOf(err), "--virtio-win")) {
					t.Errorf("%s, %v: %v (%s)", name, c.w, err, fault.HintOf(err))
				}
			}
		}
	}
}

// virt-v2v uses the driver folder of one Windows release. The names match its windows_virtio.ml.
func TestDriverFoldersOfWindowsReleases(t *testing.T) {
	t.Parallel()
	for want, w := range map[string]Windows{
		"xp": {Build: 2600}, "2k3": {Build: 3790, Server: true}, "2k8 vista": {Build: 6002}, "2k8": {Build: 6003, Server: true},
		"w7": {Build: 7601}, "2k8r2": {Build: 7601, Server: true}, "w8": {Build: 9200}, "2k12": {Build: 9200, Server: true},
		"w8.1": {Build: 9600}, "2k12r2": {Build: 9600, Server: true}, "w10": {Build: 19045}, "w11": {Build: 22631},
		"2k16": {Build: 14393, Server: true}, "2k19": {Build: 17763, Server: true}, "2k22": {Build: 20348, Server: true},
		"2k25 2k16": {Build: 26100, Server: true}, "": {}, "w10 w11": {Build: 10240, OrNewer: true},
		"2k22 2k25 2k16": {Build: 20348, Server: true, OrNewer: true},
	} {
		if got := strings.Join(w.driverFolderNames(), " "); got != want {
			t.Errorf("%+v: %q, want %q", w, got, want)
		}
	}
}

func TestMissingOrInvalidDrivers(t *testing.T) {
	t.Parallel()
	other, tools := filepath.Join(t.TempDir(), "other.iso"), toolsFolder(t)
	if err := os.WriteFile(other, make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	environ := func() []string { return []string{"VIRT_TOOLS_DATA_DIR=" + tools} }
	for place, kind := range map[string]fault.Kind{
		"": fault.NotFound, "/nowhere/virtio-win.iso": fault.NotFound, other: fault.Corrupt, t.TempDir(): fault.NotFound,
		winFolder(t, "viostor/2k19/amd64/viostor.sys"): fault.NotFound, // no network
	} {
		err := New(Options{Drivers: place, Environ: environ}).CheckDrivers(oldTool, &Windows{})
		if !fault.Is(err, kind) || !strings.Contains(fault.HintOf(err), "--virtio-win") {
			t.Errorf("%q: %v (%s)", place, err, fault.HintOf(err))
		}
	}
	e := New(Options{Environ: func() []string { return []string{"VIRTIO_WIN=/a"} }})
	if e.Drivers() != "/a" {
		t.Errorf("drivers %q", e.Drivers())
	}
	none := t.TempDir()
	e = New(Options{Drivers: winFolder(t, allDrivers...), Environ: func() []string { return []string{"VIRT_TOOLS_DATA_DIR=" + none} }})
	if err := e.CheckDrivers(oldTool, &Windows{}); !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), none) || !strings.Contains(fault.HintOf(err), "rhsrvany") {
		t.Errorf("without rhsrvany.exe: %v (%s)", err, fault.HintOf(err))
	}
}

// The guest ID of VMware may be outdated: after an upgrade in place the guest is newer than the ID, but of the same
// edition and architecture.
func TestWindowsOfAGuestID(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]*Windows{
		"windows2019srv_64Guest":     {17763, "x86_64", true, true},
		"windows2019srvNext_64Guest": {20348, "x86_64", true, true},
		"windows2022srvNext_64Guest": {26100, "x86_64", true, true},
		"windows9Server64Guest":      {10240, "x86_64", true, true},
		"windows9_64Guest":           {10240, "x86_64", false, true},
		"windows9Guest":              {10240, "i386", false, true},
		"windows11_64Guest":          {22000, "x86_64", false, true},
		"windows7Server64Guest":      {7600, "x86_64", true, true},
		"winNetEnterprise64Guest":    {3790, "x86_64", true, true},
		"winNetStandardGuest":        {3790, "i386", true, true},
		"winLonghorn64Guest":         {6000, "x86_64", true, true},
		"winXPPro64Guest":            {2600, "x86_64", false, true},
		"winXPProGuest":              {2600, "i386", false, true},
		"win98Guest":                 nil, "windowsHyperVGuest": nil, "debian12_64Guest": nil, "": nil, "windows9_64": nil,
	} {
		got := WindowsOf(id)
		if (got == nil) != (want == nil) || got != nil && *got != *want {
			t.Errorf("%s: %+v, want %+v", id, got, want)
		}
	}
}

// isoOf creates an ISO image of a folder with genisoimage.
func isoOf(t *testing.T, folder string, args ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.iso")
	args = append([]string{"-quiet", "-o", path}, append(args, folder)...)
	if out, err := exec.Command("genisoimage", args...).CombinedOutput(); err != nil {
		t.Fatalf("genisoimage: %v: %s", err, out)
	}
	return path
}

// isoFiles lists the same files as the folder that genisoimage packed.
func TestISOFiles(t *testing.T) {
	t.Parallel()
	var many []string
	for i := range 300 {
		many = append(many, "many/folder with a long name/"+strings.Repeat("x", i%40)+string(rune('a'+i%26))+".inf")
	}
	slices.Sort(many)
	many = slices.Compact(many)
	folder := winFolder(t, append(many, allDrivers...)...)
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
