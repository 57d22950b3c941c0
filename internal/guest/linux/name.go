package linux

import (
	"regexp"
	"strings"
)

// maxNames limits the disk names that are reported.
const maxNames = 64

// A Name is a disk name in a file that is read at boot.
type Name struct {
	File string `json:"file"` // path of the file
	Line int    `json:"line"` // number of the line, from 1
	Name string `json:"name"` // name of the device: "/dev/sda1"

	// Stays reports that a disk on a virtio-scsi bus has the same name, as sda.
	Stays bool `json:"sameOnVirtio"`
}

// hardwareName matches disk names that depend on the hardware. Names by UUID or label and names of LVM
// do not.
var hardwareName = regexp.MustCompile(`/dev/(sd[a-z]+[0-9]*|vd[a-z]+[0-9]*|hd[a-z]+[0-9]*|xvd[a-z]+[0-9]*|disk/by-path/[^\s"',)]+|disk/by-id/(?:ata|scsi|wwn|nvme)-[^\s"',:)]+)`)

// readNames searches disk names in fstab, in crypttab, and in the files that boot loaders read or are
// generated from.
func (g *Guest) readNames(t *files) {
	for _, file := range globFiles(t, "etc/fstab", "etc/crypttab", "etc/default/grub", "etc/kernel/cmdline",
		"boot/grub/grub.cfg", "boot/grub2/grub.cfg", "boot/grub/menu.lst", "boot/grub/grub.conf", "boot/loader/entries/*.conf",
		"boot/extlinux/extlinux.conf", "etc/initramfs-tools/conf.d/resume", "etc/lilo.conf") {
		g.namesIn(file, readConfig(t, file))
	}
}

// namesIn adds the disk names in one file to g.DiskNames, except those in comments.
func (g *Guest) namesIn(file, text string) {
	n := 0
	for line := range strings.Lines(text) {
		n++
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		for _, name := range hardwareName.FindAllString(line, -1) {
			// More names of the same kind do not change the verdict.
			if len(g.DiskNames) == maxNames {
				return
			}
			g.DiskNames = append(g.DiskNames, Name{file, n, name, strings.HasPrefix(name, "/dev/sd")})
		}
	}
}

// HasDiskName reports whether the configuration has a disk name with the prefix: "/dev/vd".
func (g *Guest) HasDiskName(prefix string) bool {
	for _, n := range g.DiskNames {
		if strings.HasPrefix(n.Name, prefix) {
			return true
		}
	}
	return false
}

// NamesStay reports whether all disk names remain valid on a virtio-scsi bus.
func (g *Guest) NamesStay() bool {
	for _, n := range g.DiskNames {
		if !n.Stays {
			return false
		}
	}
	return true
}
