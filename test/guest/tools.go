package guest

import (
	"fmt"
	"os/exec"
	"path/filepath"
)

// Tools lists the programs that Build runs.
func Tools() []string {
	return []string{"sfdisk", "mke2fs", "grub-mkimage", "mkfs.fat", "mmd", "mcopy", "go"}
}

// lookTool returns the path of a program, also in the folders for root's programs, which are not in the
// PATH of other users.
func lookTool(name string) (string, error) {
	for _, dir := range []string{"", "/usr/sbin", "/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("no %s: run scripts/setup.sh demo", name)
}
