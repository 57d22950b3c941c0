// Package local examines the machine that receives disks: the folder, the file system, memory, and
// QEMU.
//
// Probes that write use temporary files in the given folder, or in its nearest existing parent, and
// remove them at once.
package local

import (
	"cmp"
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/decamp/decamp/internal/childenv"
	"github.com/decamp/decamp/internal/convert/virtv2v"
	"github.com/decamp/decamp/internal/diskspace"
	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/kvm"
)

// Options describe the planned migration.
type Options struct {
	Folder string // where images go; it need not be there yet. "": nothing about it is looked at
	Disks  []Disk // disks to copy; without any, only independent checks run
	Tmpfs  int64  // bytes of memory that a landing is to have; 0: none

	KVM   string                                          // the device; default /dev/kvm
	QEMU  func(ctx context.Context) (string, error)       // returns the output of qemu --version; default qemu-system-x86_64's
	V2V   func(ctx context.Context) (virtv2v.Tool, error) // the virt-v2v that is here; default the one a conversion finds
	Root  fs.FS                                           // root of /proc and /sys; default this machine's
	Room  func(folder string) (diskspace.Space, error)    // default statfs's
	Speed time.Duration                                   // how long the write probe takes; default 5 s
	Start func(ctx context.Context, kvm string) error     // starts a vCPU; default kvm.Run
}

// Disk is a virtual disk, sizes in bytes.
type Disk struct {
	Name      string
	Size      int64 // size for the guest
	Allocated int64 // allocated bytes on the datastore; Size if unknown
}

func (o Options) withDefaults() Options {
	o.KVM = cmp.Or(o.KVM, "/dev/kvm")
	o.Speed = cmp.Or(o.Speed, 5*time.Second)
	if o.QEMU == nil {
		o.QEMU = version
	}
	if o.V2V == nil {
		o.V2V = virtv2v.New(virtv2v.Options{}).Find
	}
	if o.Root == nil {
		o.Root = os.DirFS("/")
	}
	if o.Room == nil {
		o.Room = diskspace.At
	}
	if o.Start == nil {
		o.Start = kvm.Run
	}
	return o
}

func version(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", "--version")
	cmd.Env = childenv.Of(os.Environ())
	out, err := cmd.Output()
	return string(out), err
}

// Checks returns the checks of this machine, their codes beginning with here-.
func Checks(o Options) []doctor.Check {
	e := &examiner{o.withDefaults()}
	const folder = "here-folder"
	of := func(code, title string, run func(context.Context) []doctor.Finding) doctor.Check {
		return doctor.Check{Code: code, Title: title, Needs: []string{folder}, Run: func(ctx context.Context) []doctor.Finding {
			if e.Folder == "" {
				return nil
			}
			return run(ctx)
		}}
	}
	first := of(folder, "images can be written to the target's folder", e.folder)
	first.Needs = nil
	speed := of("here-speed", "the folder is written to as fast as disks come", e.speed)
	speed.Slow = true
	return []doctor.Check{
		first,
		of("here-space", "there is space for the disks, also at their full size", e.space),
		of("here-holes", "holes of a file take no room", e.holes),
		of("here-size", "files may be as large as the disks", e.size),
		of("here-direct", "files are written past the page cache", e.direct),
		of("here-reflink", "files can be cloned without being copied", e.reflink),
		speed,
		{Code: "here-memory", Title: "there is memory for a landing in tmpfs", Run: e.memory},
		{Code: "here-kvm", Title: "KVM starts a virtual CPU", Slow: true, Run: e.kvm}, // seconds where it does not
		{Code: "here-qemu", Title: "QEMU is installed", Run: e.qemu},
		{Code: "here-virt-v2v", Title: "virt-v2v is installed", Run: e.v2v},
	}
}

type examiner struct{ Options }

// nearest is the folder, or the first above it that is there.
func (e *examiner) nearest() string {
	folder, err := filepath.Abs(e.Folder)
	if err != nil {
		folder = e.Folder
	}
	for folder != filepath.Dir(folder) {
		if _, err := os.Stat(folder); err == nil {
			return folder
		}
		folder = filepath.Dir(folder)
	}
	return folder
}

// scratch makes a file in the folder and gives it to f; the file is gone after that.
func (e *examiner) scratch(f func(*os.File) error) error {
	file, err := os.CreateTemp(e.nearest(), ".decamp-doctor-")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	return f(file)
}
