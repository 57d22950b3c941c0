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
	maxKernels   = 4         // number of newest kernels whose initramfs is read
	maxListed    = 64        // kernels that are reported, the newest
	maxInitramfs = 256 << 20 // bytes
	maxModules   = 4 << 20   // bytes of modules.dep and modules.builtin
)

// A Kernel is one that is installed, with the drivers it has before there is a root.
type Kernel struct {
	Version     string   `json:"version,omitempty"` // "" for a vmlinuz without one in its name
	Image       string   `json:"image"`
	Initramfs   string   `json:"initramfs,omitempty"`
	Maker       string   `json:"maker,omitempty"`       // "dracut", "initramfs-tools", "mkinitcpio"
	Compression string   `json:"compression,omitempty"` // method of the last archive
	Drivers     []string `json:"drivers,omitempty"`     // drivers at boot, in the initramfs or built in
	Installed   []string `json:"installed,omitempty"`   // drivers in /lib/modules or built in, which could be added
	Unread      bool     `json:"unread,omitempty"`      // the initramfs was not, or not wholly, understood
	NotExamined string   `json:"notExamined,omitempty"` // limit that reading the initramfs reached
}

// drivers lists the reported drivers: those of VMs at the source and the target.
func drivers() []string {
	return []string{
		"virtio_pci", "virtio_blk", "virtio_scsi", "virtio_net", "sd_mod",
		"vmw_pvscsi", "mptspi", "mptsas", "ahci", "ata_piix", "nvme", "vmxnet3", "e1000", "e1000e",
	}
}

// A Bus is a way a disk is attached.
type Bus string

const (
	VirtioSCSI Bus = "virtio-scsi"
	VirtioBlk  Bus = "virtio-blk"
)

// needs are the drivers a root on a bus is found with.
func (b Bus) needs() []string {
	if b == VirtioSCSI {
		return []string{"virtio_pci", "virtio_scsi", "sd_mod"}
	}
	return []string{"virtio_pci", "virtio_blk"}
}

// Boots reports whether the kernel finds its root on a bus as it is.
func (k Kernel) Boots(b Bus) bool { return containsAll(k.Drivers, b.needs()) }

// Could reports whether it would, had its initramfs all modules that are installed.
func (k Kernel) Could(b Bus) bool {
	return containsAll(slices.Concat(k.Drivers, k.Installed), b.needs())
}

func containsAll(have, want []string) bool {
	return !slices.ContainsFunc(want, func(w string) bool { return !slices.Contains(have, w) })
}

// readKernels finds the kernels, the newest first.
func (g *Guest) readKernels(t *files) {
	for _, image := range glob(t, "boot/vmlinuz*", "boot/vmlinux-*", "lib/modules/*") {
		if k, ok := kernelAt(t, image); ok {
			g.Kernels = append(g.Kernels, k)
		}
	}
	slices.SortStableFunc(g.Kernels, func(a, b Kernel) int { return compareVersions(b.Version, a.Version) })
	if len(g.Kernels) > 1 { // a link without a version leads to one that has it
		g.Kernels = slices.DeleteFunc(g.Kernels, func(k Kernel) bool { return k.Version == "" || strings.HasSuffix(k.Version, ".old") })
	}
	g.Kernels = slices.CompactFunc(g.Kernels, func(a, b Kernel) bool { return a.Version == b.Version })
	if more := len(g.Kernels) - maxListed; more > 0 {
		g.problem("%d kernels were found, %d of them not examined", len(g.Kernels), more)
		g.Kernels = g.Kernels[:maxListed]
	}
	for i := range g.Kernels {
		g.inspect(t, &g.Kernels[i], i < maxKernels)
	}
}

// kernelAt makes a Kernel of a file's name. Below lib/modules only a kernel itself counts:
// modules stay there after it is removed.
func kernelAt(t *files, image string) (Kernel, bool) {
	dir, name := path.Split(image)
	if dir == "lib/modules/" {
		k := Kernel{Version: name, Image: image + "/vmlinuz"}
		return k, tree.Has(t.Tree, k.Image)
	}
	_, version, _ := strings.Cut(name, "-")
	if strings.HasPrefix(version, "0-rescue-") || strings.Contains(version, ".hmac") {
		return Kernel{}, false
	}
	return Kernel{Version: version, Image: image}, true
}

// inspect fills in what a kernel has.
func (g *Guest) inspect(t *files, k *Kernel, thorough bool) {
	has := map[string]bool{}
	folder := "lib/modules/" + k.Version + "/"
	note(has, readLong(t, folder+"modules.builtin"))
	k.Initramfs = initramfsOf(t, k.Version)
	switch {
	case k.Initramfs != "" && thorough:
		g.initramfs(t, k, has)
	case k.Initramfs != "":
		k.Unread = true
	}
	k.Drivers = among(has)
	note(has, readLong(t, folder+"modules.dep"))
	k.Installed = among(has)
}

// note adds the modules that a list names: modules.builtin has a path in each line,
// modules.dep a path and a colon.
func note(has map[string]bool, list string) {
	for line := range strings.Lines(list) {
		file, _, _ := strings.Cut(strings.TrimSpace(line), ":")
		has[initramfs.Module(file)] = true
	}
}

func readLong(t *files, path string) string {
	const stepBytes = 32
	return t.text(path, maxModules, stepBytes)
}

func among(has map[string]bool) []string {
	return slices.DeleteFunc(drivers(), func(d string) bool { return !has[d] })
}

// initramfsOf returns the initramfs of a version by the names that distributions give.
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

// initramfs looks into the initramfs of k.
func (g *Guest) initramfs(t *files, k *Kernel, has map[string]bool) {
	node, err := t.Open(k.Initramfs)
	if err == nil && (node.Kind() != tree.File || node.Size() > maxInitramfs) {
		err = errors.New("no file of 256 MiB at most")
	}
	var c initramfs.Content
	if err == nil {
		c, err = initramfs.Read(t.budget, io.NewSectionReader(node, 0, node.Size()))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		g.problem("%s: %v", k.Initramfs, err)
		k.Unread = true
		var limit *budget.Error
		if errors.As(err, &limit) {
			k.NotExamined = limit.Cause
		}
	}
	k.Maker, k.Compression = c.Maker, c.Last()
	for m := range c.Modules {
		has[m] = true
	}
}

// compareVersions orders as people do: 5.10 after 5.9. Numbers count as such, all else as
// text.
func compareVersions(a, b string) int {
	for a != "" && b != "" {
		x, restA := piece(a)
		y, restB := piece(b)
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

// piece splits off the digits, or the text before the next digit.
func piece(s string) (first, rest string) {
	digit := func(c byte) bool { return c >= '0' && c <= '9' }
	n := 1
	for n < len(s) && digit(s[n]) == digit(s[0]) {
		n++
	}
	return s[:n], s[n:]
}
