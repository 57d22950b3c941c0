// Package confinetest checks, from outside, how a running QEMU is confined.
package confinetest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
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
		program, _ := os.Readlink(p + "/exe") // the process may have ended
		text, err := os.ReadFile(p + "/status")
		if err != nil || field(string(text), "PPid") != strconv.Itoa(pid) || !strings.Contains(filepath.Base(program), "qemu") {
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

// field returns the value of a line "name: value".
func field(text, name string) string {
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
	dir  string
	user uint32
}

// Check fails unless QEMU's process pid is confined, which the user parent has started. readable are the only
// files with names that it may have open for reading, writable those for writing.
func Check(t testing.TB, pid int, parent uint32, readable, writable []string) {
	t.Helper()
	c := check{t, fmt.Sprintf("/proc/%d", pid), parent}
	c.status(c.dir)
	threads, err := filepath.Glob(c.dir + "/task/*")
	if err != nil || len(threads) < 2 {
		t.Errorf("threads %v, %v", threads, err)
	}
	for _, thread := range threads {
		c.status(thread)
	}
	c.limits()
	c.surroundings()
	c.arguments()
	c.files(readable, writable)
}

func (c check) read(name string) string {
	c.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		c.Fatal(err)
	}
	return string(text)
}

// status checks user, capabilities and seccomp filter of a process or thread.
func (c check) status(dir string) {
	c.Helper()
	text := c.read(dir + "/status")
	want := map[string]string{"NoNewPrivs": "1", "Seccomp": "2", "CapInh": "0000000000000000", "CapPrm": "0000000000000000", "CapEff": "0000000000000000"}
	if c.user == 0 {
		want["Groups"] = ""
	}
	for name, value := range want {
		if got := field(text, name); got != value {
			c.Errorf("%s: %s is %q, want %q", dir, name, got, value)
		}
	}
	for _, name := range []string{"Uid", "Gid"} {
		ids := slices.Compact(strings.Fields(field(text, name)))
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

// limits checks the hard and the soft limits.
func (c check) limits() {
	c.Helper()
	text := c.read(c.dir + "/limits")
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
		for _, value := range found[1:] {
			if n, err := strconv.Atoi(value); n > want || err != nil {
				c.Errorf("%s: %s, want %d at most", name, value, want)
			}
		}
	}
}

// surroundings checks environment, working directory and namespaces.
func (c check) surroundings() {
	c.Helper()
	if env := c.read(c.dir + "/environ"); !regexp.MustCompile(`^(TMPDIR=/proc/self/fd/\d+\x00)?$`).MatchString(env) {
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
	if cards := strings.Count(c.read(c.dir+"/net/dev"), ":"); cards != 1 {
		c.Errorf("%d network interfaces, want lo alone", cards)
	}
}

// arguments checks that only the program has a path among the arguments, and inherited files.
func (c check) arguments() {
	c.Helper()
	args := strings.Split(c.read(c.dir+"/cmdline"), "\x00")
	if !slices.Contains(args, "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny") {
		c.Errorf("no sandbox: %q", args)
	}
	inherited := regexp.MustCompile(`/(proc/self/fd|dev/fdset)/\d+`)
	for _, a := range args[1:] {
		if strings.Contains(inherited.ReplaceAllString(a, ""), "/") {
			c.Errorf("argument %q has a path", a)
		}
	}
}

// files checks the open files.
func (c check) files(readable, writable []string) {
	c.Helper()
	links, err := os.ReadDir(c.dir + "/fd")
	if err != nil {
		c.Fatal(err)
	}
	seen := map[string]bool{}
	for _, l := range links {
		name, err := os.Readlink(c.dir + "/fd/" + l.Name())
		if err != nil {
			continue // closed since
		}
		flags, err := strconv.ParseUint(field(c.read(c.dir+"/fdinfo/"+l.Name()), "flags"), 8, 32)
		if err != nil {
			c.Fatal(err)
		}
		writes := flags&unix.O_ACCMODE != unix.O_RDONLY
		seen[name] = true
		switch {
		case !strings.HasPrefix(name, "/"): // pipe:[1], socket:[1], anon_inode:[eventfd]
		case strings.HasPrefix(name, "/memfd:"), name == "/dev/null", name == "/dev/kvm", slices.Contains(writable, name):
		case strings.HasSuffix(name, " (deleted)"): // an overlay
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
