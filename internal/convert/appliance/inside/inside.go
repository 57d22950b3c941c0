// Package inside is what runs in an appliance: process 1 of a VM that has this program for
// its whole user space. It loads the modules that the host packed, mounts the file systems it
// is asked for, reads and writes their files, unmounts them, and switches the VM off.
//
// Nothing of the guest's is ever run: its file systems are mounted without devices, set-user-id
// and programs, and its links lead nowhere else.
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
	// Told is what the kernel's command line has for process 1 to be this: it becomes its
	// environment.
	Told = "DECAMP_APPLIANCE=1"

	// Port is the name of the virtio-serial port that the host speaks through.
	Port = "decamp"

	// Modules is the folder of the modules to load, in the order of their names.
	Modules = "modules"

	patience = 2 * time.Minute // limit of the wait for a new device: it takes seconds on a busy machine
)

// Is reports whether this process is the init of an appliance.
func Is() bool {
	name, value, _ := strings.Cut(Told, "=")
	return os.Getpid() == 1 && os.Getenv(name) == value
}

// Run serves the host, and switches the VM off. It does not return.
func Run() {
	if err := run(); err != nil {
		fmt.Printf("appliance: %v\n", err)
	}
	drain()
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF) // only waiting is left
	select {}
}

// drain waits until the console has printed its output.
func drain() {
	const waitUntilSent = 1 // argument of tcdrain's ioctl
	_ = unix.IoctlSetInt(int(os.Stdout.Fd()), unix.TCSBRK, waitUntilSent)
}

func run() error {
	for dir, kind := range map[string]string{"/proc": "proc", "/sys": "sysfs", "/dev": "devtmpfs"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(kind, dir, kind, 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	loadModules("/" + Modules)
	path, err := await("the port of the host", findPort)
	if err != nil {
		return err
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	port := os.NewFile(uintptr(fd), path)
	defer port.Close()
	if err := wire.Send(port, wire.Reply{}, nil); err != nil {
		return err
	}
	s := &server{device: disk, kernel: openKernelLog()}
	return s.serve(port)
}

// loadModules loads the packed modules. A failure is printed on the console; the module's user then
// fails.
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

func loadModule(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.FinitModule(int(f.Fd()), "", 0)
}

// await returns what find finds, as soon as it does.
func await(what string, find func() string) (string, error) {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if path := find(); path != "" {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s did not appear within %v: %w", what, patience, fs.ErrNotExist)
}

func findPort() string {
	names, _ := filepath.Glob("/sys/class/virtio-ports/*/name") // the pattern is good
	for _, name := range names {
		if text, err := os.ReadFile(name); err == nil && strings.TrimSpace(string(text)) == Port {
			return "/dev/" + filepath.Base(filepath.Dir(name))
		}
	}
	return ""
}

// disk returns the device of the host's disk of that number: its SCSI target.
func disk(number int) (string, error) {
	return await(fmt.Sprintf("disk %d", number), func() string {
		found, _ := filepath.Glob(fmt.Sprintf("/sys/class/scsi_disk/*:0:%d:0/device/block/*", number)) // the pattern is good
		slices.Sort(found)
		if len(found) == 0 {
			return ""
		}
		dev := "/dev/" + filepath.Base(found[0])
		if _, err := os.Stat(dev); err != nil {
			return ""
		}
		return dev
	})
}
