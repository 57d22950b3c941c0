// Package inside is the program in an appliance: process 1 of a VM that has this program as
// its whole user space. It loads the modules that the host packed, mounts the file systems that
// the host requests, reads and writes their files, unmounts them, and powers off the VM.
//
// It never runs a program of the guest: file systems are mounted without devices, set-user-id
// and execution, and links cannot leave them.
package inside

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/convert/appliance/wire"
)

const (
	// KernelArgument is on the kernel's command line in an appliance. The kernel passes it to process 1 as
	// an environment variable.
	KernelArgument = "DECAMP_APPLIANCE=1"

	// Port is the name of the virtio-serial port for requests of the host.
	Port = "decamp"

	// Modules is the folder with the modules to load, in the order of their names.
	Modules = "modules"

	deviceTimeout = 2 * time.Minute // limit of the wait for a device, which may take seconds on a busy machine
)

// In an appliance, init runs all of the program. Function main would follow the initialization of the packages
// that an appliance does not use, for which an emulated processor needs a second.
func init() {
	name, value, _ := strings.Cut(KernelArgument, "=")
	if os.Getpid() == 1 && os.Getenv(name) == value {
		serveAndPowerOff()
	}
}

// serveAndPowerOff serves the host and then powers off the VM. It does not return.
func serveAndPowerOff() {
	if err := runServer(); err != nil {
		fmt.Printf("appliance: %v\n", err)
	}
	// Power-off does not wait for the output of the serial console.
	drainConsole()
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF) // after a failure, only waiting is possible
	select {}
}

// drainConsole waits until the console has printed all output.
func drainConsole() {
	const waitUntilSent = 1 // argument of tcdrain's ioctl
	_ = unix.IoctlSetInt(int(os.Stdout.Fd()), unix.TCSBRK, waitUntilSent)
}

// runServer mounts the kernel's file systems, loads the modules, and serves requests on the port.
func runServer() error {
	// The kernel mounts none of them; EBUSY means that devtmpfs is mounted already.
	for dir, kind := range map[string]string{"/proc": "proc", "/sys": "sysfs", "/dev": "devtmpfs"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(kind, dir, kind, 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	loadModules("/" + Modules)
	// virtio devices appear some time after their drivers are loaded.
	path, err := waitFor("the port of the host", findPort)
	if err != nil {
		return err
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	port := os.NewFile(uintptr(fd), path)
	defer port.Close()
	// An empty reply reports that the appliance is ready.
	if err := wire.Send(port, wire.Reply{}, nil); err != nil {
		return err
	}
	s := &server{device: findDisk, kernel: openKernelLog()}
	return s.serve(port)
}

// loadModules loads the modules in dir. It prints failures on the console; the first use of the missing
// device or file system fails then.
func loadModules(dir string) {
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		fmt.Printf("appliance: %v\n", err)
	}
	for _, e := range entries {
		if err := loadModule(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, unix.EEXIST) {
			fmt.Printf("appliance: load %s: %v\n", e.Name(), err)
		}
	}
}

// loadModule loads one module.
func loadModule(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.FinitModule(int(f.Fd()), "", 0)
}

// waitFor calls find until it returns a path, at most deviceTimeout. what is for the error.
func waitFor(what string, find func() string) (string, error) {
	for end := time.Now().Add(deviceTimeout); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if path := find(); path != "" {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s did not appear within %v: %w", what, deviceTimeout, fs.ErrNotExist)
}

// findPort returns the device of the port; empty if it does not exist yet.
func findPort() string {
	names, _ := filepath.Glob("/sys/class/virtio-ports/*/name") // fails only for an invalid pattern
	for _, name := range names {
		if text, err := os.ReadFile(name); err == nil && strings.TrimSpace(string(text)) == Port {
			return "/dev/" + filepath.Base(filepath.Dir(name))
		}
	}
	return ""
}

// findDisk waits for the disk with the number, which is its SCSI target, and returns its device.
func findDisk(number int) (string, error) {
	return waitFor(fmt.Sprintf("disk %d", number), func() string {
		found, _ := filepath.Glob(fmt.Sprintf("/sys/class/scsi_disk/*:0:%d:0/device/block/*", number)) // fails only for an invalid pattern
		slices.Sort(found)
		if len(found) == 0 {
			return ""
		}
		dev := "/dev/" + filepath.Base(found[0])
		// devtmpfs creates the device node after the entry in /sys.
		if _, err := os.Stat(dev); err != nil {
			return ""
		}
		return dev
	})
}
