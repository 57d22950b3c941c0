package convert

import (
	"path"
	"regexp"
	"strings"
)

var (
	// deviceName matches a disk or partition by a name that depends on the order of the disks.
	deviceName = regexp.MustCompile(`^/dev/[sh]d[a-z]+\d*$`)

	// deviceArgument matches such a name in the root and swap arguments of a kernel or an initramfs.
	deviceArgument = regexp.MustCompile(`\b(root|resume|RESUME)=(/dev/[sh]d[a-z]+\d*)\b`)

	// unstableName matches names that depend on the disk controller.
	unstableName = regexp.MustCompile(`/dev/disk/by-(path|id)/[^\s"',:]+`)
)

// nameByUUID replaces device names by UUIDs in the files in which the guest refers to its file systems.
func (c *conversion) nameByUUID() error {
	for _, file := range []string{"etc/fstab", "etc/crypttab"} {
		if err := c.rewriteFile(file, c.tableByUUID(file)); err != nil {
			return err
		}
	}
	for _, file := range c.bootConfigs() {
		if err := c.rewriteFile(file, c.argumentsByUUID(file)); err != nil {
			return err
		}
	}
	return nil
}

// bootConfigs returns the files that may contain kernel arguments.
func (c *conversion) bootConfigs() []string {
	files := []string{"etc/default/grub", "etc/kernel/cmdline", "etc/initramfs-tools/conf.d/resume",
		"boot/grub/grub.cfg", "boot/grub2/grub.cfg", "boot/grub/grub.conf", "boot/grub/menu.lst", "boot/grub2/grubenv", "boot/grub/grubenv"}
	for _, name := range c.tree.listNames("boot/loader/entries") {
		if path.Ext(name) == ".conf" {
			files = append(files, "boot/loader/entries/"+name)
		}
	}
	return files
}

// rewriteFile replaces the text of a file by the result of to. It does nothing if the file does not
// exist or the text is unchanged. The size of a grubenv is kept.
func (c *conversion) rewriteFile(file string, to func(text string) string) error {
	text, there, err := c.tree.readText(file)
	if err != nil || !there {
		return err
	}
	next := to(text)
	// A changed size would make GRUB ignore the file.
	if path.Base(file) == "grubenv" {
		next = sameSize(next, len(text))
	}
	if next == text {
		return nil
	}
	if err := c.tree.writeFile(file, next); err != nil {
		return err
	}
	c.addChange(file, "device names replaced by UUIDs")
	return nil
}

// sameSize pads a grubenv with "#" to size bytes. GRUB requires 1024 bytes.
func sameSize(text string, size int) string {
	text = strings.TrimRight(text, "#")
	return text + strings.Repeat("#", max(0, size-len(text)))
}

// tableByUUID returns a function that replaces the device of each line: the first field of fstab, the
// second field of crypttab.
func (c *conversion) tableByUUID(file string) func(string) string {
	column := map[string]int{"etc/fstab": 0, "etc/crypttab": 1}[file]
	return func(text string) string {
		var out strings.Builder
		for line := range strings.Lines(text) {
			f := strings.Fields(line)
			if len(f) <= column || f[0][0] == '#' {
				out.WriteString(line)
				continue
			}
			// Names below by-path and by-id have no UUID here; the user must check them.
			c.noteUnstable(file, line)
			out.WriteString(strings.Replace(line, f[column], c.byUUID(file, f[column]), 1))
		}
		return out.String()
	}
}

// argumentsByUUID returns a function that replaces the devices in root= and resume=.
func (c *conversion) argumentsByUUID(file string) func(string) string {
	return func(text string) string {
		return deviceArgument.ReplaceAllStringFunc(text, func(arg string) string {
			key, dev, _ := strings.Cut(arg, "=")
			return key + "=" + c.byUUID(file, dev)
		})
	}
}

// byUUID returns the permanent name of a device, UUID=…. An unknown device keeps its name and adds a
// note: the name stays valid on virtio-scsi as long as the disks keep their order.
func (c *conversion) byUUID(file, dev string) string {
	if !deviceName.MatchString(dev) {
		return dev
	}
	for _, v := range c.volumes {
		if v.matchesDevice(dev) && v.uuid != "" {
			return "UUID=" + v.uuid
		}
	}
	c.addNote("%s contains the disk name %s, which has no UUID: use virtio-scsi, which keeps the name", file, dev)
	return dev
}

// noteUnstable adds a note if a line contains a name that depends on the disk controller.
func (c *conversion) noteUnstable(file, line string) {
	if name := unstableName.FindString(line); name != "" {
		c.addNote("%s contains the disk name %s, which may be different on other hardware", file, name)
	}
}
