// Package local examines the machine that receives disks: the folder, the file system,
// memory, and QEMU.
//
// Probes that write use temporary files in the given folder, or in its nearest existing
// parent, and remove them at once.
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

// Options describe the planned migration. Functions that are nil have the defaults of
// this machine.
type Options struct {
	Folder string // destination of images, which need not exist; if empty, its checks have no findings
	Disks  []Disk // disks to copy; without any, only independent checks run
	Tmpfs  int64  // size in bytes of a landing in memory; 0 for none

	KVM   string                                          // path of the device; default /dev/kvm
	QEMU  func(ctx context.Context) (string, error)       // returns the output of qemu --version; default qemu-system-x86_64's
	V2V   func(ctx context.Context) (virtv2v.Tool, error) // returns the installed virt-v2v; default as for a conversion
	Root  fs.FS                                           // root of /proc and /sys; default this machine's
	Room  func(folder string) (diskspace.Space, error)    // returns the free space of a folder; default statfs
	Speed time.Duration                                   // duration of the write probe; default 5 s
	Start func(ctx context.Context, kvm string) error     // starts a vCPU; default kvm.Run
}

// Disk is a virtual disk. Sizes are in bytes.
type Disk struct {
	Name      string // name for messages
	Size      int64  // size for the guest
	Allocated int64  // allocated bytes on the datastore; Size if unknown
}

// withDefaults returns o with defaults for all optional fields.
func (o Options) withDefaults() Options {
	o.KVM = cmp.Or(o.KVM, "/dev/kvm")
	o.Speed = cmp.Or(o.Speed, 5*time.Second)
	if o.QEMU == nil {
		o.QEMU = qemuVersionOutput
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

// qemuVersionOutput returns the output of qemu-system-x86_64 --version.
func qemuVersionOutput(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", "--version")
	cmd.Env = childenv.Of(os.Environ())
	out, err := cmd.Output()
	return string(out), err
}

// Checks returns the checks of this machine. Their codes begin with local-.
func Checks(o Options) []doctor.Check {
	e := &examiner{o.withDefaults()}
	const folder = "local-folder"
	of := func(code, title string, run func(context.Context) []doctor.Finding) doctor.Check {
		return doctor.Check{Code: code, Title: title, Needs: []string{folder}, Run: func(ctx context.Context) []doctor.Finding {
			if e.Folder == "" {
				return nil
			}
			return run(ctx)
		}}
	}
	first := of(folder, "the target folder is writable", e.checkFolder)
	first.Needs = nil
	direct := of("local-direct", "the file system supports O_DIRECT", e.checkDirect)
	reflink := of("local-reflink", "the file system supports reflinks", e.checkReflink)
	direct.Advises, reflink.Advises = true, true
	speed := of("local-speed", "the write rate of the folder reaches 1 GbE", e.checkSpeed)
	speed.Slow = true
	return []doctor.Check{
		first,
		of("local-space", "enough free space for the full size of the disks", e.checkSpace),
		of("local-sparse", "the file system supports sparse files", e.checkHoles),
		of("local-size", "the file system supports files of the disks' size", e.checkSize),
		direct,
		reflink,
		speed,
		{Code: "local-memory", Title: "enough memory for a landing in tmpfs", Run: e.checkMemory},
		{Code: "local-kvm", Title: "KVM runs a virtual CPU", Slow: true, Run: e.checkKVM}, // may take two seconds on a busy machine
		{Code: "local-qemu", Title: "QEMU is installed", Advises: true, Run: e.checkQEMU},
		{Code: "local-virt-v2v", Title: "virt-v2v is installed", Advises: true, Run: e.v2v},
	}
}

// examiner contains the options that all checks share.
type examiner struct{ Options }

// nearestFolder returns the folder or, if it does not exist, its nearest existing
// parent.
func (e *examiner) nearestFolder() string {
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

// withTempFile creates a file in the nearest folder, calls f, and removes the file.
func (e *examiner) withTempFile(f func(*os.File) error) error {
	file, err := os.CreateTemp(e.nearestFolder(), ".decamp-doctor-")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	return f(file)
}
