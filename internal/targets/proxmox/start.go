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
	"github.com/decamp/decamp/internal/targets/staged"
)

// startTries is how often a start is asked for whose answer was lost, or that found the guest's file locked.
const startTries = 3

var _ staged.Starter = (*Place)(nil)

// Start powers on the guest that was made of def's VM, wherever in the cluster it is by now. One whose
// disks are of other images than def's is fault.Conflict, and so is one that is unfinished.
func (p *Place) Start(ctx context.Context, def targets.Definition) (targets.Started, error) {
	g, err := p.finished(ctx, def)
	if err != nil {
		return targets.Started{}, err
	}
	config, err := p.config(ctx, g.node, g.vmid)
	if err != nil {
		return targets.Started{}, err
	}
	if err := p.powerOn(ctx, g); err != nil {
		return targets.Started{}, fmt.Errorf("start guest %d on %s: %w", g.vmid, g.node, err)
	}
	return targets.Started{Console: p.console(g, config)}, nil
}

// finished is the guest that was made of def, all of it.
func (p *Place) finished(ctx context.Context, def targets.Definition) (*found, error) {
	g, err := p.find(ctx, def.VM)
	switch {
	case err != nil:
		return nil, err
	case g == nil:
		return nil, p.missing(ctx, def.VM)
	case g.plan != "":
		return nil, fault.New(fault.Conflict, "guest %d on %s is unfinished: VM %s is still to be delivered into it", g.vmid, g.node, def.VM.Name).
			WithHint("do not start it as it is: run the same command again, which finishes it")
	case len(def.Images) > 0:
		return g, g.madeOf(def.VM, contents(def.Images))
	}
	return g, nil
}

// missing is why there is no guest of vm.
func (p *Place) missing(ctx context.Context, vm *inventory.VM) error {
	list, err := p.guests(ctx)
	if err != nil {
		return err
	}
	name := guestName(p.opts.Maps.Name(vm.Name))
	for _, r := range list {
		if r.Name == name {
			return fault.New(fault.Conflict, "guest %d on %s is called %s, and nothing says that it was made of VM %s", r.VMID, r.Node, name, vm.Name).
				WithHint("if it was, and somebody has changed its description or its tags: qm start %d, on %s", r.VMID, r.Node)
		}
	}
	return fault.New(fault.NotFound, "Proxmox %s has no guest that was made of VM %s", p.api.host, vm.Name).
		WithHint("look whether somebody has removed it, or taken VM.Audit on it from token %s: qm list, on %s", p.api.token.name(), p.node)
}

// powerOn has the guest run. What became of a start that failed or was never answered is seen by the guest.
func (p *Place) powerOn(ctx context.Context, g *found) error {
	for try := 1; ; try++ {
		if on, err := p.runs(ctx, g); err != nil || on {
			return err
		}
		task, err := p.startOnce(ctx, g)
		if err == nil {
			return p.stays(ctx, g, task)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !passes(err) || try == startTries {
			if on, lookErr := p.runs(ctx, g); lookErr == nil && on { // somebody else was faster
				return nil
			}
			return p.explain(ctx, g, task, err)
		}
		if err := p.api.settle(ctx, g.node, url.Values{"vmid": {fmt.Sprint(g.vmid)}}); err != nil {
			return err
		}
	}
}

func (p *Place) startOnce(ctx context.Context, g *found) (task upid, err error) {
	if err := p.api.change(ctx, http.MethodPost, qemu(g.node, g.vmid)+"/status/start", []Param{}, &task); err != nil {
		return "", err
	}
	_, err = p.api.follow(ctx, task)
	return task, err
}

// runs reports whether the guest does. QEMU may be there and the guest stand still, which nobody but a
// person ends.
func (p *Place) runs(ctx context.Context, g *found) (bool, error) {
	var is struct {
		Status string `json:"status"`    // running or stopped
		QEMU   string `json:"qmpstatus"` // QEMU's own word: running, paused, io-error …
	}
	if err := p.api.get(ctx, qemu(g.node, g.vmid)+"/status/current", nil, &is); err != nil {
		return false, err
	}
	if is.Status != "running" {
		return false, nil
	}
	if word := cmp.Or(is.QEMU, "running"); word != "running" {
		return false, fault.New(fault.Conflict, "it is on, and stands still: %s", fault.Line(word)).
			WithHint("see what it waits for, such as room on its storage (pvesm status), and: qm resume %d", g.vmid)
	}
	return true, nil
}

// stays is an error unless the guest runs after its task, and still does a moment later. The cluster's HA manager
// is given patience: its task is over before it begins.
func (p *Place) stays(ctx context.Context, g *found, task upid) error {
	left := patience
	if task.kind() != "hastart" {
		left = 0
	}
	for looks := 0; ; {
		on, err := p.runs(ctx, g)
		switch {
		case err != nil:
			return err
		case on:
			looks++
		case left <= 0 || looks > 0:
			return p.died(ctx, g, task)
		}
		if looks == 2 {
			return nil
		}
		if err := p.api.wait(ctx, poll); err != nil {
			return err
		}
		left -= poll
	}
}

// died is the error of a guest that is off again, with what its task said.
func (p *Place) died(ctx context.Context, g *found, task upid) error {
	said := ""
	if lines := p.said(ctx, task); len(lines) > 0 {
		said = "; its task said: " + strings.Join(lines, " / ")
	}
	return fault.New(fault.Conflict, "the node says that it was started, and it is off%s", said).
		WithHint("see what it ended with, on %s: journalctl -t QEMU -n 20 (ha-manager status, if it is managed); then: qm start %d", g.node, g.vmid)
}

// said is what a task logged, without how it ended. It is for messages: nothing, if nobody tells.
func (p *Place) said(ctx context.Context, task upid) []string {
	path, err := task.path()
	if err != nil {
		return nil
	}
	lines, _ := p.api.log(ctx, path)
	for i := range lines {
		lines[i] = fault.Line(lines[i])
	}
	return slices.DeleteFunc(lines, func(line string) bool { return line == "" || strings.HasPrefix(line, "TASK ") })
}

// obstacles are what keeps guests from being started, by what a line of their task has, in lower case.
// VMID and NODE in a remedy stand for the guest's.
var obstacles = []struct {
	words  string
	kind   fault.Kind
	remedy string
}{
	{"kvm virtualisation configured, but not available", fault.Unsupported,
		"switch on VT-x or AMD-V in the firmware of NODE, or nested virtualisation where NODE is a VM itself; it is slow without: qm set VMID --kvm 0"},
	{"vcpus allowed per vm on this node", fault.Unsupported, "give it no more than NODE has: qm set VMID --sockets 1 --cores N"},
	{"host doesn't support requested feature", fault.Unsupported,
		"NODE has an older processor than guests are to see: qm set VMID --cpu x86-64-v2, or kvm64; for others, cpu= in the address"},
	{"cannot allocate memory", fault.Full, "shut down or move other guests (free -m, on NODE), or give it less: qm set VMID --memory MIB"},
	{"cannot set up guest memory", fault.Full, "shut down or move other guests (free -m, on NODE), or give it less: qm set VMID --memory MIB"},
	{"no space left", fault.Full, "make room, on NODE: pvesm status; df -h"},
	{"bridge '", fault.NotFound, "make the bridge on NODE, or have the card join another: pvesh get /nodes/NODE/network --type any_bridge; qm set VMID --netN …"},
	{"is not online", fault.Transient, "see why the storage is not there, on NODE: pvesm status"},
	{"is not available on node", fault.Conflict, "let NODE have the storage: pvesm set STORAGE --nodes …; or move the guest: qm migrate VMID OTHER"},
	{"' is disabled", fault.Conflict, "pvesm set STORAGE --disable 0"},
	{"unable to activate storage", fault.Transient, "see why the storage is not there, on NODE: pvesm status"},
	{"can't activate", fault.Transient, "see what keeps the volume, on NODE: lvs -o lv_name,lv_active; vgs"},
	{"vm is locked", fault.Conflict, "wait for what has locked it (qm config VMID says what); qm unlock VMID, only if that is dead"},
	{"no quorum", fault.Transient, "see which nodes of the cluster are down: pvecm status"},
	{"if it's a template", fault.Conflict, "somebody has made it a template: qm clone VMID, and start the clone"},
}

// explain is the error of a start that failed, with the line that says what to do where there is one: it
// is rarely the last.
func (p *Place) explain(ctx context.Context, g *found, task upid, err error) error {
	if fault.Is(err, fault.Denied) && !errors.Is(err, fault.ErrLogin) {
		return fault.New(fault.Denied, "%w", err).
			WithHint("start it by hand, qm start %d, or let the token do so: %s", g.vmid, p.grant("DecampStart", "/vms", []string{"VM.PowerMgmt"}))
	}
	lines := append([]string{err.Error()}, p.said(ctx, task)...)
	for _, o := range obstacles {
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

// console says how people see the guest: its serial port, where it has one, and its screen.
func (p *Place) console(g *found, config map[string]string) string {
	query := url.Values{"console": {"kvm"}, "novnc": {"1"}, "vmid": {fmt.Sprint(g.vmid)}, "node": {g.node}}
	screen := "https://" + p.api.host + "/?" + query.Encode()
	if config["serial0"] != "socket" {
		return screen
	}
	terminal := fmt.Sprintf("qm terminal %d", g.vmid)
	if !p.direct() || g.node != p.node {
		return terminal + " on " + g.node + ", or " + screen
	}
	to := net.JoinHostPort(p.opts.ssh.Host, p.opts.ssh.Port)
	if p.opts.ssh.Port == "" {
		return fmt.Sprintf("ssh -t %s@%s %s, or %s", p.opts.ssh.User, p.opts.ssh.Host, terminal, screen)
	}
	return fmt.Sprintf("ssh -t ssh://%s@%s %s, or %s", p.opts.ssh.User, to, terminal, screen)
}
