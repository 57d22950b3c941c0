package extwrite

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/guest/budget/budgettest"
	"github.com/decamp/decamp/test/lane"
)

// findTool returns the path of a program of e2fsprogs. It also searches the sbin folders, which are often not in
// PATH.
func findTool(t testing.TB, name string) string {
	t.Helper()
	for _, dir := range []string{"", "/usr/sbin", "/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path
		}
	}
	t.Fatalf("no %s: run scripts/setup.sh test", name)
	return ""
}

func runProgram(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(findTool(t, name), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// form is a variant of file systems that mke2fs creates.
type form struct {
	name string
	size string
	args []string
}

func allForms() []form {
	return []form{
		{"ext4", "64M", []string{"-t", "ext4"}},
		{"ext4 1k", "40M", []string{"-t", "ext4", "-b", "1024"}},
		{"ext4 2k", "40M", []string{"-t", "ext4", "-b", "2048"}},
		{"ext4 large", "2G", []string{"-t", "ext4"}},
		{"ext4 old", "64M", []string{"-t", "ext4", "-O", "^metadata_csum,^64bit,uninit_bg"}},
		{"ext4 no checksums", "64M", []string{"-t", "ext4", "-O", "^metadata_csum,^uninit_bg"}},
		{"ext4 32 bit", "64M", []string{"-t", "ext4", "-O", "^64bit"}},
		{"ext4 no flex", "300M", []string{"-t", "ext4", "-O", "^flex_bg", "-b", "1024"}},
		{"ext4 seed", "64M", []string{"-t", "ext4", "-O", "metadata_csum_seed"}},
		{"ext4 two backups", "300M", []string{"-t", "ext4", "-b", "1024", "-O", "sparse_super2,^resize_inode"}},
		{"ext4 no journal", "64M", []string{"-t", "ext4", "-O", "^has_journal,large_dir"}},
		{"ext4 small inodes", "64M", []string{"-t", "ext4", "-I", "128"}},
		{"ext4 large inodes", "64M", []string{"-t", "ext4", "-I", "1024"}},
		{"ext3", "64M", []string{"-t", "ext3"}},
		{"ext3 1k", "40M", []string{"-t", "ext3", "-b", "1024"}},
		{"ext2", "64M", []string{"-t", "ext2"}},
		{"ext2 1k", "40M", []string{"-t", "ext2", "-b", "1024"}},
		{"ext2 no types", "40M", []string{"-t", "ext2", "-b", "1024", "-O", "^filetype,^dir_index"}},
		{"ext2 all supers", "80M", []string{"-t", "ext2", "-b", "1024", "-O", "^sparse_super,^resize_inode"}},
	}
}

// mainForms returns the forms for tests that take long. With the build tag slow these are all forms. Otherwise they
// include each block size, each way to store free blocks, and the oldest form.
func mainForms() (main []form) {
	for _, f := range allForms() {
		switch f.name {
		case "ext4", "ext4 1k", "ext4 no checksums", "ext4 no journal", "ext3", "ext2 no types":
			main = append(main, f)
		default:
			if lane.Slow {
				main = append(main, f)
			}
		}
	}
	return main
}

func formNamed(t testing.TB, name string) form {
	t.Helper()
	for _, f := range allForms() {
		if f.name == name {
			return f
		}
	}
	t.Fatalf("no form named %q", name)
	return form{}
}

// makeImage creates a file system of this form with the files of a folder.
func (f form) makeImage(t testing.TB, tree string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image")
	args := append([]string{"-q", "-F", "-U", "8d1a40a3-9a52-4b93-a2cc-5a4dd15c4d2b", "-E", "root_owner=0:0,hash_seed=0b6a2d36-61a9-4b86-8f04-3e1b7c0d5e11"}, f.args...)
	if tree != "" {
		args = append(args, "-d", tree)
	}
	runProgram(t, "mke2fs", append(args, path, f.size)...)
	return path
}

// seed is the folder of seedTree. It is empty before the first call.
var (
	seed     string
	seedLock sync.Mutex
)

// TestMain removes the folder that the tests share.
func TestMain(m *testing.M) {
	code := m.Run()
	if err := os.RemoveAll(seed); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// seedTree returns a folder with files of several sizes, links, and a folder with many names. Tests share it and
// must not change it.
func seedTree(t testing.TB) string {
	t.Helper()
	seedLock.Lock()
	defer seedLock.Unlock()
	if seed == "" {
		dir, err := os.MkdirTemp("", "extwrite-")
		if err != nil {
			t.Fatal(err)
		}
		seed = dir
		writeSeedTree(t, dir)
	}
	return seed
}

func writeSeedTree(t testing.TB, dir string) {
	t.Helper()
	err := errors.Join(
		os.MkdirAll(filepath.Join(dir, "etc/many"), 0o755),
		os.MkdirAll(filepath.Join(dir, "boot"), 0o755),
		os.WriteFile(filepath.Join(dir, "etc/fstab"), []byte("/dev/sda1 / ext4 defaults 0 1\n"), 0o640),
		os.WriteFile(filepath.Join(dir, "etc/empty"), nil, 0o644),
		os.WriteFile(filepath.Join(dir, "boot/initrd"), pattern(300_001), 0o644),
		os.Symlink("etc", filepath.Join(dir, "conf")),
		os.Symlink("/etc/fstab", filepath.Join(dir, "boot/fstab")),
		os.Symlink("/"+strings.Repeat("a", 90), filepath.Join(dir, "long")),
	)
	for i := range 700 {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, "etc/many", fmt.Sprintf("a file with number %d", i)), nil, 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// pattern returns n bytes that differ from block to block.
func pattern(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i>>10 + i*7)
	}
	return p
}

var fixedTime = time.Date(2039, 5, 6, 7, 8, 9, 0, time.UTC) // needs more than 31 bits of seconds

// opened is an open file system and the path of its image.
type opened struct {
	*FS
	path string
}

func openImage(t testing.TB, path string) opened {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	fs, err := Open(budgettest.ReadWriter(t, f), func() time.Time { return fixedTime })
	if err != nil {
		t.Fatal(err)
	}
	return opened{fs, path}
}

// checkClean flushes and requires that e2fsck finds no errors.
func (o opened) checkClean(t testing.TB) {
	t.Helper()
	if err := o.Flush(); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(findTool(t, "e2fsck"), "-fn", o.path).CombinedOutput(); err != nil {
		t.Fatalf("e2fsck -fn: %v\n%s", err, out)
	}
}

// debugfs runs several requests in one debugfs process and returns the output of each.
func (o opened) debugfs(t testing.TB, requests ...string) (answers []string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "requests")
	if err := os.WriteFile(file, []byte(strings.Join(requests, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := newCommand(t, "debugfs", "-f", file, o.path).Output()
	if err != nil {
		t.Fatal(err)
	}
	rest := string(out)
	for i, request := range requests {
		_, after, found := strings.Cut(rest, "debugfs: "+request+"\n")
		if !found {
			t.Fatalf("debugfs has no answer to %s: %q", request, rest)
		}
		rest = after
		if i+1 < len(requests) {
			after, _, _ = strings.Cut(rest, "debugfs: "+requests[i+1]+"\n")
		}
		answers = append(answers, after)
	}
	return answers
}

func newCommand(t testing.TB, name string, args ...string) *exec.Cmd {
	t.Helper()
	return exec.Command(findTool(t, name), args...)
}

// memory is a disk in memory.
type memory struct{ data []byte }

func (m *memory) load(t testing.TB, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	m.data = data
}

func (m *memory) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off+int64(len(p)) > int64(len(m.data)) {
		return 0, io.ErrUnexpectedEOF
	}
	return copy(p, m.data[off:]), nil
}

func (m *memory) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 || off+int64(len(p)) > int64(len(m.data)) {
		return 0, io.ErrShortWrite
	}
	return copy(m.data[off:], p), nil
}

func openMemory(t testing.TB, m *memory) *FS {
	t.Helper()
	fs, err := Open(budgettest.ReadWriter(t, m), func() time.Time { return fixedTime })
	if err != nil {
		t.Fatal(err)
	}
	return fs
}

// smallTree returns a folder for a file system of 1 MiB.
func smallTree(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	err := errors.Join(
		os.Mkdir(filepath.Join(dir, "etc"), 0o755),
		os.WriteFile(filepath.Join(dir, "etc/fstab"), pattern(30_000), 0o644),
		os.Symlink("etc", filepath.Join(dir, "link")),
	)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
