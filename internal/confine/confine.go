// Package confine starts QEMU so that a guest that takes it over reaches little of this
// machine.
//
// QEMU runs with
//
//   - a seccomp filter that denies new processes and new privileges (-sandbox);
//   - an empty environment, but for TMPDIR, and / as its working directory;
//   - the files that it needs as descriptors that it inherits, and no paths;
//   - limits on its files and processes, and no core dumps;
//   - SIGKILL when this process dies.
//
// If this process is root, QEMU also has
//
//   - a user and a group that no other process has;
//   - a network without interfaces, and no shared memory of other processes (namespaces).
//
// Package confine does not hide the file system from QEMU. A QEMU with a separate user
// still opens files that every user may read or write, as it must: its libraries, and
// its firmware in /usr/share. Without one it opens all files that this process may
// open.
package confine

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/fault"
)

// sandbox is the value of QEMU's option -sandbox. A QEMU without seccomp refuses to
// start with it.
const sandbox = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"

// Limits of QEMU.
const (
	maxOpenFiles = 1024     // limit of open files
	maxFileSize  = 64 << 30 // limit in bytes of one file, such as an overlay
	maxThreads   = 512      // limit of the threads of QEMU's user, which no other process has

	// noCore disables core dumps. The kernel pipes a core to a program also if the
	// limit is 0, but not if it is 1; no core file is that small.
	noCore = 1
)

// A Command is a QEMU to start. A Command that was not started must be closed.
type Command struct {
	*exec.Cmd
	user  uint32   // QEMU's user and group ID; 0 for those of this process
	paths []string // file sets and their files, alternating
}

// New returns a command that runs QEMU with args. QEMU is killed when ctx ends. As
// root, New chooses an unused user ID for it.
func New(ctx context.Context, program string, args ...string) (*Command, error) {
	program, err := exec.LookPath(program)
	if err == nil {
		program, err = filepath.Abs(program)
	}
	if err != nil {
		return nil, fmt.Errorf("find QEMU: %w", err)
	}
	have, err := readCapabilities()
	if err != nil {
		return nil, err
	}
	c := &Command{}
	if have.has(dropUser...) {
		if c.user, err = newUser(); err != nil {
			return nil, err
		}
	}
	if c.Cmd, err = c.withLimits(ctx, program, append([]string{"-sandbox", sandbox}, args...)); err != nil {
		return nil, err
	}
	// A nil environment would mean that of this process.
	c.Env, c.Dir = []string{}, "/"
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if c.user != 0 {
		c.SysProcAttr.Credential = &syscall.Credential{Uid: c.user, Gid: c.user}
	}
	// Without this capability the kernel refuses new namespaces.
	if have.has(unix.CAP_SYS_ADMIN) {
		c.SysProcAttr.Cloneflags = unix.CLONE_NEWNET | unix.CLONE_NEWIPC
	}
	return c, nil
}

// Add appends arguments to QEMU's command line.
func (c *Command) Add(args ...string) { c.Args = append(c.Args, args...) }

// UseKVM adds the group of /dev/kvm to QEMU's groups if the group may use the device. A
// device that only root may use does not work for another user.
func (c *Command) UseKVM() {
	var st unix.Stat_t
	const group = 0o060
	if c.user != 0 && unix.Stat("/dev/kvm", &st) == nil && st.Mode&group == group && st.Gid != 0 {
		c.SysProcAttr.Credential.Groups = []uint32{st.Gid}
	}
}

// Inherit passes f to QEMU and returns its descriptor there. The command closes f.
func (c *Command) Inherit(f *os.File) int {
	const standard = 3
	c.ExtraFiles = append(c.ExtraFiles, f)
	return standard + len(c.ExtraFiles) - 1
}

// PassOwned passes f to QEMU and makes QEMU's user its owner. QEMU can open f again by the
// returned path in /proc/self/fd. The command closes f.
func (c *Command) PassOwned(f *os.File) (path string, err error) {
	path = fmt.Sprintf("/proc/self/fd/%d", c.Inherit(f))
	if c.user != 0 {
		err = f.Chown(int(c.user), int(c.user))
	}
	return path, err
}

// Folder makes QEMU's user the owner of the folder at path, and returns the folder's
// path for QEMU. A QEMU with a separate user can write only there and in folders that
// all users can write, such as /tmp. Any other QEMU can write wherever this process
// can: its files and folders belong to the same user.
func (c *Command) Folder(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	path, err = c.PassOwned(f)
	c.Env = append(c.Env, "TMPDIR="+path)
	return path, err
}

// Start starts QEMU, and closes the inherited files in this process.
func (c *Command) Start() error {
	defer c.Close()
	return c.Cmd.Start()
}

// Close closes the files that QEMU inherits. It may be called more than once.
func (c *Command) Close() {
	for _, f := range c.ExtraFiles {
		_ = f.Close() // QEMU has its own
	}
	c.ExtraFiles = nil
}

// withLimits returns a command that runs prlimit, which limits itself and then executes
// QEMU. Root may lack the capability to limit a process of another user
// (CAP_SYS_RESOURCE), but each process may lower its own limits.
func (c *Command) withLimits(ctx context.Context, program string, args []string) (*exec.Cmd, error) {
	prlimit, err := exec.LookPath("prlimit")
	if err != nil {
		return nil, fault.New(fault.NotFound, "limit QEMU's resources: %w", err).WithHint("apt install util-linux   # dnf install util-linux-core")
	}
	limits := []struct {
		option   string
		resource int
		most     uint64
	}{
		{"--core", unix.RLIMIT_CORE, noCore}, {"--nofile", unix.RLIMIT_NOFILE, maxOpenFiles}, {"--fsize", unix.RLIMIT_FSIZE, maxFileSize},
		{"--nproc", unix.RLIMIT_NPROC, maxThreads},
	}
	if c.user == 0 { // the user has other processes, which count
		// The limit of processes is the last entry.
		limits = limits[:3]
	}
	var options []string
	for _, l := range limits {
		var old unix.Rlimit
		if err := unix.Getrlimit(l.resource, &old); err != nil {
			return nil, fmt.Errorf("read the limits of this process: %w", err)
		}
		options = append(options, fmt.Sprintf("%s=%d", l.option, min(l.most, old.Max))) // only root raises a limit
	}
	return exec.CommandContext(ctx, prlimit, slices.Concat(options, []string{"--", program}, args)...), nil
}

// A FileSet is a file that QEMU opens by one path. It has a descriptor for each access
// mode; see QEMU's -add-fd.
type FileSet struct {
	Name  string     // name of the file, for messages
	Files []*os.File // descriptors, owned by the set
}

// Close closes the files.
func (s FileSet) Close() {
	for _, f := range s.Files {
		_ = f.Close() // nothing was written
	}
}

// SetPath returns the path of a file set by its index in the argument of AddSets.
func SetPath(index int) string { return fmt.Sprintf("/dev/fdset/%d", index) }

// AddSets passes file sets to QEMU. The command closes them.
func (c *Command) AddSets(sets []FileSet) {
	for i, s := range sets {
		for _, f := range s.Files {
			c.Add("-add-fd", fmt.Sprintf("fd=%d,set=%d", c.Inherit(f), i))
		}
		c.paths = append(c.paths, SetPath(i), s.Name)
	}
}

// Explain replaces the paths of file sets in a message of QEMU with the names of the
// files.
func (c *Command) Explain(message string) string {
	for i := len(c.paths) - 2; i >= 0; i -= 2 { // /dev/fdset/12 before /dev/fdset/1
		message = strings.ReplaceAll(message, c.paths[i], c.paths[i+1])
	}
	return message
}
