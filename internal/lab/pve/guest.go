package pve

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A guest is a VM of the node. Server.mu guards config, qemu and off; busy serializes changes and is
// independent of Server.mu.
type guest struct {
	vmid   int               // identifier in the cluster, from 100 to 999999999
	config map[string]string // options as in the guest's configuration file; "lock" while the guest is created
	busy   sync.Mutex        // held during a change or a start; others fail with errLocked
	qemu   *exec.Cmd         // QEMU of the guest; nil while it is off
	off    chan struct{}     // closed when the process of qemu has ended
}

// newGuest returns a guest with a copy of config.
func newGuest(vmid int, config map[string]string) *guest {
	return &guest{vmid: vmid, config: maps.Clone(config)}
}

// apiConfig returns a copy of the configuration with a digest, as the API returns it. Server.mu must be
// held.
func (g *guest) apiConfig() map[string]string {
	shown := maps.Clone(g.config)
	shown["digest"] = fmt.Sprintf("%040x", len(fmt.Sprint(g.config))) // changes with the length of the configuration
	return shown
}

// errLocked is the error of a change while another one is in progress.
func errLocked(vmid int) error {
	return fmt.Errorf("can't lock file '/var/lock/qemu-server/lock-%d.conf' - got timeout", vmid)
}

// optionPrivileges lists the options of a guest and the privilege that each requires on /vms/VMID.
var optionPrivileges = []struct {
	name      *regexp.Regexp
	privilege string
}{
	{regexp.MustCompile(`^(scsi([0-9]|[12][0-9]|30)|sata[0-5]|ide[0-3]|efidisk0|tpmstate0|unused\d+)$`), "VM.Config.Disk"},
	{regexp.MustCompile(`^(cpu|cores|sockets|numa|vcpus)$`), "VM.Config.CPU"},
	{regexp.MustCompile(`^(memory|balloon|shares)$`), "VM.Config.Memory"},
	{regexp.MustCompile(`^net\d+$`), "VM.Config.Network"},
	{regexp.MustCompile(`^(machine|kvm|scsihw|serial[0-3]|vga|smbios1|vmgenid|bios)$`), "VM.Config.HWType"},
	{regexp.MustCompile(`^(name|description|tags|onboot|ostype|boot|agent|protection|localtime|tablet|acpi)$`), "VM.Config.Options"},
}

// checkKeys returns a refusal for unknown options, for options that the caller may not set, and for
// values that Proxmox rejects.
func (c *call) checkKeys(vmid int, names []string) error {
	for _, name := range names {
		privilege := "" // stays empty for an unknown option
		for _, k := range optionPrivileges {
			if k.name.MatchString(name) {
				privilege = k.privilege
			}
		}
		if privilege == "" {
			return refuseParameter(name, "property is not defined in schema and the schema does not allow additional properties")
		}
		value := c.form.Get(name)
		if strings.HasPrefix(value, "none,media=cdrom") { // an empty drive needs no privilege on disks
			privilege = "VM.Config.CDROM"
		}
		if err := c.token.requireAll(fmt.Sprintf("/vms/%d", vmid), privilege); err != nil {
			return err
		}
		if err := c.checkValue(name, value); err != nil {
			return err
		}
		if err := c.checkRegistered(name, value); err != nil {
			return err
		}
	}
	return nil
}

// checkRegistered returns a refusal if the caller sets a tag that datacenter.cfg reserves
// (registered-tags) and lacks Sys.Modify.
func (c *call) checkRegistered(name, value string) error {
	for _, t := range strings.Split(value, ";") {
		if name == "tags" && slices.Contains(c.config.RegisteredTags, t) {
			if err := c.token.requireAll("/", "Sys.Modify"); err != nil {
				return err
			}
		}
	}
	return nil
}

var (
	// names of guests: DNS names, as Proxmox requires
	dnsName = regexp.MustCompile(`^([a-zA-Z0-9]([a-zA-Z0-9\-]*[a-zA-Z0-9])?\.)*([A-Za-z0-9]([A-Za-z0-9\-]*[A-Za-z0-9])?)$`)
	tag     = regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9_\-+.]*$`) // one tag of a guest
	// values of scsihw
	controller = regexp.MustCompile(`^(lsi|lsi53c810|virtio-scsi-pci|virtio-scsi-single|megasas|pvscsi)$`)
)

// checkValue returns a refusal for a value that does not match the schema. It covers only the options
// that a migration sets.
func (c *call) checkValue(name, value string) error {
	switch {
	case name == "name" && !dnsName.MatchString(value):
		return refuseParameter(name, "invalid format - value does not look like a valid DNS name")
	case name == "scsihw" && !controller.MatchString(value):
		return refuseParameter(name, "value '%s' does not have a value in the enumeration", value)
	case name == "description" && len(value) > 8192:
		return refuseParameter(name, "value may only be 8192 characters long")
	case name == "tags":
		for _, t := range strings.Split(value, ";") {
			if !tag.MatchString(t) {
				return refuseParameter(name, "invalid format - invalid characters in tag")
			}
		}
	case strings.HasPrefix(name, "net"):
		return c.checkCard(value)
	}
	return nil
}

// optionNames returns the parameters that are options of a guest, in no order.
func (c *call) optionNames() (names []string) {
	for name := range c.form {
		if name != "vmid" && name != "digest" && name != "delete" && name != "force" && name != "background_delay" {
			names = append(names, name)
		}
	}
	return names
}

// createGuest reserves the VMID before it responds and creates the volumes in a task. Until the task
// ends, the guest has no option but a lock.
func createGuest(c *call) (any, error) {
	vmid, err := strconv.Atoi(c.form.Get("vmid"))
	if err != nil || vmid < 100 || vmid > 999999999 { // limits of Proxmox
		return nil, refuseParameter("vmid", "invalid format - value does not look like a valid VM ID")
	}
	if err := c.token.requireAll(fmt.Sprintf("/vms/%d", vmid), "VM.Allocate"); err != nil {
		return nil, err
	}
	if err := c.checkKeys(vmid, c.optionNames()); err != nil {
		return nil, err
	}
	if err := c.checkDrives(c.form); err != nil {
		return nil, err
	}
	c.mu.Lock()
	if c.guests[vmid] != nil {
		c.mu.Unlock()
		return nil, serverError("unable to create VM %d - VM %d already exists on node '%s'", vmid, vmid, c.config.Node)
	}
	g := newGuest(vmid, map[string]string{"lock": "create"})
	g.busy.Lock() // unlocked by the task
	c.guests[vmid] = g
	c.mu.Unlock()
	return c.startTask("qmcreate", strconv.Itoa(vmid), func(ctx context.Context, t *task) error {
		defer g.busy.Unlock()
		return c.finishCreate(ctx, t, g)
	}), nil
}

// finishCreate sets the options and removes the lock. If that fails, it removes the guest, so that the
// VMID is free again.
func (c *call) finishCreate(ctx context.Context, t *task, g *guest) error {
	err := c.applyOptions(ctx, t, g)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(g.config, "lock")
	if err != nil {
		delete(c.guests, g.vmid)
		return fmt.Errorf("unable to create VM %d - %w", g.vmid, err)
	}
	return nil
}

// findGuest returns the guest of the request's path. It returns a refusal if the caller lacks the
// privilege, and an error of status 500 if the guest does not exist.
func (c *call) findGuest(privilege string) (*guest, error) {
	vmid, err := strconv.Atoi(c.args[0])
	if err != nil {
		return nil, refuseParameter("vmid", "type check ('integer') failed - got '%s'", c.args[0])
	}
	if err := c.token.requireAll(fmt.Sprintf("/vms/%d", vmid), privilege); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.guests[vmid]
	if g == nil {
		return nil, serverError("Configuration file 'nodes/%s/qemu-server/%d.conf' does not exist", c.config.Node, vmid)
	}
	return g, nil
}

// showGuest returns the guest's configuration.
func showGuest(c *call) (any, error) {
	g, err := c.findGuest("VM.Audit")
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return g.apiConfig(), nil
}

// listResources lists the guests that the caller may audit. A guest that is being created has no name
// and no tags.
func listResources(c *call) (any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := []map[string]any{}
	for _, vmid := range c.sortedVMIDs() {
		g := c.guests[vmid]
		if !c.token.hasPrivilege(fmt.Sprintf("/vms/%d", vmid), "VM.Audit") {
			continue
		}
		row := map[string]any{
			"id": fmt.Sprintf("qemu/%d", vmid), "type": "qemu", "vmid": vmid, "node": c.config.Node, "template": 0, "status": g.status(),
		}
		for _, key := range []string{"name", "tags", "lock"} {
			if v := g.config[key]; v != "" {
				row[key] = v
			}
		}
		list = append(list, row)
	}
	return list, nil
}

// status returns "running" or "stopped". Server.mu must be held.
func (g *guest) status() string {
	if g.qemu != nil {
		return "running"
	}
	return "stopped"
}

// guestStatus returns the power state, with "qmpstatus" equal to "status".
func guestStatus(c *call) (any, error) {
	g, err := c.findGuest("VM.Audit")
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return map[string]any{"vmid": g.vmid, "status": g.status(), "qmpstatus": g.status(), "name": g.config["name"]}, nil
}

// destroyGuest removes a guest and the volumes of its options in a task. It refuses running and
// protected guests.
func destroyGuest(c *call) (any, error) {
	g, err := c.findGuest("VM.Allocate")
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	running, protected := g.qemu != nil, g.config["protection"] == "1"
	c.mu.Unlock()
	if running {
		return nil, serverError("VM %d is running - destroy failed", g.vmid)
	}
	if protected {
		return nil, newRefusal(http.StatusInternalServerError, "can't remove VM %d - protection mode enabled", g.vmid)
	}
	return c.startTask("qmdestroy", c.args[0], func(context.Context, *task) error {
		if !g.busy.TryLock() {
			return errLocked(g.vmid)
		}
		defer g.busy.Unlock()
		c.mu.Lock()
		defer c.mu.Unlock()
		for key, value := range g.config {
			c.removeVolumeOf(key, value)
		}
		delete(c.guests, g.vmid)
		return nil
	}), nil
}
