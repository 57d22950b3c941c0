package linux

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/decamp/decamp/internal/guest/budget"
	"github.com/decamp/decamp/internal/guest/initramfs"
	"github.com/decamp/decamp/internal/guest/tree"
)

const (
	maxKernels   = 4         // newest kernels whose initramfs is read
	maxListed    = 64        // newest kernels that are reported
	maxInitramfs = 256 << 20 // bytes of an initramfs
	maxModules   = 4 << 20   // bytes of modules.dep and of modules.builtin
)

// A Kernel is an installed kernel with the drivers that are available before the root is mounted.
type Kernel struct {
	Version     string   `json:"version,omitempty"`     // version; empty if the file's name has none
	Image       string   `json:"image"`                 // path of the kernel
	Initramfs   string   `json:"initramfs,omitempty"`   // path of the initramfs; empty if none was found
	Maker       string   `json:"maker,omitempty"`       // "dracut", "initramfs-tools", "mkinitcpio"; empty for other tools
	Compression string   `json:"compression,omitempty"` // method of the last archive
	Drivers     []string `json:"drivers,omitempty"`     // drivers at boot: in the initramfs or built in
	Installed   []string `json:"installed,omitempty"`   // drivers in /lib/modules or built in, which an initramfs could have
	Unread      bool     `json:"unread,omitempty"`      // the initramfs was not read completely, or its format is not supported
	NotExamined string   `json:"notExamined,omitempty"` // limit that reading the initramfs reached; empty if none
}

// reportedDrivers returns the drivers that Kernel lists: those of VMs at the source and at the target.
func reportedDrivers() []string {
	return []string{
		"virtio_pci", "virtio_blk", "virtio_scsi", "virtio_net", "sd_mod",
		"vmw_pvscsi", "mptspi", "mptsas", "ahci", "ata_piix", "nvme", "vmxnet3", "e1000", "e1000e",
	}
}

// A Bus is the type of virtio controller that a disk is attached to.
type Bus string

const (
	VirtioSCSI Bus = "virtio-scsi" // disks are named sda, as at the source
	VirtioBlk  Bus = "virtio-blk"  // disks are named vda
)

// requiredDrivers returns the drivers that are required to find a root on the bus.
func (b Bus) requiredDrivers() []string {
	if b == VirtioSCSI {
		return []string{"virtio_pci", "virtio_scsi", "sd_mod"}
	}
	return []string{"virtio_pci", "virtio_blk"}
}

// Boots reports whether the kernel can mount a root on the bus without changes.
func (k Kernel) Boots(b Bus) bool { return containsAll(k.Drivers, b.requiredDrivers()) }

// BootsIfRebuilt reports whether the kernel could mount a root on the bus if its initramfs had all installed
// modules.
func (k Kernel) BootsIfRebuilt(b Bus) bool {
	return containsAll(slices.Concat(k.Drivers, k.Installed), b.requiredDrivers())
}

// containsAll reports whether have contains all elements of want.
func containsAll(have, want []string) bool {
	return !slices.ContainsFunc(want, func(w string) bool { return !slices.Contains(have, w) })
}

// readKernels sets g.Kernels, newest first. It examines the newest maxKernels kernels thoroughly.
func (g *Guest) readKernels(t *files) {
	for _, image := range globFiles(t, "boot/vmlinuz*", "boot/vmlinux-*", "lib/modules/*") {
		if k, ok := kernelAt(t, image); ok {
			g.Kernels = append(g.Kernels, k)
		}
	}
	slices.SortStableFunc(g.Kernels, func(a, b Kernel) int { return compareVersions(b.Version, a.Version) })
	if len(g.Kernels) > 1 { // a symbolic link without a version refers to another image
		g.Kernels = slices.DeleteFunc(g.Kernels, func(k Kernel) bool { return k.Version == "" || strings.HasSuffix(k.Version, ".old") })
	}
	// Copies of one version, in /boot and in /lib/modules, are adjacent after the sort.
	g.Kernels = slices.CompactFunc(g.Kernels, func(a, b Kernel) bool { return a.Version == b.Version })
	if more := len(g.Kernels) - maxListed; more > 0 {
		g.addProblem("%d kernels were found, %d of them not examined", len(g.Kernels), more)
		g.Kernels = g.Kernels[:maxListed]
	}
	// The other kernels are reported with Unread, without the cost of reading their initramfs.
	for i := range g.Kernels {
		g.inspectKernel(t, &g.Kernels[i], i < maxKernels)
	}
}

// kernelAt returns the Kernel of a path. A folder below lib/modules counts only if it contains a
// kernel, because modules may remain after the kernel is removed. Rescue kernels and checksums do
// not count.
func kernelAt(t *files, image string) (Kernel, bool) {
	dir, name := path.Split(image)
	if dir == "lib/modules/" {
		k := Kernel{Version: name, Image: image + "/vmlinuz"}
		return k, tree.Has(t.Tree, k.Image)
	}
	// vmlinuz-6.1.0-13-amd64 has the version 6.1.0-13-amd64.
	_, version, _ := strings.Cut(name, "-")
	if strings.HasPrefix(version, "0-rescue-") || strings.Contains(version, ".hmac") {
		return Kernel{}, false
	}
	return Kernel{Version: version, Image: image}, true
}

// inspectKernel sets the initramfs and the drivers of a kernel. It reads the initramfs only if
// thorough is true.
func (g *Guest) inspectKernel(t *files, k *Kernel, thorough bool) {
	has := newDriverSet()
	// Built-in drivers are available at boot; those of modules.dep only if they are in the initramfs.
	folder := "lib/modules/" + k.Version + "/"
	has.addList(readModuleList(t, folder+"modules.builtin"))
	k.Initramfs = initramfsOf(t, k.Version)
	switch {
	case k.Initramfs != "" && thorough:
		g.readInitramfs(t, k, has)
	case k.Initramfs != "":
		k.Unread = true
	}
	k.Drivers = presentDrivers(has)
	has.addList(readModuleList(t, folder+"modules.dep"))
	k.Installed = presentDrivers(has)
}

// A driverSet contains the reported drivers and whether each is present. Other modules are not added,
// because the lists of a guest may have any number of them.
type driverSet map[string]bool

// newDriverSet returns a set without present drivers.
func newDriverSet() driverSet {
	has := driverSet{}
	for _, d := range reportedDrivers() {
		has[d] = false
	}
	return has
}

// addModule marks a module as present if it is a reported driver.
func (has driverSet) addModule(name string) {
	if _, reported := has[name]; reported {
		has[name] = true
	}
}

// addList marks the modules of a list as present. A line of modules.builtin is a path; a line of
// modules.dep is a path, a colon and dependencies.
func (has driverSet) addList(list string) {
	for line := range strings.Lines(list) {
		file, _, _ := strings.Cut(strings.TrimSpace(line), ":")
		has.addModule(initramfs.Module(file))
	}
}

// readModuleList returns a list of modules, which is simpler to parse than configuration; empty if
// it does not exist.
func readModuleList(t *files, path string) string {
	const stepBytes = 32
	return t.readText(path, maxModules, stepBytes)
}

// presentDrivers returns the reported drivers that are in has.
func presentDrivers(has driverSet) []string {
	return slices.DeleteFunc(reportedDrivers(), func(d string) bool { return !has[d] })
}

// initramfsOf returns the path of a version's initramfs, by the naming conventions of
// distributions. It is empty if none exists.
func initramfsOf(t *files, version string) string {
	names := []string{"boot/initrd.img", "boot/initrd", "boot/initramfs.img"}
	if version != "" {
		names = []string{
			"boot/initrd.img-" + version, "boot/initramfs-" + version + ".img", "boot/initrd-" + version,
			"boot/initramfs-" + version, "boot/initrd-" + version + ".img", "lib/modules/" + version + "/initrd",
		}
	}
	for _, n := range names {
		if tree.Has(t.Tree, n) {
			return n
		}
	}
	return ""
}

// readInitramfs adds the modules in the initramfs of k to has. Errors are added to g.Problems.
func (g *Guest) readInitramfs(t *files, k *Kernel, has driverSet) {
	node, err := t.Open(k.Initramfs)
	if err == nil && (node.Kind() != tree.File || node.Size() > maxInitramfs) {
		err = errors.New("not a file of at most 256 MiB")
	}
	var c initramfs.Content
	if err == nil {
		c, err = initramfs.Read(t.budget, io.NewSectionReader(node, 0, node.Size()))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		g.addProblem("%s: %v", k.Initramfs, err)
		k.Unread = true
		// A limit is not an error of the initramfs: the rest of it may contain more drivers.
		var limit *budget.Error
		if errors.As(err, &limit) {
			k.NotExamined = limit.Cause
		}
	}
	k.Maker, k.Compression = c.Maker, c.Last()
	for m := range c.Modules {
		has.addModule(m)
	}
}

// compareVersions compares versions naturally: 5.10 is after 5.9. It compares sequences of digits
// as numbers and everything else as text.
func compareVersions(a, b string) int {
	for a != "" && b != "" {
		x, restA := splitVersion(a)
		y, restB := splitVersion(b)
		// Atoi fails for text, and then the texts are compared.
		n, errN := strconv.Atoi(x)
		m, errM := strconv.Atoi(y)
		c := cmp.Compare(x, y)
		if errN == nil && errM == nil {
			c = cmp.Compare(n, m)
		}
		if c != 0 {
			return c
		}
		a, b = restA, restB
	}
	return cmp.Compare(len(a), len(b))
}

// splitVersion splits s after its first sequence of digits or of other characters. s must not be empty.
func splitVersion(s string) (first, rest string) {
	digit := func(c byte) bool { return c >= '0' && c <= '9' }
	n := 1
	for n < len(s) && digit(s[n]) == digit(s[0]) {
		n++
	}
	return s[:n], s[n:]
}
