// Package linux reads the parts of a Linux guest that determine whether it boots on other hardware and keeps
// its network: kernels with their drivers at boot, disk names in its configuration, network cards and the
// properties that identify them.
//
// It reads a tree and does not depend on disks. Unreadable parts are omitted and reported as a Problem. Files
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
	maxText = 256 << 10 // bytes of one configuration file
	maxNICs = 1024      // entries that configure network cards
)

// A Guest is the description of a Linux. The JSON names are stable.
type Guest struct {
	Kernels     []Kernel `json:"kernels,omitempty"`   // kernels, newest first
	DiskNames   []Name   `json:"diskNames,omitempty"` // disk names in files that are read at boot
	NICs        []NIC    `json:"nics,omitempty"`      // configured network cards
	Loaders     []string `json:"loaders,omitempty"`   // "grub", "grub-legacy", "bls", "extlinux"
	Encrypted   []string `json:"encrypted,omitempty"` // volumes that crypttab opens at boot
	Resume      string   `json:"resume,omitempty"`    // device to resume from after hibernation; empty if not configured
	SELinux     string   `json:"selinux,omitempty"`   // "enforcing", "permissive" or "disabled"
	VMwareTools bool     `json:"vmwareTools"`         // open-vm-tools or VMware's own
	GuestAgent  bool     `json:"guestAgent"`          // qemu-guest-agent
	Problems    []string `json:"problems,omitempty"`  // errors of files that could not be read
	cmdlines    []string // kernel arguments of all loaders
}

// files is the guest's tree; parsing its text is charged to a budget.
type files struct {
	*tree.Tree
	budget *budget.Budget // budget of the examination
}

// Read describes the guest below root, in which its other file systems must be mounted. The result is
// incomplete if b is exhausted afterwards.
func Read(b *budget.Budget, root *tree.Tree) Guest {
	g, t := Guest{}, &files{root, b}
	// readNICs and findResume use the command lines of the loaders.
	g.readLoaders(t)
	g.readKernels(t)
	g.readNames(t)
	g.readNICs(t)
	g.Encrypted = readCrypttab(t)
	g.Resume = g.findResume(t)
	g.SELinux = readSELinux(t)
	g.VMwareTools = hasAny(t, "usr/bin/vmtoolsd", "usr/sbin/vmtoolsd", "usr/lib/vmware-tools/sbin64/vmtoolsd")
	g.GuestAgent = hasAny(t, "usr/sbin/qemu-ga", "usr/bin/qemu-ga")
	return g
}

// addProblem records a file that could not be read.
func (g *Guest) addProblem(format string, args ...any) {
	g.Problems = append(g.Problems, fmt.Sprintf(format, args...))
}

// hasAny reports whether one of the paths exists.
func hasAny(t *files, paths ...string) bool {
	for _, p := range paths {
		if tree.Has(t.Tree, p) {
			return true
		}
	}
	return false
}

// readConfig returns a configuration file; empty if it does not exist or exceeds maxText.
func readConfig(t *files, path string) string {
	const stepBytes = 2 // parsers of configuration need about 50 ns for each byte
	return t.readText(path, maxText, stepBytes)
}

// readText returns a file of at most limit bytes; empty if it does not exist or is larger. It
// charges a step for each stepBytes bytes, in advance for the parser.
func (t *files) readText(path string, limit, stepBytes int64) string {
	text, err := t.ReadFile(path, limit)
	if err != nil || t.budget.Step(int64(len(text))/stepBytes) != nil {
		return ""
	}
	return string(text)
}

// globFiles returns the paths that match one of the patterns, in the order of the patterns.
func globFiles(t *files, patterns ...string) []string {
	var all []string
	for _, p := range patterns {
		all = append(all, tree.Glob(t.Tree, p)...)
	}
	return all
}

// An assignment is one line of the form KEY=value, as in shell files and those of systemd.
type assignment struct{ section, key, value string }

// parseAssignments returns the assignments of a text. It ignores comments and other lines.
func parseAssignments(text string) []assignment {
	var all []assignment
	section := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		// Shell files have no sections; a line in brackets does not occur in them.
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

// Mounts returns the lines of fstab that have a mount point, in order. Swap has none.
func Mounts(b *budget.Budget, root *tree.Tree) []Mount {
	t := &files{root, b}
	var all []Mount
	for line := range strings.Lines(readConfig(t, "etc/fstab")) {
		f := strings.Fields(line)
		// Swap and other entries without a mount point have "none" or "swap" in the second field.
		if len(f) >= 3 && !strings.HasPrefix(f[0], "#") && strings.HasPrefix(f[1], "/") {
			all = append(all, Mount{f[0], path.Clean(f[1]), f[2]})
		}
	}
	return all
}

// readCrypttab returns the names of the volumes in crypttab.
func readCrypttab(t *files) []string {
	var names []string
	for line := range strings.Lines(readConfig(t, "etc/crypttab")) {
		if f := strings.Fields(line); len(f) >= 2 && !strings.HasPrefix(f[0], "#") {
			names = append(names, f[0])
		}
	}
	return names
}

// readSELinux returns the configured mode of SELinux; empty without SELinux.
func readSELinux(t *files) string {
	for _, a := range parseAssignments(readConfig(t, "etc/selinux/config")) {
		if a.key == "SELINUX" {
			return a.value
		}
	}
	return ""
}

// findResume returns the device to resume from, as configured for initramfs-tools or on a kernel
// command line.
func (g *Guest) findResume(t *files) string {
	for _, a := range parseAssignments(readConfig(t, "etc/initramfs-tools/conf.d/resume")) {
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
