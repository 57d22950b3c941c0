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

// A Tool is an installed virt-v2v-in-place.
type Tool struct {
	Path    string // path of the program
	Version string // "2.2.0"

	options map[string]bool // options in its help
}

// Options of newer releases. Distributions add some of them to older releases, so Find reads the help.
const (
	optionBlockDriver = "--block-driver" // since 2.4: bus of a converted Windows
	optionNoTrim      = "--no-fstrim"    // since 2.12: do not trim file systems

	// optionStdin reads a missing key from standard input, which is empty. Otherwise virt-v2v would read
	// it from a terminal and wait until the deadline.
	optionStdin = "--keys-from-stdin"
)

// Supports reports whether the program supports an option.
func (t Tool) Supports(option string) bool { return t.options[option] }

// MissingFeatures returns the features of newer releases that this one lacks, as sentences without a full stop.
func (t Tool) MissingFeatures() (all []string) {
	if !t.Supports(optionBlockDriver) {
		all = append(all, "no "+optionBlockDriver+", so Windows gets virtio-blk instead of virtio-scsi")
	}
	if !t.Supports(optionNoTrim) {
		all = append(all, "no "+optionNoTrim+", so it trims the free space of the guest's file systems, which then counts as changed")
	}
	return all
}

// programPaths returns the paths at which distributions install the program. Upstream does not install
// it as a command for users.
func programPaths() []string {
	return []string{"virt-v2v-in-place", "/usr/libexec/virt-v2v-in-place", "/usr/lib/virt-v2v/virt-v2v-in-place", "/usr/lib/virt-v2v-in-place"}
}

// InstallHint contains the commands to install virt-v2v and nbdkit.
const InstallHint = "apt install virt-v2v nbdkit linux-image-cloud-amd64   # dnf install virt-v2v; zypper install virt-v2v"

var (
	releasePattern = regexp.MustCompile(`\b\d{1,4}(\.\d{1,4}){1,3}\b`)              // matches a version number
	optionPattern  = regexp.MustCompile(`(?m)^\s*(?:-[A-Za-z], )?(--[a-z][a-z-]*)`) // matches an option in the help
)

// Find locates the program and reads its release and its options. The error is fault.NotFound if the
// program or nbdkit is not installed.
func (e *Engine) Find(ctx context.Context) (Tool, error) {
	var t Tool
	for _, place := range e.o.programPaths() {
		path, err := exec.LookPath(place)
		if err == nil {
			t.Path = path
			break
		}
	}
	if t.Path == "" {
		return t, fault.New(fault.NotFound, "virt-v2v-in-place is not installed on this machine").WithHint(InstallHint)
	}
	if _, err := exec.LookPath(cmp.Or(e.o.NBDKit, "nbdkit")); err != nil { // Debian's package does not depend on it
		return t, fault.New(fault.NotFound, "nbdkit, which %s requires to open disks, is not installed on this machine", t.Path).WithHint(InstallHint)
	}
	version, err := e.queryProgram(ctx, t.Path, "--version")
	if err != nil {
		return t, err
	}
	// The output is, for example, "virt-v2v-in-place 2.2.0".
	if t.Version = releasePattern.FindString(version); t.Version == "" {
		return t, fault.New(fault.Unsupported, "%s --version printed %q", t.Path, firstLine(version)).WithHint(InstallHint)
	}
	help, err := e.queryProgram(ctx, t.Path, "--help")
	if err != nil {
		return t, err
	}
	t.options = map[string]bool{}
	for _, m := range optionPattern.FindAllStringSubmatch(help, -1) {
		t.options[m[1]] = true
	}
	return t, nil
}

// programPaths returns the paths to try: the configured one, or the usual ones.
func (o Options) programPaths() []string {
	if o.Program != "" {
		return []string{o.Program}
	}
	return programPaths()
}

// queryProgram returns the output of the program with one argument, at most 64 KiB.
func (e *Engine) queryProgram(ctx context.Context, path, what string) (string, error) {
	const limit = time.Minute // time to load a hundred libraries, perhaps from a cold disk
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, what)
	cmd.Env = append(e.o.baseEnvironment(), "LC_ALL=C")
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

// firstLine returns the first line of text, at most 200 characters of it.
func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return fmt.Sprintf("%.200s", line)
}
