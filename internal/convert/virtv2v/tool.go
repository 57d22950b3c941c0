package virtv2v

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// A Tool is the program that was found.
type Tool struct {
	Path    string
	Version string // "2.2.0"

	options map[string]bool
}

// Options of newer releases. Distributions take some into older ones, so the program is asked.
const (
	optionBlockDriver = "--block-driver" // 2.4: the bus that a Windows is converted for
	optionNoTrim      = "--no-fstrim"    // 2.12

	// optionStdin has a key that is missing read from an empty standard input: from a terminal it
	// would be asked for, and waited for until the deadline.
	optionStdin = "--keys-from-stdin"
)

// Has reports whether the program knows an option.
func (t Tool) Has(option string) bool { return t.options[option] }

// Lacks lists what newer releases have and this one has not, as sentences without a full stop.
func (t Tool) Lacks() (all []string) {
	if !t.Has(optionBlockDriver) {
		all = append(all, "no "+optionBlockDriver+": a Windows gets virtio-blk, and not virtio-scsi")
	}
	if !t.Has(optionNoTrim) {
		all = append(all, "no "+optionNoTrim+": free space of the guest's file systems is trimmed, and counts as changed")
	}
	return all
}

// places are where distributions put it. Upstream takes it for no command of users.
func places() []string {
	return []string{"virt-v2v-in-place", "/usr/libexec/virt-v2v-in-place", "/usr/lib/virt-v2v/virt-v2v-in-place", "/usr/lib/virt-v2v-in-place"}
}

// InstallHint is how to get it.
const InstallHint = "apt install virt-v2v nbdkit linux-image-cloud-amd64   # dnf install virt-v2v; zypper install virt-v2v"

var (
	release = regexp.MustCompile(`\b\d{1,4}(\.\d{1,4}){1,3}\b`)
	option  = regexp.MustCompile(`(?m)^\s*(?:-[A-Za-z], )?(--[a-z][a-z-]*)`)
)

// Find locates the program, and reads its release and its options. If it or nbdkit is not installed,
// the error is fault.NotFound.
func (e *Engine) Find(ctx context.Context) (Tool, error) {
	var t Tool
	for _, place := range e.o.places() {
		path, err := exec.LookPath(place)
		if err == nil {
			t.Path = path
			break
		}
	}
	if t.Path == "" {
		return t, fault.New(fault.NotFound, "virt-v2v-in-place is not installed here").WithHint(InstallHint)
	}
	if _, err := exec.LookPath(cmp.Or(e.o.NBDKit, "nbdkit")); err != nil { // Debian's package does not depend on it
		return t, fault.New(fault.NotFound, "nbdkit is not installed here, which %s opens disks with", t.Path).WithHint(InstallHint)
	}
	version, err := e.ask(ctx, t.Path, "--version")
	if err != nil {
		return t, err
	}
	if t.Version = release.FindString(version); t.Version == "" {
		return t, fault.New(fault.Unsupported, "%s --version printed %q", t.Path, firstLine(version)).WithHint(InstallHint)
	}
	help, err := e.ask(ctx, t.Path, "--help")
	if err != nil {
		return t, err
	}
	t.options = map[string]bool{}
	for _, m := range option.FindAllStringSubmatch(help, -1) {
		t.options[m[1]] = true
	}
	return t, nil
}

func (o Options) places() []string {
	if o.Program != "" {
		return []string{o.Program}
	}
	return places()
}

// ask runs the program to print information on itself.
func (e *Engine) ask(ctx context.Context, path, what string) (string, error) {
	const limit = time.Minute // time to load a hundred libraries, perhaps from a cold disk
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, what)
	cmd.Env = append(e.o.environ(), "LC_ALL=C")
	cmd.WaitDelay = time.Second
	text, err := cmd.Output()
	if err != nil && ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return "", ctx.Err()
	}
	if err != nil {
		return "", fault.New(fault.Unsupported, "%s %s: %w", path, what, err).WithHint("run it to see its messages: %s %s", path, what)
	}
	return string(text[:min(len(text), 64<<10)]), nil
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return fmt.Sprintf("%.200s", line)
}
