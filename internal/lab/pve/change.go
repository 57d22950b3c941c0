package pve

import (
	"context"
	"fmt"
	"strings"
)

// applyOptions creates the volumes of the request's options and then sets all options. If a volume
// cannot be created, no option is set and the new volumes are removed. guest.busy must be held.
func (c *call) applyOptions(ctx context.Context, t *task, g *guest) error {
	if t.broken != nil { // Faults.Tasks: the task fails without changes
		return t.broken
	}
	made := map[string]string{}
	for _, name := range sortedNames(c.optionNames()) {
		value := c.form.Get(name)
		if driveKey.MatchString(name) {
			kept, err := c.makeDrive(ctx, t, g.vmid, name, value)
			if err != nil {
				for name, value := range made {
					if newDisk.MatchString(parseDrive(c.form.Get(name)).volume) { // not one that was there
						c.removeVolumeOf(name, value)
					}
				}
				return err
			}
			value = kept
		}
		made[name] = value
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, value := range made {
		if old := g.config[name]; driveKey.MatchString(name) && old != "" && parseDrive(old).volume != "none" && parseDrive(old).volume != parseDrive(value).volume {
			g.config[fmt.Sprintf("unused%d", len(g.config))] = parseDrive(old).volume // Proxmox keeps a replaced volume as unused
		}
		g.config[name] = value
	}
	for _, name := range strings.FieldsFunc(c.form.Get("delete"), func(r rune) bool { return r == ',' }) {
		if c.form.Get("force") == "1" { // otherwise Proxmox keeps the volume
			c.removeVolumeOf(name, g.config[name])
		}
		delete(g.config, name) // also if the volume is kept
	}
	return nil
}

// checkChange checks keys, values, permissions and drives of a change, and that each device of the boot
// order exists. It modifies nothing.
func (c *call) checkChange(g *guest) error {
	if err := c.checkKeys(g.vmid, c.optionNames()); err != nil {
		return err
	}
	if err := c.checkDrives(c.form); err != nil {
		return err
	}
	order, ok := strings.CutPrefix(c.form.Get("boot"), "order=") // the legacy form without order= is not checked
	if !ok {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, device := range strings.Split(order, ";") {
		if g.config[device] == "" && c.form.Get(device) == "" {
			return serverError("invalid bootorder: device '%s' does not exist'", device)
		}
	}
	return nil
}

// changeGuest changes options synchronously. It refuses import-from with 596: an import takes longer
// than the 30 s that pveproxy waits.
func changeGuest(c *call) (any, error) {
	g, err := c.findGuest("VM.Audit")
	if err == nil {
		err = c.checkChange(g)
	}
	if err != nil {
		return nil, err
	}
	for name := range c.form {
		if strings.Contains(c.form.Get(name), "import-from=") { // an import would exceed the 30 s of pveproxy
			return nil, newRefusal(596, "Connection timed out")
		}
	}
	if !g.busy.TryLock() {
		return nil, errLocked(g.vmid)
	}
	defer g.busy.Unlock()
	return nil, c.applyOptions(c.alive, &task{}, g)
}

// changeGuestLater checks the options, then changes them in a task qmconfig.
func changeGuestLater(c *call) (any, error) {
	g, err := c.findGuest("VM.Audit")
	if err == nil {
		err = c.checkChange(g)
	}
	if err != nil {
		return nil, err
	}
	return c.startTask("qmconfig", c.args[0], func(ctx context.Context, t *task) error {
		if !g.busy.TryLock() {
			return errLocked(g.vmid)
		}
		defer g.busy.Unlock()
		return c.applyOptions(ctx, t, g)
	}), nil
}
