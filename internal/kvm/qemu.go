package kvm

import (
	"os/exec"

	"github.com/decamp/decamp/internal/fault"
)

// QEMU returns the path of the emulator, whose name differs between Debian and Red Hat.
// The error is fault.NotFound if it is not installed.
func QEMU() (string, error) {
	for _, name := range []string{"qemu-system-x86_64", "qemu-kvm", "/usr/libexec/qemu-kvm"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fault.New(fault.NotFound, "QEMU is not installed on this machine").
		WithHint("apt install qemu-system-x86   # dnf install qemu-kvm; zypper install qemu-x86")
}
