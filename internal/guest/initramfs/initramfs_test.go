package initramfs

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// packed runs a program on data.
func packed(t testing.TB, data []byte, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdin = bytes.NewReader(data)
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v: %s (scripts/setup.sh test installs it)", name, err, complaints.String())
	}
	return out.Bytes()
}

// archived has cpio make an archive of a folder.
func archived(t testing.TB, files map[string]string) []byte {
	t.Helper()
	dir := t.TempDir()
	var list []string
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
		list = append(list, name)
	}
	slices.Sort(list)
	cmd := exec.Command("cpio", "-o", "-H", "newc", "--quiet", "-D", dir)
	cmd.Stdin = strings.NewReader(strings.Join(list, "\n"))
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("cpio: %v", err)
	}
	return out
}

// read returns what an initramfs holds; later files win.
func read(data []byte) (map[string]string, error) {
	seen := map[string]string{}
	err := Read(data, func(e Entry, body io.Reader) error {
		if e.IsDir() {
			return nil
		}
		text, err := io.ReadAll(body)
		seen[e.Name] = string(text)
		return err
	})
	return seen, err
}

// compressors are the programs that distributions pack an initramfs with.
func compressors() map[string][]string {
	return map[string][]string{
		"plain": nil, "gzip": {"gzip"}, "xz": {"xz", "--check=crc32", "--lzma2=dict=1MiB"}, "zstd": {"zstd", "-19", "-T0"},
		"lz4": {"lz4", "-l"}, "bzip2": {"bzip2"}, "lzma": {"lzma"},
	}
}

func TestReadsWhatDistributionsPack(t *testing.T) {
	long := strings.Repeat("0123456789abcdef", 70_000) + "end"
	for name, program := range compressors() {
		t.Run(name, func(t *testing.T) {
			early := archived(t, map[string]string{"kernel/x86/microcode/GenuineIntel.bin": "microcode"})
			main := archived(t, map[string]string{"conf/modules": "ext4\n", "lib/modules/6.1/kernel/x.ko": long, "init": "#!"})
			if program != nil {
				main = packed(t, main, program[0], program[1:]...)
			}
			seen, err := read(append(append(early, make([]byte, 512)...), main...))
			if err != nil {
				t.Fatal(err)
			}
			for path, want := range map[string]string{"kernel/x86/microcode/GenuineIntel.bin": "microcode", "conf/modules": "ext4\n",
				"lib/modules/6.1/kernel/x.ko": long, "init": "#!"} {
				if seen[path] != want {
					t.Errorf("%s: %d bytes, want %d", path, len(seen[path]), len(want))
				}
			}
		})
	}
}

// What is written reads back, by us and by cpio, also after what was there.
func TestAppendedArchivesWin(t *testing.T) {
	var w Writer
	w.DirsBelow("lib/modules", "lib/modules/6.1/kernel/a/x.ko")
	w.File("lib/modules/6.1/kernel/a/x.ko", []byte("odd"))
	w.DirsBelow("lib/modules", "lib/modules/6.1/kernel/b/y.ko")
	w.File("conf/modules", []byte("virtio_pci\n"))
	added := w.Bytes()
	list := string(packed(t, added, "cpio", "-it", "--quiet"))
	want := "lib/modules/6.1\nlib/modules/6.1/kernel\nlib/modules/6.1/kernel/a\nlib/modules/6.1/kernel/a/x.ko\nlib/modules/6.1/kernel/b\nconf/modules\n"
	if list != want {
		t.Errorf("cpio lists %q, want %q", list, want)
	}
	whole := packed(t, archived(t, map[string]string{"conf/modules": "ext4\n", "init": "#!"}), "gzip")
	whole = append(whole, make([]byte, 4+-len(whole)&3)...)
	whole = append(whole, packed(t, added, "gzip")...)
	seen, err := read(whole)
	if err != nil || seen["conf/modules"] != "virtio_pci\n" || seen["init"] != "#!" || seen["lib/modules/6.1/kernel/a/x.ko"] != "odd" {
		t.Errorf("%q, %v", seen, err)
	}
}

func TestUnpack(t *testing.T) {
	module := []byte("\x7fELF" + strings.Repeat("module ", 5000))
	for name, program := range map[string][]string{"none": nil, "xz": {"xz", "--check=crc32", "--lzma2=dict=1MiB"}, "zstd": {"zstd"}, "gzip": {"gzip"}} {
		data := module
		if program != nil {
			data = packed(t, module, program[0], program[1:]...)
		}
		if got, err := Unpack(data, 1<<20); err != nil || !bytes.Equal(got, module) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		if _, err := Unpack(data, 1000); err == nil && program != nil {
			t.Errorf("%s: more than the limit was unpacked", name)
		}
	}
}

func TestDamageIsAnError(t *testing.T) {
	whole := archived(t, map[string]string{"init": "#!", "conf/modules": "ext4\n"})
	for name, data := range map[string][]byte{
		"cut off":       whole[:len(whole)/2-100],
		"no archive":    []byte("what is this"),
		"huge name":     bytes.Replace(whole, []byte("00000005"), []byte("7FFFFFFF"), 1),
		"gzip cut off":  packed(t, whole, "gzip")[:60],
		"lz4 cut off":   packed(t, whole, "lz4", "-l")[:60],
		"xz, too large": []byte("\xfd7zXZ\x00\x00\x01\x69\x22\xde\x36\x02\x00\x21\x01\x28\x00\x00\x00\x00\x00\x00\x00"),
	} {
		if _, err := read(data); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	stop := errors.New("enough")
	if err := Read(whole, func(Entry, io.Reader) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("an error of visit is lost: %v", err)
	}
}

// FuzzRead reads what nobody packed: no panic, and no more than the bounds.
func FuzzRead(f *testing.F) {
	plain := archived(f, map[string]string{"init": "#!", "conf/modules": "ext4\n"})
	for _, program := range compressors() {
		data := plain
		if program != nil {
			data = packed(f, plain, program[0], program[1:]...)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		files := 0
		_ = Read(data, func(e Entry, body io.Reader) error {
			if files++; files > maxEntries || strings.HasPrefix(e.Name, "/") {
				t.Errorf("entry %d, %q", files, e.Name)
			}
			return nil
		})
	})
}
