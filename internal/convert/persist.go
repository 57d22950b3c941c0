package convert

import "strings"

// persistDrivers configures initramfs-tools and dracut so that the initramfs of the next kernel
// contains the drivers, too.
func (c *conversion) persistDrivers() error {
	const why = "the initramfs of later kernels contains the drivers"
	// The configuration also matters if the tool is installed but made no current initramfs.
	if c.makers["initramfs-tools"] || c.tree.hasPath("etc/initramfs-tools/modules") {
		const file = "etc/initramfs-tools/modules"
		old, _, err := c.tree.readText(file)
		if err != nil {
			return err
		}
		if err := c.putFile(file, withLines(old, virtioDrivers()), why); err != nil {
			return err
		}
	}
	if c.makers["dracut"] || c.tree.hasPath("etc/dracut.conf") || c.tree.hasPath("etc/dracut.conf.d") {
		text := `add_drivers+=" ` + strings.Join(virtioDrivers(), " ") + ` "` + "\n"
		return c.putFile("etc/dracut.conf.d/decamp.conf", text, why)
	}
	return nil
}

// silenceTools prevents VMware's tools from starting. They stay installed.
func (c *conversion) silenceTools() error {
	if !c.hasSystemd() || !c.tree.hasPath("usr/bin/vmtoolsd") {
		return nil
	}
	for _, unit := range []string{"open-vm-tools.service", "vmtoolsd.service"} {
		file := "etc/systemd/system/" + unit
		shipped := c.tree.hasPath("lib/systemd/system/"+unit) || c.tree.hasPath("usr/lib/systemd/system/"+unit)
		if !shipped || c.tree.hasPath(file) {
			continue
		}
		// A link to /dev/null masks the unit.
		on, inner := c.tree.findMount(file)
		if err := on.Symlink(inner, "/dev/null"); err != nil {
			return err
		}
		c.addChange(file, "VMware's tools are not started")
	}
	return nil
}
