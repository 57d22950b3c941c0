package proxmox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
)

// startTries is the maximum number of starts whose answer is lost, or for which the guest is locked.
const startTries = 3

// starter powers on delivered guests, and determines why a guest does not start.
type starter struct {
	api    *client     // client of the node
	node   string      // node of the Platform; the guest may be on another
	guests guestClient // finds the guest
	opts   Options     // options of the platform
}

// startGuest implements Platform.Start.
func (s starter) startGuest(ctx context.Context, def targets.Definition) (targets.Started, error) {
	g, err := s.finishedGuest(ctx, def)
	if err != nil {
		return targets.Started{}, err
	}
	config, err := s.guests.readConfig(ctx, g.node, g.vmid)
	if err != nil {
		return targets.Started{}, err
	}
	if err := s.powerOn(ctx, g); err != nil {
		return targets.Started{}, fmt.Errorf("start guest %d on %s: %w", g.vmid, g.node, err)
	}
	return targets.Started{Console: s.consoleCommand(g, config)}, nil
}

// finishedGuest returns the complete guest for def. An unfinished guest, or one with other images, is
// fault.Conflict.
func (s starter) finishedGuest(ctx context.Context, def targets.Definition) (*found, error) {
	g, err := s.guests.findGuest(ctx, def.VM)
	switch {
	case err != nil:
		return nil, err
	case g == nil:
		return nil, s.missingError(ctx, def.VM)
	case g.plan != "":
		return nil, fault.New(fault.Conflict, "guest %d on %s is unfinished: the delivery of VM %s has not ended", g.vmid, g.node, def.VM.Name).
			WithHint("do not start it manually: run the same command again, which completes it")
	case len(def.Images) > 0:
		return g, g.madeOf(def.VM, imagesHash(def.Images))
	}
	return g, nil
}

// missingError returns the error if there is no guest for vm: fault.Conflict if a foreign guest has its
// name, else
// fault.NotFound.
func (s starter) missingError(ctx context.Context, vm *inventory.VM) error {
	list, err := s.guests.listGuests(ctx)
	if err != nil {
		return err
	}
	name := guestName(s.opts.Maps.Name(vm.Name))
	for _, r := range list {
		if r.Name == name {
			return fault.New(fault.Conflict, "guest %d on %s has the name %s, but no mark of VM %s", r.VMID, r.Node, name, vm.Name).
				WithHint("if it is the VM, and its description or its tags were changed: qm start %d, on %s", r.VMID, r.Node)
		}
	}
	return fault.New(fault.NotFound, "Proxmox %s has no guest of VM %s", s.api.host, vm.Name).
		WithHint("check whether it was removed, or whether token %s lacks VM.Audit on it: qm list, on %s", s.api.token.name(), s.node)
}

// powerOn starts the guest unless it runs. The guest's state decides whether a failed or unanswered
// start succeeded.
func (s starter) powerOn(ctx context.Context, g *found) error {
	for try := 1; ; try++ {
		if on, err := s.isRunning(ctx, g); err != nil || on {
			return err
		}
		task, err := s.startOnce(ctx, g)
		if err == nil {
			return s.staysOn(ctx, g, task)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !isTemporary(err) || try == startTries {
			if on, lookErr := s.isRunning(ctx, g); lookErr == nil && on { // another client has started it
				return nil
			}
			return s.startError(ctx, g, task, err)
		}
		if err := s.api.awaitTasks(ctx, g.node, url.Values{"vmid": {fmt.Sprint(g.vmid)}}); err != nil {
			return err
		}
	}
}

// startOnce requests one start and waits for its task.
func (s starter) startOnce(ctx context.Context, g *found) (task upid, err error) {
	if err := s.api.sendParams(ctx, http.MethodPost, guestPath(g.node, g.vmid)+"/status/start", []Param{}, &task); err != nil {
		return "", err
	}
	_, err = s.api.awaitTask(ctx, task)
	return task, err
}

// isRunning reports whether the guest runs. If QEMU runs but the guest is stopped, the error is
// fault.Conflict, because a
// user must resume it.
func (s starter) isRunning(ctx context.Context, g *found) (bool, error) {
	var is struct {
		Status string `json:"status"`    // running or stopped
		QEMU   string `json:"qmpstatus"` // QEMU's own word: running, paused, io-error …
	}
	if err := s.api.get(ctx, guestPath(g.node, g.vmid)+"/status/current", nil, &is); err != nil {
		return false, err
	}
	if is.Status != "running" {
		return false, nil
	}
	if word := cmp.Or(is.QEMU, "running"); word != "running" {
		return false, fault.New(fault.Conflict, "it is on, but its CPUs are stopped: %s", fault.Line(word)).
			WithHint("fix the cause, such as a full storage (pvesm status), and then: qm resume %d", g.vmid)
	}
	return true, nil
}

// staysOn returns an error unless the guest runs in two consecutive queries. A task of the HA manager
// ends before the start,
// so staysOn then waits up to retryPeriod.
func (s starter) staysOn(ctx context.Context, g *found, task upid) error {
	left := retryPeriod
	if task.taskType() != "hastart" {
		left = 0
	}
	for looks := 0; ; {
		on, err := s.isRunning(ctx, g)
		switch {
		case err != nil:
			return err
		case on:
			looks++
		case left <= 0 || looks > 0:
			return s.exitError(ctx, g, task)
		}
		if looks == 2 {
			return nil
		}
		if err := s.api.wait(ctx, poll); err != nil {
			return err
		}
		left -= poll
	}
}

// exitError returns the error for a guest that stopped after its start, with the log of the task.
func (s starter) exitError(ctx context.Context, g *found, task upid) error {
	said := ""
	if lines := s.taskLines(ctx, task); len(lines) > 0 {
		said = "; log of the task: " + strings.Join(lines, " / ")
	}
	return fault.New(fault.Conflict, "its start succeeded, but it is off%s", said).
		WithHint("find the cause, on %s: journalctl -t QEMU -n 20 (ha-manager status, if it is managed); then: qm start %d", g.node, g.vmid)
}

// taskLines returns the log of a task for messages, without its result. It returns nil after an error.
func (s starter) taskLines(ctx context.Context, task upid) []string {
	path, err := task.apiPath()
	if err != nil {
		return nil
	}
	lines, _ := s.api.readLog(ctx, path)
	for i := range lines {
		lines[i] = fault.Line(lines[i])
	}
	return slices.DeleteFunc(lines, func(line string) bool { return line == "" || strings.HasPrefix(line, "TASK ") })
}

// startCauses contains causes of failed starts by a text in the task's log, in lower case. VMID and
// NODE in a remedy are
// replaced by the guest's.
var startCauses = []struct {
	words  string
	kind   fault.Kind
	remedy string
}{
	{"kvm virtualisation configured, but not available", fault.Unsupported,
		"enable VT-x or AMD-V in the firmware of NODE, or nested virtualisation if NODE is a VM; emulation is slow: qm set VMID --kvm 0"},
	{"vcpus allowed per vm on this node", fault.Unsupported, "reduce its CPUs to those of NODE: qm set VMID --sockets 1 --cores N"},
	{"host doesn't support requested feature", fault.Unsupported,
		"the processor of NODE is older than the guest's CPU model: qm set VMID --cpu x86-64-v2, or kvm64; for other VMs, cpu= in the address"},
	{"cannot allocate memory", fault.Full, "shut down or move other guests (free -m, on NODE), or reduce its memory: qm set VMID --memory MIB"},
	{"cannot set up guest memory", fault.Full, "shut down or move other guests (free -m, on NODE), or reduce its memory: qm set VMID --memory MIB"},
	{"no space left", fault.Full, "free space on NODE: pvesm status; df -h"},
	{"bridge '", fault.NotFound, "create the bridge on NODE, or change the card's bridge: pvesh get /nodes/NODE/network --type any_bridge; qm set VMID --netN …"},
	{"is not online", fault.Transient, "find out on NODE why the storage is missing: pvesm status"},
	{"is not available on node", fault.Conflict, "make the storage available on NODE: pvesm set STORAGE --nodes …; or move the guest: qm migrate VMID OTHER"},
	{"' is disabled", fault.Conflict, "pvesm set STORAGE --disable 0"},
	{"unable to activate storage", fault.Transient, "find out on NODE why the storage is missing: pvesm status"},
	{"can't activate", fault.Transient, "check the volume's state, on NODE: lvs -o lv_name,lv_active; vgs"},
	{"vm is locked", fault.Conflict, "wait for the operation that has locked it (in qm config VMID); qm unlock VMID only if it has crashed"},
	{"no quorum", fault.Transient, "find the nodes of the cluster that are down: pvecm status"},
	{"if it's a template", fault.Conflict, "it was converted to a template: qm clone VMID, and start the clone"},
}

// startError returns the error of a failed start. It adds the line of the log that contains the cause,
// which is rarely the
// last one, and its remedy. A missing privilege is fault.Denied, with the command that grants it.
func (s starter) startError(ctx context.Context, g *found, task upid, err error) error {
	if fault.Is(err, fault.Denied) && !errors.Is(err, fault.ErrLogin) {
		return fault.New(fault.Denied, "%w", err).
			WithHint("start it manually with qm start %d, or give the token the privilege: %s", g.vmid, s.api.token.grantCommand("DecampStart", "/vms", []string{"VM.PowerMgmt"}))
	}
	lines := append([]string{err.Error()}, s.taskLines(ctx, task)...)
	for _, o := range startCauses {
		at := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(strings.ToLower(line), o.words) })
		if at < 0 {
			continue
		}
		e := fault.New(o.kind, "%w", err)
		if !strings.Contains(err.Error(), lines[at]) {
			e = fault.New(o.kind, "%w; %s", err, lines[at])
		}
		return e.WithHint("%s", strings.NewReplacer("VMID", fmt.Sprint(g.vmid), "NODE", g.node).Replace(o.remedy))
	}
	return err
}

// consoleCommand returns the command for the guest's serial port if it has one, and the URL of its
// display.
func (s starter) consoleCommand(g *found, config map[string]string) string {
	query := url.Values{"console": {"kvm"}, "novnc": {"1"}, "vmid": {fmt.Sprint(g.vmid)}, "node": {g.node}}
	screen := "https://" + s.api.host + "/?" + query.Encode()
	if config["serial0"] != "socket" {
		return screen
	}
	terminal := fmt.Sprintf("qm terminal %d", g.vmid)
	if !s.opts.isDirect() || g.node != s.node {
		return terminal + " on " + g.node + ", or " + screen
	}
	to := net.JoinHostPort(s.opts.ssh.Host, s.opts.ssh.Port)
	if s.opts.ssh.Port == "" {
		return fmt.Sprintf("ssh -t %s@%s %s, or %s", s.opts.ssh.User, s.opts.ssh.Host, terminal, screen)
	}
	return fmt.Sprintf("ssh -t ssh://%s@%s %s, or %s", s.opts.ssh.User, to, terminal, screen)
}
