package convert

import "strings"

// persist has the guest's next initramfs, of its next kernel, have the drivers as well.
func (c *conversion) persist() error {
	const why = "the next kernel's initramfs has the drivers, too"
	if c.makers["initramfs-tools"] || c.tree.has("etc/initramfs-tools/modules") {
		const file = "etc/initramfs-tools/modules"
		old, _, err := c.tree.text(file)
		if err != nil {
			return err
		}
		if err := c.put(file, withLines(old, drivers()), why); err != nil {
			return err
		}
	}
	if c.makers["dracut"] || c.tree.has("etc/dracut.conf") || c.tree.has("etc/dracut.conf.d") {
		text := `add_drivers+=" ` + strings.Join(drivers(), " ") + ` "` + "\n"
		return c.put("etc/dracut.conf.d/decamp.conf", text, why)
	}
	return nil
}

// silenceTools keeps VMware's tools from being started. They stay installed.
func (c *conversion) silenceTools() error {
	if !c.hasSystemd() || !c.tree.has("usr/bin/vmtoolsd") {
		return nil
	}
	for _, unit := range []string{"open-vm-tools.service", "vmtoolsd.service"} {
		file := "etc/systemd/system/" + unit
		shipped := c.tree.has("lib/systemd/system/"+unit) || c.tree.has("usr/lib/systemd/system/"+unit)
		if !shipped || c.tree.has(file) {
			continue
		}
		on, inner := c.tree.find(file)
		if err := on.Symlink(inner, "/dev/null"); err != nil {
			return err
		}
		c.change(file, "VMware's tools are not started")
	}
	return nil
}
