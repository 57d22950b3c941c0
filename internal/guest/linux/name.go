package linux

import (
	"regexp"
	"strings"
)

// maxNames bounds the names that are reported; more say nothing new.
const maxNames = 64

// A Name is a disk's name in a file that is read at boot.
type Name struct {
	File string `json:"file"`
	Line int    `json:"line"` // line, from 1
	Name string `json:"name"` // "/dev/sda1"

	// Stays reports that a disk on a virtio-scsi bus has this name as well, such as sda.
	Stays bool `json:"stays"`
}

// named matches the names that hang on a disk's hardware. Those by UUID, by label and of
// LVM do not.
var named = regexp.MustCompile(`/dev/(sd[a-z]+[0-9]*|vd[a-z]+[0-9]*|hd[a-z]+[0-9]*|xvd[a-z]+[0-9]*|disk/by-path/[^\s"',)]+|disk/by-id/(?:ata|scsi|wwn|nvme)-[^\s"',:)]+)`)

// readNames looks through fstab, crypttab and what boot loaders read or are made from.
func (g *Guest) readNames(t *files) {
	for _, file := range glob(t, "etc/fstab", "etc/crypttab", "etc/default/grub", "etc/kernel/cmdline",
		"boot/grub/grub.cfg", "boot/grub2/grub.cfg", "boot/grub/menu.lst", "boot/grub/grub.conf", "boot/loader/entries/*.conf",
		"boot/extlinux/extlinux.conf", "etc/initramfs-tools/conf.d/resume", "etc/lilo.conf") {
		g.namesIn(file, read(t, file))
	}
}

func (g *Guest) namesIn(file, text string) {
	n := 0
	for line := range strings.Lines(text) {
		n++
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		for _, name := range named.FindAllString(line, -1) {
			if len(g.DiskNames) == maxNames {
				return
			}
			g.DiskNames = append(g.DiskNames, Name{file, n, name, strings.HasPrefix(name, "/dev/sd")})
		}
	}
}

// Calls reports whether a disk is called by a name that begins so: "/dev/vd".
func (g *Guest) Calls(prefix string) bool {
	for _, n := range g.DiskNames {
		if strings.HasPrefix(n.Name, prefix) {
			return true
		}
	}
	return false
}

// NamesStay reports whether all names of disks are those of a virtio-scsi bus, too.
func (g *Guest) NamesStay() bool {
	for _, n := range g.DiskNames {
		if !n.Stays {
			return false
		}
	}
	return true
}
