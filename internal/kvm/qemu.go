package kvm

import (
	"os/exec"

	"github.com/decamp/decamp/internal/fault"
)

// QEMU returns the path of the emulator, which has another name on Debian than on Red Hat.
func QEMU() (string, error) {
	for _, name := range []string{"qemu-system-x86_64", "qemu-kvm", "/usr/libexec/qemu-kvm"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fault.New(fault.NotFound, "QEMU is not installed here").
		WithHint("apt install qemu-system-x86   # dnf install qemu-kvm; zypper install qemu-x86")
}
