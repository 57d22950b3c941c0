package linux

import (
	"strings"
)

// readLoaders detects boot loaders by their files and collects the kernel command lines in them.
func (g *Guest) readLoaders(t *files) {
	for _, l := range []struct {
		name  string
		files []string
	}{
		{"grub", globFiles(t, "boot/grub/grub.cfg", "boot/grub2/grub.cfg")},
		{"grub-legacy", globFiles(t, "boot/grub/menu.lst", "boot/grub/grub.conf")},
		{"bls", globFiles(t, "boot/loader/entries/*.conf", "boot/efi/loader/entries/*.conf", "efi/loader/entries/*.conf")},
		{"extlinux", globFiles(t, "boot/extlinux/extlinux.conf", "boot/syslinux/syslinux.cfg")},
	} {
		if len(l.files) > 0 {
			g.Loaders = append(g.Loaders, l.name)
		}
		for _, f := range l.files {
			g.cmdlines = append(g.cmdlines, parseCmdlines(readConfig(t, f))...)
		}
	}
	for _, a := range parseAssignments(readConfig(t, "etc/default/grub")) {
		// The next run of update-grub copies these arguments to grub.cfg.
		if strings.HasPrefix(a.key, "GRUB_CMDLINE_LINUX") {
			g.cmdlines = append(g.cmdlines, a.value)
		}
	}
}

// parseCmdlines returns the kernel command lines in the configuration of a boot loader: "linux" and
// "kernel" of GRUB, "options" of BLS, "append" of extlinux.
func parseCmdlines(text string) []string {
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

// oldNames reports whether a command line requests the card names eth0, eth1, ….
func (g *Guest) oldNames() bool {
	for _, line := range g.cmdlines {
		// net.ifnames=0 disables systemd's predictable names.
		if strings.Contains(" "+line+" ", " net.ifnames=0 ") {
			return true
		}
	}
	return false
}
