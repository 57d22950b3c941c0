package extwrite

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest/budget/budgettest"
	"github.com/decamp/decamp/internal/guest/ext"
	"github.com/decamp/decamp/test/lane"
)

// Every operation works on every form of file system. e2fsck checks the result and debugfs reads it. With the build
// tag slow, e2fsck runs after each operation on each form, otherwise only on the first form.
func TestEveryOperationOnEveryFileSystem(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	tree := seedTree(t)
	for i, f := range allForms() {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			fs := openImage(t, f.makeImage(t, tree))
			checkOperation := func(name string, err error) {
				t.Helper()
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if lane.Slow || i == 0 {
					fs.checkClean(t)
				}
			}
			text := strings.Repeat("UUID=8d1a40a3 / ext4 defaults 0 1\n", 900)
			tail := pattern(2_000_003)
			checkOperation("replace", fs.WriteFile("/boot/fstab", []byte(text), Attr{}))
			checkOperation("replace by less", fs.WriteFile("etc/many/a file with number 7", []byte("seven"), Attr{}))
			checkOperation("append", fs.AppendFile("boot/initrd", tail))
			checkOperation("append to nothing", fs.AppendFile("conf/empty", []byte("more")))
			checkOperation("create", fs.WriteFile("etc/new", pattern(70_000), Attr{Mode: 0o600, UID: 70_000, GID: 5}))
			checkOperation("create empty", fs.WriteFile("etc/nothing", nil, Attr{Mode: 0o644}))
			checkOperation("folder", fs.Mkdir("conf/systemd", Attr{Mode: 0o755}))
			checkOperation("folder in folder", fs.Mkdir("etc/systemd/network", Attr{Mode: 0o755}))
			checkOperation("create in it", fs.WriteFile("etc/systemd/network/10.link", []byte("[Match]\n"), Attr{Mode: 0o644}))
			checkOperation("link", fs.Symlink("etc/systemd/open-vm-tools.service", "/dev/null"))
			checkOperation("empty", fs.WriteFile("boot/initrd", nil, Attr{}))
			checkOperation("fill again", fs.WriteFile("boot/initrd", tail, Attr{}))
			fs.checkClean(t)

			contents := map[string]string{
				"/etc/fstab": text, "/etc/many/a file with number 7": "seven", "/boot/initrd": string(tail), "/etc/empty": "more",
				"/etc/new": string(pattern(70_000)), "/etc/nothing": "", "/etc/systemd/network/10.link": "[Match]\n",
			}
			paths := slices.Sorted(maps.Keys(contents))
			requests := []string{"stat /etc/new", "stat /etc/fstab", "stat /etc/systemd/open-vm-tools.service"}
			for _, path := range paths {
				requests = append(requests, fmt.Sprintf("cat %q", path))
			}
			answers := fs.debugfs(t, requests...)
			for i, path := range paths {
				want := contents[path]
				if got := answers[3+i]; got != want {
					t.Errorf("%s: debugfs reads %d bytes, want %d", path, len(got), len(want))
				}
				if got, err := fs.ReadFile(path, 1<<30); err != nil || string(got) != want {
					t.Errorf("%s: %d bytes, %v", path, len(got), err)
				}
			}
			if stat := answers[0]; !strings.Contains(stat, "Mode:  0600") || !strings.Contains(stat, "User: 70000   Group:     5") {
				t.Errorf("new file: debugfs prints %s", stat)
			}
			if stat := answers[1]; !strings.Contains(stat, "Mode:  0640") {
				t.Errorf("replaced file: debugfs prints %s", stat)
			}
			if stat := answers[2]; !strings.Contains(stat, `Fast link dest: "/dev/null"`) {
				t.Errorf("link: debugfs prints %s", stat)
			}
		})
	}
}

// Package ext, which is independent of this package, reads the written file.
func TestExtReadsWrittenFiles(t *testing.T) {
	image := &memory{}
	image.load(t, allForms()[0].makeImage(t, seedTree(t)))
	fs := openMemory(t, image)
	text := pattern(50_000)
	if err := fs.WriteFile("etc/os-release", text, Attr{Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	if err := fs.Flush(); err != nil {
		t.Fatal(err)
	}
	reader, err := ext.Open(budgettest.Reader(t, image))
	if err != nil {
		t.Fatal(err)
	}
	got, err := reader.ReadFile("conf/os-release", 1<<20)
	if err != nil || !bytes.Equal(got, text) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// Folders grow by blocks. A folder with a hash tree stores a name in the block in which the kernel searches for
// it. When that block is full, the folder becomes a plain list.
func TestFoldersWithManyNames(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for _, c := range []struct{ form, hash string }{
		{"ext4", "half_md4"}, {"ext4 1k", "half_md4"}, {"ext4 1k", "tea"}, {"ext4 1k", "legacy"},
		{"ext3", "half_md4"}, {"ext3 1k", "tea"}, {"ext2 no types", ""},
	} {
		t.Run(c.form+" "+c.hash, func(t *testing.T) {
			t.Parallel()
			path := formNamed(t, c.form).makeImage(t, seedTree(t))
			if c.hash != "" {
				runProgram(t, "tune2fs", "-E", "hash_alg="+c.hash, path)
				buildHashTrees(t, path)
			}
			fs := openImage(t, path)
			folder, err := fs.paths.resolvePath("etc/many")
			if err != nil {
				t.Fatal(err)
			}
			hashed := folder.flags()&flagIndex != 0
			if want := c.hash != ""; hashed != want {
				t.Fatalf("the folder has a hash tree: %v, want %v", hashed, want)
			}
			kept := 0
			for i := range 300 {
				name := "etc/many/new é " + strings.Repeat("x", i%50) + string(rune('a'+i%26)) + strings.Repeat("y", i/26)
				if err := fs.WriteFile(name, []byte{byte(i)}, Attr{Mode: 0o644}); err != nil {
					t.Fatal(err)
				}
				if i%50 == 0 {
					fs.checkClean(t)
				}
				if n, err := fs.paths.resolvePath("etc/many"); err == nil && n.flags()&flagIndex != 0 {
					kept++
				}
			}
			fs.checkClean(t)
			if hashed && (kept == 0 || kept == 300) {
				t.Errorf("the hash tree was kept for %d of 300 names, want some but not all", kept)
			}
			names, err := fs.Names("/etc/many")
			if err != nil || len(names) != 1000 {
				t.Errorf("%d names, %v", len(names), err)
			}
		})
	}
}

// buildHashTrees runs e2fsck to build the hash trees of all folders, as the kernel does.
func buildHashTrees(t *testing.T, path string) {
	t.Helper()
	// Exit status 1 means that e2fsck changed the file system, as intended.
	if out, err := newCommand(t, "e2fsck", "-fyD", path).CombinedOutput(); err != nil && !strings.Contains(err.Error(), "exit status 1") {
		t.Fatalf("e2fsck -D: %v: %s", err, out)
	}
}

func TestFragmentedFiles(t *testing.T) {
	for _, name := range []string{"ext4", "ext4 1k", "ext2 1k"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fs := openImage(t, formNamed(t, name).makeImage(t, seedTree(t)))
			want := make([][]byte, 2)
			for i := range 1500 { // appending to two files alternately fragments both
				which, part := i%2, pattern(700+i)
				if err := fs.appendOrMake(which, part); err != nil {
					t.Fatal(err)
				}
				want[which] = append(want[which], part...)
			}
			fs.checkClean(t)
			answers := fs.debugfs(t, "cat "+fileOf(0), "cat "+fileOf(1))
			for which, data := range want {
				if got := answers[which]; got != string(data) {
					t.Errorf("%s: %d bytes, want %d", fileOf(which), len(got), len(data))
				}
			}
			before, err := fs.Free()
			if err != nil {
				t.Fatal(err)
			}
			if err := fs.WriteFile(fileOf(0), nil, Attr{}); err != nil {
				t.Fatal(err)
			}
			fs.checkClean(t)
			if after, err := fs.Free(); err != nil || after < before+int64(len(want[0])) {
				t.Errorf("%d bytes free, %d before: the old blocks were not freed", after, before)
			}
		})
	}
}

func fileOf(which int) string { return []string{"/etc/one", "/boot/two"}[which] }

func (o opened) appendOrMake(which int, part []byte) error {
	if _, err := o.Size(fileOf(which)); err != nil {
		return o.WriteFile(fileOf(which), part, Attr{Mode: 0o644})
	}
	return o.AppendFile(fileOf(which), part)
}

// If the file system is full, a call returns an error and changes nothing. Smaller writes still succeed.
func TestFullFileSystemRefusesWriteUnchanged(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for _, f := range mainForms() {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			f.size = "24M"
			fs := openImage(t, f.makeImage(t, seedTree(t)))
			free, err := fs.Free()
			if err != nil {
				t.Fatal(err)
			}
			for _, change := range []func() error{
				func() error { return fs.WriteFile("etc/new", make([]byte, free+1), Attr{Mode: 0o644}) },
				func() error { return fs.WriteFile("etc/fstab", make([]byte, free+64<<10), Attr{}) },
				func() error { return fs.AppendFile("boot/initrd", make([]byte, free+64<<10)) },
			} {
				if err := change(); !fault.Is(err, fault.Full) || fault.HintOf(err) == "" {
					t.Fatalf("got %v, want a full error with a remedy", err)
				}
			}
			if len(fs.stage.staged)+len(fs.stage.pending) != 0 {
				t.Error("a failed call left changes")
			}
			if err := fs.AppendFile("boot/initrd", make([]byte, free-256<<10)); err != nil {
				t.Fatal(err)
			}
			fs.checkClean(t)
			taken := 0
			for ; taken < 10_000; taken++ { // fills the last block
				if err := fs.AppendFile("etc/fstab", make([]byte, fs.super.blockSize)); err != nil {
					if !fault.Is(err, fault.Full) {
						t.Fatal(err)
					}
					break
				}
			}
			if taken == 0 {
				t.Error("no write succeeded in the last 256 KiB")
			}
			fs.checkClean(t)
		})
	}
}

func TestInodesRunOut(t *testing.T) {
	f := form{"few inodes", "8M", []string{"-t", "ext4", "-N", "16"}}
	fs := openImage(t, f.makeImage(t, ""))
	made := 0
	for ; made < 100; made++ {
		if err := fs.WriteFile(strings.Repeat("x", made+1), nil, Attr{Mode: 0o644}); err != nil {
			if !fault.Is(err, fault.Full) || !strings.Contains(err.Error(), "inode") {
				t.Fatal(err)
			}
			break
		}
	}
	if made == 0 || made == 100 {
		t.Errorf("created %d files with 16 inodes", made)
	}
	fs.checkClean(t)
}
