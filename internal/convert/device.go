package convert

import (
	"path"
	"regexp"
	"strings"
)

var (
	// device is a partition, or a disk, by a name that depends on the order disks are found in.
	device = regexp.MustCompile(`^/dev/[sh]d[a-z]+\d*$`)

	// argument matches such a name in the root and swap arguments of a kernel or an initramfs.
	argument = regexp.MustCompile(`\b(root|resume|RESUME)=(/dev/[sh]d[a-z]+\d*)\b`)

	// byPath are names that change with the controller.
	byPath = regexp.MustCompile(`/dev/disk/by-(path|id)/[^\s"',:]+`)
)

// nameByUUID replaces device names by UUIDs where the guest looks for its file systems.
func (c *conversion) nameByUUID() error {
	for _, file := range []string{"etc/fstab", "etc/crypttab"} {
		if err := c.rewrite(file, c.tableByUUID(file)); err != nil {
			return err
		}
	}
	for _, file := range c.bootConfigs() {
		if err := c.rewrite(file, c.argumentsByUUID(file)); err != nil {
			return err
		}
	}
	return nil
}

// bootConfigs lists where kernels' arguments may be.
func (c *conversion) bootConfigs() []string {
	files := []string{"etc/default/grub", "etc/kernel/cmdline", "etc/initramfs-tools/conf.d/resume",
		"boot/grub/grub.cfg", "boot/grub2/grub.cfg", "boot/grub/grub.conf", "boot/grub/menu.lst", "boot/grub2/grubenv", "boot/grub/grubenv"}
	for _, name := range c.tree.names("boot/loader/entries") {
		if path.Ext(name) == ".conf" {
			files = append(files, "boot/loader/entries/"+name)
		}
	}
	return files
}

// rewrite changes a file's text, if it is there and its text becomes another.
func (c *conversion) rewrite(file string, to func(text string) string) error {
	text, there, err := c.tree.text(file)
	if err != nil || !there {
		return err
	}
	next := to(text)
	if path.Base(file) == "grubenv" {
		next = sameSize(next, len(text))
	}
	if next == text {
		return nil
	}
	if err := c.tree.write(file, next); err != nil {
		return err
	}
	c.change(file, "device names replaced by UUIDs")
	return nil
}

// sameSize keeps the size of a grubenv, 1024 bytes, which GRUB insists on: it ends in "#".
func sameSize(text string, size int) string {
	text = strings.TrimRight(text, "#")
	return text + strings.Repeat("#", max(0, size-len(text)))
}

// tableByUUID rewrites the device of each line: the first field of fstab, the second of
// crypttab.
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
			c.noteUnstable(file, line)
			out.WriteString(strings.Replace(line, f[column], c.byUUID(file, f[column]), 1))
		}
		return out.String()
	}
}

// argumentsByUUID rewrites root= and resume=.
func (c *conversion) argumentsByUUID(file string) func(string) string {
	return func(text string) string {
		return argument.ReplaceAllStringFunc(text, func(arg string) string {
			key, dev, _ := strings.Cut(arg, "=")
			return key + "=" + c.byUUID(file, dev)
		})
	}
}

// byUUID returns what a device is called for good. One that is not known keeps its name, which
// is right on virtio-scsi as long as disks keep their order.
func (c *conversion) byUUID(file, dev string) string {
	if !device.MatchString(dev) {
		return dev
	}
	for _, v := range c.vols {
		if v.is(dev) && v.uuid != "" {
			return "UUID=" + v.uuid
		}
	}
	c.note("%s names %s, which has no UUID: boot from virtio-scsi, which keeps the name", file, dev)
	return dev
}

func (c *conversion) noteUnstable(file, line string) {
	if name := byPath.FindString(line); name != "" {
		c.note("%s names %s, which may be called otherwise on other hardware", file, name)
	}
}
