package inside

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// guestFolder returns a root folder with typical links of a guest, and a file next to it that must stay
// inaccessible.
func guestFolder(t *testing.T) (*folder, string) {
	t.Helper()
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	for _, err := range []error{
		os.MkdirAll(filepath.Join(root, "usr/lib"), 0o755), os.MkdirAll(filepath.Join(root, "etc"), 0o755),
		os.WriteFile(filepath.Join(dir, "secret"), []byte("secret"), 0o644),
		os.WriteFile(filepath.Join(root, "usr/lib/file"), []byte("inside"), 0o640),
		os.Symlink("usr/lib", filepath.Join(root, "lib")),
		os.Symlink("/usr/lib", filepath.Join(root, "absolute")),
		os.Symlink("../../../secret", filepath.Join(root, "etc/out")),
		os.Symlink(filepath.Join(dir, "secret"), filepath.Join(root, "etc/outAbsolute")),
		os.Symlink("loop", filepath.Join(root, "loop")),
		unix.Mkfifo(filepath.Join(root, "pipe"), 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	f, err := openFolder(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.close() })
	return f, root
}

// Links resolve as in the guest, and never outside the root folder.
func TestLinksResolveWithinRootFolder(t *testing.T) {
	f, _ := guestFolder(t)
	for _, path := range []string{"usr/lib/file", "lib/file", "absolute/file", "../../usr/lib/file", "lib/../lib/file"} {
		if got, err := f.readFile(path, 100); err != nil || string(got) != "inside" {
			t.Errorf("%s: content %q, error %v", path, got, err)
		}
	}
	for _, path := range []string{"etc/out", "etc/outAbsolute", "../secret", "nothing", "usr/lib/file/below"} {
		if got, err := f.readFile(path, 100); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: content %q, error %v, want %v", path, got, err, fs.ErrNotExist)
		}
	}
	if _, err := f.readFile("loop", 100); err == nil {
		t.Error("reading a link to itself succeeds")
	}
	if target, err := f.readLink("etc/out"); err != nil || target != "../../../secret" {
		t.Errorf("link to %q, want %q, error %v", target, "../../../secret", err)
	}
}

func TestFileChanges(t *testing.T) {
	f, root := guestFolder(t)
	o := owner{mode: 0o644, uid: os.Getuid(), gid: os.Getgid()}
	for _, err := range []error{
		f.writeFile("lib/file", []byte("new"), o), f.appendFile("absolute/file", []byte(" and more")),
		f.makeFolder("lib/folder", o.with(0o755)), f.writeFile("lib/folder/made", []byte("made"), o.with(0o600)), f.makeSymlink("etc/made", "/dev/null"), f.flush(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]struct {
		text string
		mode fs.FileMode
	}{"usr/lib/file": {"new and more", 0o640}, "usr/lib/folder/made": {"made", 0o600}} {
		got, err := os.ReadFile(filepath.Join(root, path))
		info, statErr := os.Stat(filepath.Join(root, path))
		if err != nil || statErr != nil || string(got) != want.text || info.Mode() != want.mode {
			t.Errorf("%s: content %q, %v, errors %v, %v", path, got, info, err, statErr)
		}
	}
	if target, err := os.Readlink(filepath.Join(root, "etc/made")); err != nil || target != "/dev/null" {
		t.Errorf("link to %q, want %q, error %v", target, "/dev/null", err)
	}
	names, err := f.listNames("lib")
	slices.Sort(names)
	if err != nil || !slices.Equal(names, []string{"file", "folder"}) {
		t.Errorf("names %q, error %v", names, err)
	}
	if n, err := f.size("lib/file"); err != nil || n != 12 {
		t.Errorf("size %d, want 12, error %v", n, err)
	}
}

func (o owner) with(mode uint32) owner {
	o.mode = mode
	return o
}

// Failed requests are reported with the fault kinds of the host. Reading a pipe fails without blocking.
func TestRefusals(t *testing.T) {
	f, _ := guestFolder(t)
	pipe := func() error { _, err := f.readFile("pipe", 100); return err }
	long := func() error { _, err := f.readFile("lib/file", 3); return err }
	for name, c := range map[string]struct {
		err  error
		kind string
	}{
		"pipe": {pipe(), "unsupported"}, "long": {long(), "unsupported"}, "folder": {f.writeFile("usr", nil, owner{}), "unsupported"},
		"exists": {f.makeFolder("etc", owner{}), "conflict"}, "not a folder": {f.writeFile("none/file", nil, owner{}), "not-found"},
		"no name": {f.makeSymlink("etc/..", "x"), "invalid"}, "full": {unix.ENOSPC, "full"}, "damaged": {unix.EUCLEAN, "corrupt"},
	} {
		if c.err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		if r := errorReply(c.err); r.Fault != c.kind {
			t.Errorf("%s: %+v, want %s", name, r, c.kind)
		}
	}
}
