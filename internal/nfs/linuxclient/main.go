// Linuxclient is the init process of a virtual machine whose kernel mounts an NFS server. It
// tests the server through the kernel, and prints each failure as a line that begins with FAIL.
// TestTheLinuxClient in package nfs starts the machine.
package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// folder at which the server is mounted
const mountPoint = "/mnt"

// main runs the tests and powers the machine off.
func main() {
	if err := prepareSystem(); err != nil {
		fail("prepare: %v", err)
	} else {
		runTests()
	}
	fmt.Println("DONE")
	_ = syscall.Reboot(syscall.LINUX_REBOOT_CMD_POWER_OFF)
}

// fail prints a line that the host counts as a failure.
func fail(format string, args ...any) { fmt.Printf("FAIL "+format+"\n", args...) }

// runTests runs all tests. Each prints a line at its begin and its end.
func runTests() {
	for _, c := range []struct {
		name string
		do   func() error
	}{
		{"names", testNames},
		{"rights", testRights},
		{"silly", testRemoveWhileOpen},
		{"telldir", testTelldir},
		{"fsx", func() error { return runFsx(1, 0) }},
		{"fsx direct", func() error { return runFsx(2, syscall.O_DIRECT) }},
		{"unmount", func() error { return syscall.Unmount(mountPoint, 0) }},
	} {
		fmt.Println("begin", c.name)
		if err := c.do(); err != nil {
			fail("%s: %v", c.name, err)
		}
		fmt.Println("end", c.name)
	}
}

// prepareSystem mounts /proc and /dev, loads the modules of /modules.order, configures the network, and
// mounts the server at the port of the kernel's command line.
func prepareSystem() error {
	for _, m := range [][2]string{{"proc", "/proc"}, {"devtmpfs", "/dev"}} {
		if err := os.MkdirAll(m[1], 0o755); err != nil {
			return err
		}
		if err := syscall.Mount(m[0], m[1], m[0], 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m[1], err)
		}
	}
	if err := os.MkdirAll(mountPoint, 0o755); err != nil {
		return err
	}
	if err := loadModules(); err != nil {
		return err
	}
	if err := startNetwork(); err != nil {
		return fmt.Errorf("network: %w", err)
	}
	port, err := kernelArgument("nfsport")
	if err != nil {
		return err
	}
	options := fmt.Sprintf("nolock,vers=3,tcp,port=%s,mountport=%[1]s,mountproto=tcp,addr=10.0.2.2,mountaddr=10.0.2.2", port)
	for range 30 { // the network link may need some seconds
		if err = syscall.Mount("10.0.2.2:/land", mountPoint, "nfs", 0, options); err == nil {
			return nil
		}
		time.Sleep(time.Second)
	}
	return fmt.Errorf("mount: %w", err)
}

// startNetwork sets the address of eth0 in QEMU's user network, in which 10.0.2.2 is the host.
func startNetwork() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	card, err := unix.NewIfreq("eth0")
	if err != nil {
		return err
	}
	// Without a netmask, the kernel uses the one of the address class, 255.0.0.0, which includes the host.
	if err := card.SetInet4Addr([]byte{10, 0, 2, 15}); err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFADDR, card); err != nil {
		return err
	}
	card.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, card)
}

// kernelArgument returns the value of name=value on the kernel's command line.
func kernelArgument(name string) (string, error) {
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return "", err
	}
	for word := range strings.FieldsSeq(string(line)) {
		if value, ok := strings.CutPrefix(word, name+"="); ok {
			return value, nil
		}
	}
	return "", fmt.Errorf("the kernel's command line has no %s", name)
}

// loadModules inserts the modules in the order of the list, which contains dependencies first.
func loadModules() error {
	list, err := os.ReadFile("/modules.order")
	if err != nil {
		return err
	}
	for path := range strings.FieldsSeq(string(list)) {
		if err := loadModule("/modules/" + path); err != nil {
			return fmt.Errorf("load %s: %w", path, err)
		}
	}
	return nil
}

// loadModule inserts a module, unless it is loaded already.
func loadModule(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	noParams := []byte{0}
	const finitModule = 313 // amd64
	_, _, errno := syscall.Syscall(finitModule, f.Fd(), uintptr(unsafe.Pointer(&noParams[0])), 0)
	if errno != 0 && errno != syscall.EEXIST {
		return errno
	}
	return nil
}
