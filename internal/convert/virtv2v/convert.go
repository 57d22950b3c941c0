package virtv2v

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/childenv"
	"github.com/decamp/decamp/internal/diskspace"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/kvm"
)

// Options determine how virt-v2v is run. The zero value uses what is installed on this machine.
type Options struct {
	Program  string        // path of virt-v2v-in-place; default: search the usual paths
	NBDKit   string        // path of nbdkit, which opens disks; default: search PATH
	Drivers  string        // virtio-win for Windows, an ISO image or a folder; default $VIRTIO_WIN
	Deadline time.Duration // limit for one guest; default 2 hours: a small guest takes 8 minutes with emulation

	// Reserve is the number of bytes that must stay free on the file system of the overlays; default 1
	// GiB.
	Reserve int64

	KVM     func(context.Context) error // returns nil if KVM runs a vCPU; default kvm.Run on /dev/kvm
	Environ func() []string             // environment of decamp; default os.Environ
}

const (
	defaultDeadline = 2 * time.Hour // limit for one guest
	defaultReserve  = 1 << 30       // bytes that must stay free

	// cacheRoom is the space in bytes that libguestfs needs for its appliance, and virt-v2v requires.
	cacheRoom = 1<<30 + 512<<20
)

// An Engine runs virt-v2v.
type Engine struct{ o Options }

// New returns an engine. It does not check whether virt-v2v is installed; Find does.
func New(o Options) *Engine {
	o.Deadline, o.Reserve = cmp.Or(o.Deadline, defaultDeadline), cmp.Or(o.Reserve, defaultReserve)
	if o.KVM == nil {
		o.KVM = func(ctx context.Context) error { return kvm.Run(ctx, "/dev/kvm") }
	}
	return &Engine{o}
}

// inheritedVariables are the variables that virt-v2v inherits from decamp's environment, besides the
// common ones.
var inheritedVariables = []string{"LIBGUESTFS_*", "SUPERMIN_*", "VIRTIO_WIN", "VIRT_TOOLS_DATA_DIR", "OSINFO_*", "XDG_RUNTIME_DIR", "LC_*"}

// baseEnvironment returns the inherited variables of the environment.
func (o Options) baseEnvironment() []string {
	if o.Environ != nil {
		return childenv.Of(o.Environ(), inheritedVariables...)
	}
	return childenv.Of(os.Environ(), inheritedVariables...)
}

// A Report is the result of virt-v2v for one guest.
type Report struct {
	Version  string        // release of virt-v2v: "2.2.0"
	Accel    string        // accelerator of its appliance: kvm or tcg
	SCSI     bool          // Windows boots from virtio-scsi; otherwise from virtio-blk
	Warnings []string      // warnings that virt-v2v printed
	Elapsed  time.Duration // duration of the conversion
}

// Convert changes the guest on the disks of a job. If it fails, the disks must be discarded. The error
// is fault.NotFound if virt-v2v or the drivers are not installed, fault.Full if there is not enough
// space, fault.Transient after the deadline, and otherwise determined by the messages of virt-v2v.
func (e *Engine) Convert(ctx context.Context, j Job) (_ Report, err error) {
	tool, err := e.Find(ctx)
	if err != nil {
		return Report{}, err
	}
	// A missing driver is reported before virt-v2v runs for minutes.
	if j.Windows != nil {
		if err := e.CheckDrivers(tool, j.Windows); err != nil {
			return Report{}, err
		}
	}
	keys, closeKeys, err := openKeys(j.Keys)
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, closeKeys()) }()
	report := Report{Version: tool.Version, Accel: e.chooseAccel(ctx), SCSI: j.Windows != nil && tool.Supports(optionBlockDriver)}
	work, err := os.MkdirTemp("", "decamp-v2v-") // sockets are created there, so the path must be short
	if err != nil {
		return report, fault.Room(os.TempDir(), err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	text, err := j.domainXML()
	if err != nil {
		return report, err
	}
	file := filepath.Join(work, "domain.xml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return report, fault.Room(work, err)
	}
	env, err := e.buildEnvironment(work, report.Accel)
	if err != nil {
		return report, err
	}
	began := time.Now()
	found, err := e.runProcess(ctx, process{path: tool.Path, args: tool.buildArguments(j, file), env: env, keys: keys, job: j})
	report.Warnings, report.Elapsed = found.warnings, time.Since(began)
	return report, err
}

// buildArguments returns the arguments for this release of virt-v2v. file is the domain.
func (t Tool) buildArguments(j Job, file string) []string {
	// The log contains all details; "single" refuses a guest with several systems.
	args := []string{"-v", "-x", "--root", "single"}
	if t.Supports(optionNoTrim) {
		args = append(args, optionNoTrim)
	}
	if j.Windows != nil && t.Supports(optionBlockDriver) {
		args = append(args, optionBlockDriver, "virtio-scsi")
	}
	if t.Supports(optionStdin) {
		args = append(args, optionStdin)
	}
	args = append(args, keyArguments(j.Keys, j.Locked, firstKey)...)
	return append(args, "-i", "libvirtxml", file)
}

// chooseAccel returns the accelerator for the appliance. libguestfs uses KVM if the device exists, and
// fails if KVM does not work, so a vCPU is tried first.
func (e *Engine) chooseAccel(ctx context.Context) string {
	const limit = 2 * time.Second // a vCPU that works takes a few milliseconds
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if e.o.KVM(ctx) == nil {
		return "kvm"
	}
	return "tcg"
}

// buildEnvironment returns the environment of virt-v2v: a minimal one, with the variables of virt-v2v and
// libguestfs that the user has set, except for the backend: others require a libvirt with access to
// decamp's files.
func (e *Engine) buildEnvironment(work, accel string) ([]string, error) {
	env := map[string]string{}
	var names []string
	set := func(name, value string) {
		if _, there := env[name]; !there {
			names = append(names, name)
		}
		env[name] = value
	}
	for _, each := range e.o.baseEnvironment() {
		if name, value, ok := strings.Cut(each, "="); ok {
			set(name, value)
		}
	}
	set("LC_ALL", "C")
	set("LIBGUESTFS_BACKEND", "direct")
	if accel != "kvm" {
		set("LIBGUESTFS_BACKEND_SETTINGS", strings.TrimPrefix(env["LIBGUESTFS_BACKEND_SETTINGS"]+":force_tcg", ":"))
	}
	// libguestfs creates its sockets there.
	set("TMPDIR", work)
	cache, err := cacheFolder(cmp.Or(env["LIBGUESTFS_CACHEDIR"], "/var/tmp"))
	if err != nil {
		return nil, err
	}
	set("LIBGUESTFS_CACHEDIR", cache) // the appliance is reused for the next guest
	set("VIRT_V2V_TMPDIR", cache)
	if drivers := e.Drivers(); drivers != "" {
		set("VIRTIO_WIN", drivers)
	}
	out := make([]string, 0, len(names))
	for _, name := range names {
		out = append(out, name+"="+env[name])
	}
	return out, nil
}

// cacheFolder returns the folder in which libguestfs builds its appliance. The error is fault.Full if
// the file system does not have cacheRoom bytes.
func cacheFolder(folder string) (string, error) {
	space, err := diskspace.At(folder)
	if err != nil {
		return "", fault.Wrap(fault.NotFound, err)
	}
	if space.Available < cacheRoom {
		return "", fault.New(fault.Full, "%w: %s has %d MiB free, and virt-v2v's appliance requires %d", fault.ErrNoRoom, folder, space.Available>>20, int64(cacheRoom)>>20).
			WithHint("free space, or set another folder: export LIBGUESTFS_CACHEDIR=/srv/tmp")
	}
	return folder, nil
}

// Drivers returns the path of the virtio-win that contains drivers for Windows; empty if none is
// configured.
func (e *Engine) Drivers() string {
	if e.o.Drivers != "" {
		return e.o.Drivers
	}
	return e.getenv("VIRTIO_WIN")
}

// getenv returns a variable of the inherited environment; empty if it is not set.
func (e *Engine) getenv(name string) string {
	for _, each := range e.o.baseEnvironment() {
		if value, ok := strings.CutPrefix(each, name+"="); ok {
			return value
		}
	}
	return ""
}

// String returns the program with its release and path.
func (t Tool) String() string { return fmt.Sprintf("virt-v2v %s (%s)", t.Version, t.Path) }
