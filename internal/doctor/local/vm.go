package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/convert/virtv2v"
	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/fault"
)

// checkKVM starts a virtual CPU. The device alone proves nothing: a VM without nested
// virtualization may have it as well.
func (e *examiner) checkKVM(ctx context.Context) []doctor.Finding {
	const limit = 2 * time.Second // a vCPU that runs takes a few milliseconds
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	f := doctor.Finding{Found: "a virtual CPU ran its code", Want: "hardware virtualization; emulated VMs are 10 to 100 times slower"}
	err := e.Start(ctx, e.KVM)
	if err == nil {
		return []doctor.Finding{f}
	}
	f.Status = doctor.Warning
	switch {
	// The module is not loaded, or the processor has no virtualization.
	case errors.Is(err, fs.ErrNotExist):
		f.Found = e.KVM + " does not exist" + e.describeVirtualization()
		f.Remedy = "# enable VT-x or AMD-V in the firmware, or nested virtualization on the host of this VM, then:\nmodprobe -a kvm kvm_intel || modprobe -a kvm kvm_amd"
	case errors.Is(err, fs.ErrPermission):
		f.Found, f.Remedy = err.Error(), `sudo usermod -aG kvm "$(id -un)"   # then log in again`
	case errors.Is(err, errors.ErrUnsupported):
		f.Status, f.Found, f.Remedy = doctor.Unknown, err.Error(), "qemu-system-$(uname -m) -accel kvm -M none -display none -S"
	default:
		f.Found = fmt.Sprintf("%s exists, but cannot run a guest: %v", e.KVM, err)
		f.Remedy = "# run the VMs on another machine, or with emulation (<domain type='qemu'>). To find whether this machine is a VM:\nsystemd-detect-virt"
	}
	return []doctor.Finding{f}
}

// describeVirtualization returns a clause for messages about the CPU's virtualization,
// or "" if it is unknown.
func (e *examiner) describeVirtualization() string {
	text, err := fs.ReadFile(e.Root, "proc/cpuinfo")
	switch {
	case err != nil:
		return ""
	case regexp.MustCompile(`(?m)^flags\s*:.*\b(vmx|svm)\b`).Match(text):
		return "; the CPU supports virtualization"
	}
	return "; the CPU reports no virtualization: it is disabled in the firmware, or this machine is a VM"
}

// oldest is the QEMU version of the oldest distribution with long-term support, Debian
// 11.
var oldest = [2]int{5, 2}

// qemuVersion matches the first line of the output.
var qemuVersion = regexp.MustCompile(`^QEMU emulator version (\d{1,4})\.(\d{1,4})`)

// checkQEMU reports a missing or old QEMU.
func (e *examiner) checkQEMU(ctx context.Context) []doctor.Finding {
	const limit = 10 * time.Second // time to load a hundred libraries, perhaps from a cold disk
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	f := doctor.Finding{Want: fmt.Sprintf("QEMU %d.%d or later, to run VMs on this machine", oldest[0], oldest[1])}
	const install = "apt install qemu-system-x86   # dnf install qemu-kvm; zypper install qemu-x86"
	text, err := e.QEMU(ctx)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		f.Status, f.Found, f.Remedy = doctor.Advice, "qemu-system-x86_64 is not installed; VMs can be migrated, but not run on this machine", install
		return []doctor.Finding{f}
	case err != nil:
		f.Status, f.Found, f.Remedy = doctor.Unknown, err.Error(), "qemu-system-x86_64 --version"
		return []doctor.Finding{f}
	}
	line, _, _ := strings.Cut(text, "\n")
	f.Found = line
	switch m := qemuVersion.FindStringSubmatch(line); {
	case m == nil:
		f.Status, f.Remedy = doctor.Unknown, "qemu-system-x86_64 --version"
	case isOlder(m[1], m[2]):
		f.Status, f.Remedy = doctor.Advice, install
	}
	return []doctor.Finding{f}
}

// isOlder reports whether a version is older than oldest. Both arguments are short
// strings of digits.
func isOlder(major, minor string) bool {
	a, _ := strconv.Atoi(major)
	b, _ := strconv.Atoi(minor)
	return a < oldest[0] || a == oldest[0] && b < oldest[1]
}

// v2v reports a missing or old virt-v2v. Only the conversion of some guests needs it.
func (e *examiner) v2v(ctx context.Context) []doctor.Finding {
	f := doctor.Finding{Want: "virt-v2v-in-place, to convert Windows, and Linux that linux-append does not support, for virtio"}
	tool, err := e.V2V(ctx)
	switch lacks := tool.MissingFeatures(); {
	case fault.Is(err, fault.NotFound):
		f.Status, f.Found, f.Remedy = doctor.Advice, err.Error()+"; such guests keep their hardware", virtv2v.InstallHint
	case err != nil:
		f.Status, f.Found, f.Remedy = doctor.Unknown, err.Error(), "virt-v2v-in-place --version"
	case len(lacks) > 0:
		f.Status, f.Found = doctor.Advice, tool.String()+" has "+strings.Join(lacks, "; ")
		f.Remedy = "install virt-v2v 2.12 or later to convert Windows, or guests with much free space"
	default:
		f.Found = tool.String()
	}
	return []doctor.Finding{f}
}
