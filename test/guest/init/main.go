// Command init is the complete user space of the test guest: /init of its initramfs and /sbin/init of its root file
// system. It uses only the standard library and is built without cgo.
//
// As /init it loads the kernel modules that are listed in /conf/modules, waits for the disk in root= and executes
// /sbin/init from it. As /sbin/init it counts the boot, prints one marker line on the console and powers off:
//
//	DECAMP-MARKER boot=ok n=1 root=/dev/sda1 disk=sda,vmw_pvscsi
//	net=eth0=00:50:56:00:00:01/vmxnet3 uuid=564d… fw=bios up=3.86
//
// (one line). A guest that has QEMU's guest agent runs it instead of powering off, if the VM has a
// channel for it. A failure prints DECAMP-MARKER boot=failed and the reason.
package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

func main() {
	if err := mountKernelTrees(); err != nil {
		reportFailure(err)
	}
	half := runOnRoot // /sbin/init of the root file system
	if _, err := os.Stat(modulesList); err == nil {
		half = runInitramfs // only the initramfs has a list of modules
	}
	if err := half(); err != nil {
		reportFailure(err)
	}
	powerOff()
}

// reportFailure prints a marker with the error and powers off.
func reportFailure(err error) {
	fmt.Printf("DECAMP-MARKER boot=failed %v\n", err)
	powerOff()
}

// powerOff waits until the console has sent its output, and powers off. It does not return: the exit of
// PID 1 is a kernel panic.
func powerOff() {
	const tcsbrk, waitUntilSent = 0x5409, 1 // ioctl of tcdrain
	_, _, _ = syscall.Syscall(syscall.SYS_IOCTL, os.Stdout.Fd(), tcsbrk, waitUntilSent)
	syscall.Sync()
	_ = syscall.Reboot(syscall.LINUX_REBOOT_CMD_POWER_OFF)
	select {} // the power goes off
}

// mountKernelTrees mounts /proc, /sys and /dev unless they are mounted.
func mountKernelTrees() error {
	for dir, fs := range map[string]string{"/proc": "proc", "/sys": "sysfs", "/dev": "devtmpfs"} {
		if err := syscall.Mount(fs, dir, fs, 0, ""); err != nil && err != syscall.EBUSY {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	return nil
}

// bootArg returns the value of name= on the kernel's command line.
func bootArg(name string) (string, error) {
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return "", err
	}
	for word := range strings.FieldsSeq(string(line)) {
		if value, ok := strings.CutPrefix(word, name+"="); ok {
			return value, nil
		}
	}
	return "", fmt.Errorf("no %s= on the kernel's command line", name)
}
