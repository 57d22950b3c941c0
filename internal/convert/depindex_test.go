package convert

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// modprobe finds exactly the modules in the generated index.
func TestModprobeReadsTheIndex(t *testing.T) {
	dir := t.TempDir()
	modules := filepath.Join(dir, "lib/modules", release)
	if err := os.MkdirAll(filepath.Join(modules, "kernel"), 0o755); err != nil {
		t.Fatal(err)
	}
	var index depIndex
	names := []string{"a", "ab", "virtio", "virtio_blk", "virtio_net", "x_1", "zz9"}
	for i, name := range names {
		file := fmt.Sprintf("kernel/%s.ko", strings.ReplaceAll(name, "_", "-"))
		if err := os.WriteFile(filepath.Join(modules, file), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		line := file + ":"
		if i > 0 {
			line += " kernel/a.ko"
		}
		index.addName(name, line)
	}
	if err := os.WriteFile(filepath.Join(modules, "modules.dep.bin"), index.encode(), 0o644); err != nil {
		t.Fatal(err)
	}
	showDepends := func(name string) string {
		cmd := exec.Command(findTool(t, "modprobe"), "-d", dir, "-S", release, "--show-depends", name)
		var out bytes.Buffer
		cmd.Stdout = &out
		_ = cmd.Run() // a failure leaves the output empty
		return out.String()
	}
	for _, name := range names {
		want := fmt.Sprintf("kernel/%s.ko", strings.ReplaceAll(name, "_", "-"))
		if got := showDepends(name); !strings.Contains(got, want) || name != "a" && !strings.Contains(got, "kernel/a.ko") {
			t.Errorf("%s: modprobe shows %q, want %q", name, got, want)
		}
	}
	for _, name := range []string{"b", "virt", "virtio_", "zz"} {
		if got := showDepends(name); got != "" {
			t.Errorf("%s: modprobe shows %q, want nothing", name, got)
		}
	}
}
