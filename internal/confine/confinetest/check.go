// Package confinetest checks, from outside, how a running QEMU is confined.
package confinetest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Children returns the processes whose parent is pid and whose program is QEMU.
func Children(t testing.TB, pid int) (all []int) {
	t.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		// prlimit is replaced by QEMU, so only the program of the process is compared.
		program, _ := os.Readlink(p + "/exe") // the process may have ended
		text, err := os.ReadFile(p + "/status")
		if err != nil || fieldOf(string(text), "PPid") != strconv.Itoa(pid) || !strings.Contains(filepath.Base(program), "qemu") {
			continue
		}
		n, err := strconv.Atoi(filepath.Base(p))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, n)
	}
	return all
}

// fieldOf returns the value of a line "name: value".
func fieldOf(text, name string) string {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.Join(strings.Fields(value), " ")
		}
	}
	return ""
}

// check reads the files of one process in /proc.
type check struct {
	testing.TB
	dir  string // folder of the process
	user uint32 // user that started QEMU
}

// Check fails unless QEMU's process pid is confined. parent is the user that started
// it. readable and writable are the only named files that it may have open.
func Check(t testing.TB, pid int, parent uint32, readable, writable []string) {
	t.Helper()
	c := check{t, fmt.Sprintf("/proc/%d", pid), parent}
	c.checkStatus(c.dir)
	threads, err := filepath.Glob(c.dir + "/task/*")
	if err != nil || len(threads) < 2 {
		t.Errorf("threads %v, %v", threads, err)
	}
	for _, thread := range threads {
		c.checkStatus(thread)
	}
	c.checkLimits()
	c.checkSurroundings()
	c.checkArguments()
	c.checkFiles(readable, writable)
}

// readFile returns the contents of a file, and fails the test on an error.
func (c check) readFile(name string) string {
	c.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		c.Fatal(err)
	}
	return string(text)
}

// checkStatus checks user, groups, capabilities and seccomp filter of a process or
// thread.
func (c check) checkStatus(dir string) {
	c.Helper()
	status, err := os.ReadFile(dir + "/status")
	if dir != c.dir && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)) {
		return // the thread has ended meanwhile
	}
	if err != nil {
		c.Fatal(err)
	}
	text := string(status)
	// Seccomp 2 is the mode with a filter (proc_pid_status(5)).
	want := map[string]string{"NoNewPrivs": "1", "Seccomp": "2", "CapInh": "0000000000000000", "CapPrm": "0000000000000000", "CapEff": "0000000000000000"}
	if c.user == 0 {
		want["Groups"] = ""
	}
	for name, value := range want {
		if got := fieldOf(text, name); got != value {
			c.Errorf("%s: %s is %q, want %q", dir, name, got, value)
		}
	}
	for _, name := range []string{"Uid", "Gid"} {
		// The real, effective, saved and file system IDs must be equal.
		ids := slices.Compact(strings.Fields(fieldOf(text, name)))
		if len(ids) != 1 {
			c.Errorf("%s: %s is %v", dir, name, ids)
			continue
		}
		id, err := strconv.Atoi(ids[0])
		if c.user == 0 && (id < 60578 || id > 61183) || c.user != 0 && uint32(id) != c.user || err != nil {
			c.Errorf("%s: %s is %s, started by %d", dir, name, ids[0], c.user)
		}
	}
}

// checkLimits checks the soft and the hard limits.
func (c check) checkLimits() {
	c.Helper()
	text := c.readFile(c.dir + "/limits")
	most := map[string]int{"Max core file size": 1, "Max open files": 1024, "Max file size": 64 << 30}
	if c.user == 0 {
		most["Max processes"] = 512
	}
	for name, want := range most {
		found := regexp.MustCompile(name + ` +(\d+) +(\d+)`).FindStringSubmatch(text)
		if found == nil {
			c.Errorf("no limit for %s:\n%s", name, text)
			continue
		}
		// Both the soft and the hard limit must be low.
		for _, value := range found[1:] {
			if n, err := strconv.Atoi(value); n > want || err != nil {
				c.Errorf("%s: %s, want %d at most", name, value, want)
			}
		}
	}
}

// checkSurroundings checks environment, working directory and namespaces.
func (c check) checkSurroundings() {
	c.Helper()
	if env := c.readFile(c.dir + "/environ"); !regexp.MustCompile(`^(TMPDIR=/proc/self/fd/\d+\x00)?$`).MatchString(env) {
		c.Errorf("environment %q", env)
	}
	if cwd, err := os.Readlink(c.dir + "/cwd"); cwd != "/" || err != nil {
		c.Errorf("working directory %s, %v", cwd, err)
	}
	if c.user != 0 {
		return
	}
	for _, name := range []string{"net", "ipc"} {
		ours, err := os.Readlink("/proc/self/ns/" + name)
		theirs, err2 := os.Readlink(c.dir + "/ns/" + name)
		if err != nil || err2 != nil || ours == theirs {
			c.Errorf("namespace %s: %s, %v, %v", name, theirs, err, err2)
		}
	}
	// Each interface has one line with a colon.
	if cards := strings.Count(c.readFile(c.dir+"/net/dev"), ":"); cards != 1 {
		c.Errorf("%d network interfaces, want lo alone", cards)
	}
}

// checkArguments checks that the command line contains no paths except the program and
// inherited files.
func (c check) checkArguments() {
	c.Helper()
	args := strings.Split(c.readFile(c.dir+"/cmdline"), "\x00")
	if !slices.Contains(args, "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny") {
		c.Errorf("no sandbox: %q", args)
	}
	// Paths of inherited files are permitted.
	inherited := regexp.MustCompile(`/(proc/self/fd|dev/fdset)/\d+`)
	for _, a := range args[1:] {
		if strings.Contains(inherited.ReplaceAllString(a, ""), "/") {
			c.Errorf("argument %q has a path", a)
		}
	}
}

// screenCopy matches the files in QEMU's scratch folder that it writes for a screenshot.
var screenCopy = regexp.MustCompile(`/qemu-\d+/(screen\.ppm|text)$`)

// checkFiles checks that only the expected files are open, and that all of them are.
func (c check) checkFiles(readable, writable []string) {
	c.Helper()
	links, err := os.ReadDir(c.dir + "/fd")
	if err != nil {
		c.Fatal(err)
	}
	seen := map[string]bool{}
	for _, l := range links {
		name, err := os.Readlink(c.dir + "/fd/" + l.Name())
		info, err2 := os.ReadFile(c.dir + "/fdinfo/" + l.Name())
		if again, _ := os.Readlink(c.dir + "/fd/" + l.Name()); err != nil || err2 != nil || again != name {
			continue // closed since
		}
		// fdinfo has the flags of open(2) in octal.
		flags, err := strconv.ParseUint(fieldOf(string(info), "flags"), 8, 32)
		if err != nil {
			c.Fatal(err)
		}
		writes := flags&unix.O_ACCMODE != unix.O_RDONLY
		seen[name] = true
		switch {
		case !strings.HasPrefix(name, "/"): // pipe:[1], socket:[1], anon_inode:[eventfd]
		case strings.HasPrefix(name, "/memfd:"), name == "/dev/null", name == "/dev/kvm", slices.Contains(writable, name):
		case strings.HasSuffix(name, " (deleted)"): // an overlay
		case screenCopy.MatchString(name):
		case !writes && (slices.Contains(readable, name) || regexp.MustCompile(`/qemu-\d+$`).MatchString(name)):
		default:
			c.Errorf("file %s is open with flags %o", name, flags)
		}
	}
	for _, name := range slices.Concat(readable, writable) {
		if !seen[name] {
			c.Errorf("file %s is not open", name)
		}
	}
}
