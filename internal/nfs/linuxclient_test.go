//go:build slow

package nfs_test

import (
	"bufio"
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The NFS client of the Linux kernel, in a virtual machine, works with the server: names, listings of changing
// folders, and fsx with and without the client's cache. It also works if the server restarts many times.
func TestTheLinuxClient(t *testing.T) {
	for _, tool := range []string{"qemu-system-x86_64", "cpio", "go"} {
		requireTool(t, tool)
	}
	kernel, initramfs := buildMachine(t)
	t.Run("in peace", func(t *testing.T) {
		runMachine(newRig(t, nil), kernel, initramfs, func() {})
	})
	t.Run("with restarts", func(t *testing.T) {
		r := newRig(t, nil)
		restarts := 0
		runMachine(r, kernel, initramfs, func() { restarts++; r.restart() })
		if restarts < 10 {
			t.Errorf("%d restarts, want at least 10", restarts)
		}
	})
}

// runMachine boots a machine that mounts the rig's server, and calls restart each time the machine prints progress.
func runMachine(r *rig, kernel, initramfs string, restart func()) {
	r.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", "-accel", "tcg", "-m", "512", "-nographic", "-no-reboot",
		"-kernel", kernel, "-initrd", initramfs, "-append", "console=ttyS0 panic=-1 quiet nfsport="+r.port(),
		"-netdev", "user,id=n", "-device", "virtio-net-pci,netdev=n")
	console, err := cmd.StdoutPipe()
	if err != nil {
		r.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		r.Fatal(err)
	}
	log := watchConsole(r, console, restart)
	if err := cmd.Wait(); err != nil {
		r.Errorf("the machine: %v", err)
	}
	for _, want := range []string{"end names", "end rights", "end silly", "end telldir", "end fsx\n", "end fsx direct", "end unmount", "DONE"} {
		if !strings.Contains(log, want) {
			r.Errorf("the machine did not print %q", want)
		}
	}
	if strings.Contains(log, "FAIL") || r.Failed() {
		r.Errorf("console of the machine:\n%s", log)
	}
}

// watchConsole reads the console to its end and returns its text. It calls restart after each progress line.
func watchConsole(r *rig, console io.Reader, restart func()) string {
	var log strings.Builder
	for lines := bufio.NewScanner(console); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		log.WriteString(line + "\n")
		if line == "progress" || strings.HasPrefix(line, "begin ") {
			restart()
		}
	}
	return log.String()
}

// buildMachine returns the kernel that scripts/setup.sh unpacked and an initramfs with the
// client's modules and package linuxclient as init.
func buildMachine(t *testing.T) (kernel, initramfs string) {
	t.Helper()
	if testing.Short() {
		t.Skip("boots a machine")
	}
	const unpacked = "../../build/kernel"
	images, err := filepath.Glob(unpacked + "/boot/vmlinuz-*")
	if err != nil || len(images) != 1 {
		t.Skipf("needs a kernel in %s: run scripts/setup.sh slow", unpacked)
	}
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "modules"), 0o755); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-o", filepath.Join(root, "init"), "./linuxclient")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build init: %v\n%s", err, out)
	}
	var order []string
	for _, path := range moduleFiles(t, unpacked, "virtio_pci", "virtio_net", "nfsv3") {
		copyFile(t, path, filepath.Join(root, "modules", filepath.Base(path)))
		order = append(order, filepath.Base(path))
	}
	if err := os.WriteFile(filepath.Join(root, "modules.order"), []byte(strings.Join(order, "\n")), 0o644); err != nil {
		t.Fatal(err)
	}
	initramfs = filepath.Join(t.TempDir(), "initramfs")
	pack := exec.Command("sh", "-c", `find . | cpio --quiet -o -H newc >"$0"`, initramfs)
	pack.Dir = root
	if out, err := pack.CombinedOutput(); err != nil {
		t.Fatalf("pack initramfs: %v\n%s", err, out)
	}
	return images[0], initramfs
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	p, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, p, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// moduleFiles returns the files of kernel modules and their dependencies, in the order in which they can be
// inserted.
func moduleFiles(t *testing.T, dir string, names ...string) []string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(filepath.Join(dir, "lib", "modules"), func(path string, _ fs.DirEntry, err error) error {
		if name, ok := strings.CutSuffix(filepath.Base(path), ".ko"); ok {
			found[strings.ReplaceAll(name, "-", "_")] = path
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	var add func(name string)
	add = func(name string) {
		path := found[strings.ReplaceAll(name, "-", "_")]
		if path == "" {
			t.Fatalf("the kernel has no module %s", name)
		}
		for _, needed := range moduleDependencies(t, path) {
			add(needed)
		}
		if !slices.Contains(order, path) {
			order = append(order, path)
		}
	}
	for _, name := range names {
		add(name)
	}
	return order
}

// moduleDependencies returns the modules that a module depends on.
func moduleDependencies(t *testing.T, path string) []string {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(fmt.Errorf("read module %s: %w", path, err))
	}
	defer f.Close()
	info, err := f.Section(".modinfo").Data()
	if err != nil {
		t.Fatal(err)
	}
	for entry := range bytes.SplitSeq(info, []byte{0}) {
		if list, ok := bytes.CutPrefix(entry, []byte("depends=")); ok && len(list) > 0 {
			return strings.Split(string(list), ",")
		}
	}
	return nil
}
