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

// startTries is how often a start is asked for whose answer was lost, or that found the guest's file locked.
const startTries = 3

// A starter powers on guests that were delivered, and explains why a guest does not start.
type starter struct {
	api    *client
	node   string // of the Place
	guests guestClient
	opts   Options
}

// start is Start of Place.
func (s starter) start(ctx context.Context, def targets.Definition) (targets.Started, error) {
	g, err := s.finished(ctx, def)
	if err != nil {
		return targets.Started{}, err
	}
	config, err := s.guests.config(ctx, g.node, g.vmid)
	if err != nil {
		return targets.Started{}, err
	}
	if err := s.powerOn(ctx, g); err != nil {
		return targets.Started{}, fmt.Errorf("start guest %d on %s: %w", g.vmid, g.node, err)
	}
	return targets.Started{Console: s.console(g, config)}, nil
}

// finished is the guest that was made of def, all of it.
func (s starter) finished(ctx context.Context, def targets.Definition) (*found, error) {
	g, err := s.guests.find(ctx, def.VM)
	switch {
	case err != nil:
		return nil, err
	case g == nil:
		return nil, s.missing(ctx, def.VM)
	case g.plan != "":
		return nil, fault.New(fault.Conflict, "guest %d on %s is unfinished: VM %s is still to be delivered into it", g.vmid, g.node, def.VM.Name).
			WithHint("do not start it as it is: run the same command again, which finishes it")
	case len(def.Images) > 0:
		return g, g.madeOf(def.VM, contents(def.Images))
	}
	return g, nil
}

// missing is why there is no guest of vm.
func (s starter) missing(ctx context.Context, vm *inventory.VM) error {
	list, err := s.guests.list(ctx)
	if err != nil {
		return err
	}
	name := guestName(s.opts.Maps.Name(vm.Name))
	for _, r := range list {
		if r.Name == name {
			return fault.New(fault.Conflict, "guest %d on %s is called %s, and nothing says that it was made of VM %s", r.VMID, r.Node, name, vm.Name).
				WithHint("if it was, and somebody has changed its description or its tags: qm start %d, on %s", r.VMID, r.Node)
		}
	}
	return fault.New(fault.NotFound, "Proxmox %s has no guest that was made of VM %s", s.api.host, vm.Name).
		WithHint("look whether somebody has removed it, or taken VM.Audit on it from token %s: qm list, on %s", s.api.token.name(), s.node)
}

// powerOn has the guest run. What became of a start that failed or was never answered is seen by the guest.
func (s starter) powerOn(ctx context.Context, g *found) error {
	for try := 1; ; try++ {
		if on, err := s.runs(ctx, g); err != nil || on {
			return err
		}
		task, err := s.startOnce(ctx, g)
		if err == nil {
			return s.stays(ctx, g, task)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !passes(err) || try == startTries {
			if on, lookErr := s.runs(ctx, g); lookErr == nil && on { // somebody else was faster
				return nil
			}
			return s.explain(ctx, g, task, err)
		}
		if err := s.api.settle(ctx, g.node, url.Values{"vmid": {fmt.Sprint(g.vmid)}}); err != nil {
			return err
		}
	}
}

func (s starter) startOnce(ctx context.Context, g *found) (task upid, err error) {
	if err := s.api.change(ctx, http.MethodPost, qemu(g.node, g.vmid)+"/status/start", []Param{}, &task); err != nil {
		return "", err
	}
	_, err = s.api.follow(ctx, task)
	return task, err
}

// runs reports whether the guest does. QEMU may be there and the guest stand still, which nobody but a
// person ends.
func (s starter) runs(ctx context.Context, g *found) (bool, error) {
	var is struct {
		Status string `json:"status"`    // running or stopped
		QEMU   string `json:"qmpstatus"` // QEMU's own word: running, paused, io-error …
	}
	if err := s.api.get(ctx, qemu(g.node, g.vmid)+"/status/current", nil, &is); err != nil {
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
func (s starter) stays(ctx context.Context, g *found, task upid) error {
	left := patience
	if task.kind() != "hastart" {
		left = 0
	}
	for looks := 0; ; {
		on, err := s.runs(ctx, g)
		switch {
		case err != nil:
			return err
		case on:
			looks++
		case left <= 0 || looks > 0:
			return s.died(ctx, g, task)
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

// died is the error of a guest that is off again, with what its task said.
func (s starter) died(ctx context.Context, g *found, task upid) error {
	said := ""
	if lines := s.said(ctx, task); len(lines) > 0 {
		said = "; its task said: " + strings.Join(lines, " / ")
	}
	return fault.New(fault.Conflict, "the node says that it was started, and it is off%s", said).
		WithHint("see what it ended with, on %s: journalctl -t QEMU -n 20 (ha-manager status, if it is managed); then: qm start %d", g.node, g.vmid)
}

// said is what a task logged, without how it ended. It is for messages: nothing, if nobody tells.
func (s starter) said(ctx context.Context, task upid) []string {
	path, err := task.path()
	if err != nil {
		return nil
	}
	lines, _ := s.api.log(ctx, path)
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
func (s starter) explain(ctx context.Context, g *found, task upid, err error) error {
	if fault.Is(err, fault.Denied) && !errors.Is(err, fault.ErrLogin) {
		return fault.New(fault.Denied, "%w", err).
			WithHint("start it by hand, qm start %d, or let the token do so: %s", g.vmid, s.api.token.grant("DecampStart", "/vms", []string{"VM.PowerMgmt"}))
	}
	lines := append([]string{err.Error()}, s.said(ctx, task)...)
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
func (s starter) console(g *found, config map[string]string) string {
	query := url.Values{"console": {"kvm"}, "novnc": {"1"}, "vmid": {fmt.Sprint(g.vmid)}, "node": {g.node}}
	screen := "https://" + s.api.host + "/?" + query.Encode()
	if config["serial0"] != "socket" {
		return screen
	}
	terminal := fmt.Sprintf("qm terminal %d", g.vmid)
	if !s.opts.direct() || g.node != s.node {
		return terminal + " on " + g.node + ", or " + screen
	}
	to := net.JoinHostPort(s.opts.ssh.Host, s.opts.ssh.Port)
	if s.opts.ssh.Port == "" {
		return fmt.Sprintf("ssh -t %s@%s %s, or %s", s.opts.ssh.User, s.opts.ssh.Host, terminal, screen)
	}
	return fmt.Sprintf("ssh -t ssh://%s@%s %s, or %s", s.opts.ssh.User, to, terminal, screen)
}
