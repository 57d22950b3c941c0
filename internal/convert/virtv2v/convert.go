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

// Options say how virt-v2v is run. The zero value takes what this machine has.
type Options struct {
	Program  string        // default the one that is found
	NBDKit   string        // program that opens disks; default the one in PATH
	Drivers  string        // virtio-win for Windows: an ISO image or a folder; default $VIRTIO_WIN
	Deadline time.Duration // limit for one guest; default 2 hours: a small guest takes 8 minutes with emulation

	// Reserve is how many bytes the file system of the overlays keeps free; default 1 GiB.
	Reserve int64

	KVM     func(context.Context) error // whether a vCPU runs; default kvm.Run on /dev/kvm
	Environ func() []string             // default os.Environ
}

const (
	deadline = 2 * time.Hour
	reserve  = 1 << 30

	// cacheRoom is the space in bytes that libguestfs needs for its appliance, and virt-v2v requires.
	cacheRoom = 1<<30 + 512<<20
)

// An Engine runs virt-v2v.
type Engine struct{ o Options }

// New returns an engine, and looks for nothing yet.
func New(o Options) *Engine {
	o.Deadline, o.Reserve = cmp.Or(o.Deadline, deadline), cmp.Or(o.Reserve, reserve)
	if o.KVM == nil {
		o.KVM = func(ctx context.Context) error { return kvm.Run(ctx, "/dev/kvm") }
	}
	return &Engine{o}
}

// variables are those of decamp's environment that virt-v2v gets beside the common ones.
var variables = []string{"LIBGUESTFS_*", "SUPERMIN_*", "VIRTIO_WIN", "VIRT_TOOLS_DATA_DIR", "OSINFO_*", "XDG_RUNTIME_DIR", "LC_*"}

func (o Options) environ() []string {
	if o.Environ != nil {
		return childenv.Of(o.Environ(), variables...)
	}
	return childenv.Of(os.Environ(), variables...)
}

// A Report is virt-v2v's result for a converted guest.
type Report struct {
	Version  string
	Accel    string   // kvm or tcg
	SCSI     bool     // whether Windows boots from virtio-scsi as requested; else from virtio-blk
	Warnings []string // its own
	Elapsed  time.Duration
}

// Convert changes the guest on a job's disks. After an error they are worth nothing. The error is
// fault.NotFound where virt-v2v or the drivers are not there, fault.Full where no room is left,
// fault.Transient after the deadline, and else what kind virt-v2v's own words say.
func (e *Engine) Convert(ctx context.Context, j Job) (_ Report, err error) {
	tool, err := e.Find(ctx)
	if err != nil {
		return Report{}, err
	}
	if j.Windows != nil {
		if err := e.CheckDrivers(tool, j.Windows); err != nil {
			return Report{}, err
		}
	}
	keys, closeKeys, err := hold(j.Keys)
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, closeKeys()) }()
	report := Report{Version: tool.Version, Accel: e.accel(ctx), SCSI: j.Windows != nil && tool.Has(optionBlockDriver)}
	work, err := os.MkdirTemp("", "decamp-v2v-") // sockets are made there: their paths have to be short
	if err != nil {
		return report, fault.Room(os.TempDir(), err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	text, err := j.xml()
	if err != nil {
		return report, err
	}
	file := filepath.Join(work, "domain.xml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return report, fault.Room(work, err)
	}
	env, err := e.environment(work, report.Accel)
	if err != nil {
		return report, err
	}
	began := time.Now()
	said, err := e.run(ctx, process{path: tool.Path, args: tool.arguments(j, file), env: env, keys: keys, job: j})
	report.Warnings, report.Elapsed = said.warnings, time.Since(began)
	return report, err
}

// arguments are those of a release.
func (t Tool) arguments(j Job, file string) []string {
	args := []string{"-v", "-x", "--root", "single"}
	if t.Has(optionNoTrim) {
		args = append(args, optionNoTrim)
	}
	if j.Windows != nil && t.Has(optionBlockDriver) {
		args = append(args, optionBlockDriver, "virtio-scsi")
	}
	if t.Has(optionStdin) {
		args = append(args, optionStdin)
	}
	args = append(args, selectors(j.Keys, j.Locked, firstKey)...)
	return append(args, "-i", "libvirtxml", file)
}

// accel is what its appliance runs on. libguestfs takes a KVM for good that only has its device, and
// dies of it.
func (e *Engine) accel(ctx context.Context) string {
	const limit = 2 * time.Second // a vCPU that runs takes 40 ms
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if e.o.KVM(ctx) == nil {
		return "kvm"
	}
	return "tcg"
}

// environment returns the environment of virt-v2v: a minimal one, with the variables of virt-v2v and
// libguestfs that the user has set, except for the backend: others require a libvirt with access to
// decamp's files.
func (e *Engine) environment(work, accel string) ([]string, error) {
	env := map[string]string{}
	var names []string
	set := func(name, value string) {
		if _, there := env[name]; !there {
			names = append(names, name)
		}
		env[name] = value
	}
	for _, each := range e.o.environ() {
		if name, value, ok := strings.Cut(each, "="); ok {
			set(name, value)
		}
	}
	set("LC_ALL", "C")
	set("LIBGUESTFS_BACKEND", "direct")
	if accel != "kvm" {
		set("LIBGUESTFS_BACKEND_SETTINGS", strings.TrimPrefix(env["LIBGUESTFS_BACKEND_SETTINGS"]+":force_tcg", ":"))
	}
	set("TMPDIR", work)
	cache, err := cacheFolder(cmp.Or(env["LIBGUESTFS_CACHEDIR"], "/var/tmp"))
	if err != nil {
		return nil, err
	}
	set("LIBGUESTFS_CACHEDIR", cache) // its appliance is kept there for the next guest
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

// cacheFolder is where libguestfs builds its appliance.
func cacheFolder(folder string) (string, error) {
	space, err := diskspace.At(folder)
	if err != nil {
		return "", fault.Wrap(fault.NotFound, err)
	}
	if space.Available < cacheRoom {
		return "", fault.New(fault.Full, "%w: %s has %d MiB free, and virt-v2v's appliance needs %d", fault.ErrNoRoom, folder, space.Available>>20, int64(cacheRoom)>>20).
			WithHint("make room, or name another folder: export LIBGUESTFS_CACHEDIR=/srv/tmp")
	}
	return folder, nil
}

// Drivers is the virtio-win that a Windows gets drivers from; empty if none is named.
func (e *Engine) Drivers() string {
	if e.o.Drivers != "" {
		return e.o.Drivers
	}
	return e.getenv("VIRTIO_WIN")
}

func (e *Engine) getenv(name string) string {
	for _, each := range e.o.environ() {
		if value, ok := strings.CutPrefix(each, name+"="); ok {
			return value
		}
	}
	return ""
}

// String names the program with its release.
func (t Tool) String() string { return fmt.Sprintf("virt-v2v %s (%s)", t.Version, t.Path) }
