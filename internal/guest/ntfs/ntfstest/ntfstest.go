// Package ntfstest makes NTFS volumes for tests with the tools of the NTFS-3G project:
// mkntfs formats them, and ntfs-3g writes the files of a test.
package ntfstest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Volume formats a file of mib MiB, calls fill with the folder where the volume is mounted, and returns
// the file's path. mkntfs are further arguments of that tool. All data is on the volume on return.
func Volume(t testing.TB, mib int64, fill func(root string), mkntfs ...string) string {
	t.Helper()
	path := Blank(t, mib, mkntfs...)
	Fill(t, path, fill)
	return path
}

// Blank formats a file of mib MiB and returns its path. mkntfs are further arguments of that tool.
func Blank(t testing.TB, mib int64, mkntfs ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ntfs.img")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, mib<<20); err != nil {
		t.Fatal(err)
	}
	// -F formats a regular file, -Q skips zeroing, and -p, -H and -S set the geometry that a file does
	// not have.
	args := append([]string{"-F", "-Q", "-q", "-p", "2048", "-H", "255", "-S", "63"}, mkntfs...)
	runTool(t, "mkntfs", append(args, path)...)
	return path
}

// Fill mounts a volume, calls fill with the mount point, and unmounts it. It returns after the driver
// has exited, because the driver writes in the background.
func Fill(t testing.TB, path string, fill func(root string)) {
	t.Helper()
	root := t.TempDir()
	// The driver inherits the write end; a read from the other end returns when the driver has exited.
	left, stays, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer left.Close()
	cmd := exec.Command(toolPath(t, "ntfs-3g"), "-o", "compression,no_def_opts,silent", path, root)
	cmd.ExtraFiles = []*os.File{stays} // open until the driver exits
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("ntfs-3g: %v: %s", err, out)
	}
	stays.Close()
	defer func() {
		runTool(t, "umount", root)
		if _, err := left.Read(make([]byte, 1)); err == nil { // returns when the driver has exited
			t.Error("the driver printed a message")
		}
	}()
	fill(root)
}

// Write writes a file below root and creates its parent folders.
func Write(t testing.TB, root, name string, data []byte) {
	t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// toolPath returns the path of a tool. It skips the test if the tool is not installed.
func toolPath(t testing.TB, name string) string {
	t.Helper()
	for _, dir := range []string{"", "/usr/sbin", "/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path
		}
	}
	t.Skipf("no %s: run scripts/setup.sh test", name)
	return ""
}

// runTool runs a tool and fails the test if it fails.
func runTool(t testing.TB, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(toolPath(t, name), args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
}
