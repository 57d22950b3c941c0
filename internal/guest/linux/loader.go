package linux

import (
	"strings"
)

// readLoaders finds the boot loaders' files and the command lines in them.
func (g *Guest) readLoaders(t *files) {
	for _, l := range []struct {
		name  string
		files []string
	}{
		{"grub", glob(t, "boot/grub/grub.cfg", "boot/grub2/grub.cfg")},
		{"grub-legacy", glob(t, "boot/grub/menu.lst", "boot/grub/grub.conf")},
		{"bls", glob(t, "boot/loader/entries/*.conf", "boot/efi/loader/entries/*.conf", "efi/loader/entries/*.conf")},
		{"extlinux", glob(t, "boot/extlinux/extlinux.conf", "boot/syslinux/syslinux.cfg")},
	} {
		if len(l.files) > 0 {
			g.Loaders = append(g.Loaders, l.name)
		}
		for _, f := range l.files {
			g.cmdlines = append(g.cmdlines, cmdlines(read(t, f))...)
		}
	}
	for _, a := range assignments(read(t, "etc/default/grub")) {
		if strings.HasPrefix(a.key, "GRUB_CMDLINE_LINUX") {
			g.cmdlines = append(g.cmdlines, a.value)
		}
	}
}

// cmdlines returns what kernels are called with: "linux" and "kernel" of GRUB, "options" of
// BLS, "append" of extlinux.
func cmdlines(text string) []string {
	var all []string
	for line := range strings.Lines(text) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch strings.ToLower(word) {
		case "linux", "linux16", "linuxefi", "kernel", "options", "append":
			all = append(all, strings.TrimSpace(rest))
		}
	}
	return all
}

// oldNames reports whether a kernel's arguments name its cards eth0, eth1, …
func (g *Guest) oldNames() bool {
	for _, line := range g.cmdlines {
		if strings.Contains(" "+line+" ", " net.ifnames=0 ") {
			return true
		}
	}
	return false
}
