// Package linux reads the parts of a Linux guest that determine whether it boots on other hardware and keeps
// its network: kernels with their drivers at boot, disk names in its configuration, network cards and the
// properties that identify them.
//
// It reads a tree and does not depend on disks. Unreadable parts are left out and reported as a Problem. Files
// are read up to 256 KiB; the newest maxKernels kernels are examined, and an initramfs is read up to 256 MiB.
// Reading text is charged to a budget.
package linux

import (
	"fmt"
	"path"
	"strings"

	"github.com/decamp/decamp/internal/guest/budget"
	"github.com/decamp/decamp/internal/guest/tree"
)

const (
	maxText = 256 << 10 // bytes of one file of configuration
	maxNICs = 1024      // entries that configure network cards
)

// A Guest is the description of a Linux. The JSON names are stable.
type Guest struct {
	Kernels     []Kernel `json:"kernels,omitempty"`   // the newest first
	DiskNames   []Name   `json:"diskNames,omitempty"` // disk names in files that are read at boot
	NICs        []NIC    `json:"nics,omitempty"`      // configured cards
	Loaders     []string `json:"loaders,omitempty"`   // "grub", "grub-legacy", "bls", "extlinux"
	Encrypted   []string `json:"encrypted,omitempty"` // volumes that crypttab opens at boot
	Resume      string   `json:"resume,omitempty"`    // device it goes on from after a hibernation
	SELinux     string   `json:"selinux,omitempty"`   // "enforcing", "permissive" or "disabled"
	VMwareTools bool     `json:"vmwareTools"`         // open-vm-tools or VMware's own
	GuestAgent  bool     `json:"guestAgent"`          // qemu-guest-agent
	Problems    []string `json:"problems,omitempty"`  // errors of unreadable files
	cmdlines    []string // kernel arguments of all loaders
}

// files are the guest's, read at the cost of a budget.
type files struct {
	*tree.Tree
	budget *budget.Budget
}

// Read looks at the guest below root, in which its other file systems are mounted. The result is
// not to be relied on if b is exhausted afterwards.
func Read(b *budget.Budget, root *tree.Tree) Guest {
	g, t := Guest{}, &files{root, b}
	g.readLoaders(t)
	g.readKernels(t)
	g.readNames(t)
	g.readNICs(t)
	g.Encrypted = crypttab(t)
	g.Resume = g.resume(t)
	g.SELinux = selinux(t)
	g.VMwareTools = hasAny(t, "usr/bin/vmtoolsd", "usr/sbin/vmtoolsd", "usr/lib/vmware-tools/sbin64/vmtoolsd")
	g.GuestAgent = hasAny(t, "usr/sbin/qemu-ga", "usr/bin/qemu-ga")
	return g
}

func (g *Guest) problem(format string, args ...any) {
	g.Problems = append(g.Problems, fmt.Sprintf(format, args...))
}

func hasAny(t *files, paths ...string) bool {
	for _, p := range paths {
		if tree.Has(t.Tree, p) {
			return true
		}
	}
	return false
}

// read returns a configuration file, empty if it does not exist.
func read(t *files, path string) string {
	const stepBytes = 2 // parsers of configuration take some 50 ns for a byte
	return t.text(path, maxText, stepBytes)
}

// text returns a file of at most limit bytes, empty if it does not exist. Parsing it costs a step for
// each stepBytes bytes.
func (t *files) text(path string, limit, stepBytes int64) string {
	text, err := t.ReadFile(path, limit)
	if err != nil || t.budget.Step(int64(len(text))/stepBytes) != nil {
		return ""
	}
	return string(text)
}

// glob returns the files that match one of the patterns, by pattern and name.
func glob(t *files, patterns ...string) []string {
	var all []string
	for _, p := range patterns {
		all = append(all, tree.Glob(t.Tree, p)...)
	}
	return all
}

// An assignment is one line of KEY=value, as shells and systemd have them.
type assignment struct{ section, key, value string }

// assignments reads KEY=value lines, quotes removed, and [sections] where there are any.
func assignments(text string) []assignment {
	var all []assignment
	section := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]") {
			section = strings.ToLower(line[1 : len(line)-1])
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok || strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
			continue
		}
		all = append(all, assignment{section, strings.TrimSpace(key), strings.Trim(strings.TrimSpace(value), `"'`)})
	}
	return all
}

// A Mount is one line of fstab.
type Mount struct{ Device, Path, Type string }

// Mounts returns fstab's file systems with a place, in its order.
func Mounts(b *budget.Budget, root *tree.Tree) []Mount {
	t := &files{root, b}
	var all []Mount
	for line := range strings.Lines(read(t, "etc/fstab")) {
		f := strings.Fields(line)
		if len(f) >= 3 && !strings.HasPrefix(f[0], "#") && strings.HasPrefix(f[1], "/") {
			all = append(all, Mount{f[0], path.Clean(f[1]), f[2]})
		}
	}
	return all
}

func crypttab(t *files) []string {
	var names []string
	for line := range strings.Lines(read(t, "etc/crypttab")) {
		if f := strings.Fields(line); len(f) >= 2 && !strings.HasPrefix(f[0], "#") {
			names = append(names, f[0])
		}
	}
	return names
}

func selinux(t *files) string {
	for _, a := range assignments(read(t, "etc/selinux/config")) {
		if a.key == "SELINUX" {
			return a.value
		}
	}
	return ""
}

// resume returns the device that a command line, or initramfs-tools, resumes from.
func (g *Guest) resume(t *files) string {
	for _, a := range assignments(read(t, "etc/initramfs-tools/conf.d/resume")) {
		if a.key == "RESUME" && a.value != "none" {
			return a.value
		}
	}
	for _, line := range g.cmdlines {
		for _, word := range strings.Fields(line) {
			if device, ok := strings.CutPrefix(word, "resume="); ok {
				return device
			}
		}
	}
	return ""
}
