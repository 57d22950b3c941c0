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

// modprobe finds in our index what is in it, and nothing else.
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
	shown := func(name string) string {
		cmd := exec.Command(tool(t, "modprobe"), "-d", dir, "-S", release, "--show-depends", name)
		var out bytes.Buffer
		cmd.Stdout = &out
		_ = cmd.Run() // that it fails shows in what it does not say
		return out.String()
	}
	for _, name := range names {
		want := fmt.Sprintf("kernel/%s.ko", strings.ReplaceAll(name, "_", "-"))
		if got := shown(name); !strings.Contains(got, want) || name != "a" && !strings.Contains(got, "kernel/a.ko") {
			t.Errorf("%s: modprobe shows %q", name, got)
		}
	}
	for _, name := range []string{"b", "virt", "virtio_", "zz"} {
		if got := shown(name); got != "" {
			t.Errorf("%s: modprobe shows %q, and there is none", name, got)
		}
	}
}
