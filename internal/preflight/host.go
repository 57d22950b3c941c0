package preflight

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/transport"
)

// Bounds of requests to hosts.
const (
	maxProbes    = 4           // hosts or disks that are probed in parallel
	probeTimeout = time.Minute // time limit of one probe
)

// checkHosts checks that hosts answer and have SSH on, if the plan requires that: direct reads require
// an answer, and needsSSH selects the hosts for SSH. If the plan permits decamp to start SSH, SSH is
// not checked, except on hosts with a free licence.
func (c *check) checkHosts(ctx context.Context) {
	if c.file.Source.Direct {
		hosts, of := c.hostsOf(func(planfile.Move) bool { return true })
		c.probeHosts(ctx, hosts, of, "host-unreachable", func(ctx context.Context, h inventory.Host) error {
			return c.rig.Reach(ctx, h)
		})
	}
	hosts, of := c.hostsOf(c.needsSSH)
	remedy := "set source: {ssh: {enable: true}}, with which decamp starts and stops SSH, or start the service TSM-SSH"
	switch {
	case c.freeLicence: // the free licence starts nothing by its API
		remedy = "start SSH on the host: at its console (F2, Troubleshooting Options, Enable SSH), or in its shell: vim-cmd hostsvc/start_ssh"
	case c.file.Source.SSH.Enable:
		return
	}
	c.probeHosts(ctx, hosts, of, "ssh-off", func(ctx context.Context, h inventory.Host) error {
		runs, err := c.rig.Source.SSHRuns(ctx, h.Ref)
		if runs || err != nil { // a host that does not say may have it on
			return nil
		}
		return fault.New(fault.Denied, "SSH is off on host %s, and the plan requires it", h.Name).WithHint("%s", remedy)
	})
}

// probeHosts calls ask for each host in parallel, with a time limit, and adds findings in the order of
// hosts. of has one migration of each host, whose position the finding gets.
func (c *check) probeHosts(ctx context.Context, hosts []inventory.Host, of map[inventory.MoRef]int, code string, ask func(context.Context, inventory.Host) error) {
	answers := make([]error, len(hosts))
	var g errgroup.Group
	g.SetLimit(maxProbes)
	for n, h := range hosts {
		g.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, probeTimeout)
			defer cancel()
			answers[n] = ask(ctx, h)
			return nil
		})
	}
	_ = g.Wait() // nothing in it fails
	for n, err := range answers {
		if err != nil {
			i := of[hosts[n].Ref]
			c.addFinding(i, planfile.ErrorFinding(code, c.moves[i].Pos, "", err))
		}
	}
}

// openTransport returns the transport for o. Options with the same transportKey share one, which
// c.close closes.
func (c *check) openTransport(ctx context.Context, o planfile.Options) (transport.Transport, error) {
	key := transportKey(o)
	if t := c.transports[key]; t != nil {
		return t, nil
	}
	t, err := c.rig.Transport(ctx, o)
	if err != nil {
		return nil, err
	}
	c.transports[key] = t
	return t, nil
}

// transportKey returns the options that determine a transport, as one string.
func transportKey(o planfile.Options) string {
	return fmt.Sprint(o.Transport, o.Mode, o.Connections, o.NFC, o.Landing)
}

// probeTransports opens one disk on each host with each transport that the plan uses there. That tests
// network, permissions and locks, and takes seconds for any number of VMs. Running VMs are not probed.
// The only error is that of ctx.
func (c *check) probeTransports(ctx context.Context) error {
	type pair struct {
		host inventory.MoRef
		key  string
	}
	tried := map[pair]bool{}
	var g errgroup.Group
	var mu sync.Mutex // guards failed
	failed := map[int]error{}
	g.SetLimit(maxProbes)
	for i, m := range c.moves {
		p := pair{m.VM.Host, transportKey(m.Options)}
		t := c.transports[p.key]
		if tried[p] || c.blocked[i] || t == nil || m.VM.Power != inventory.PoweredOff || len(m.VM.Disks) == 0 {
			continue
		}
		tried[p] = true
		g.Go(func() error {
			if err := probeDisk(ctx, t, m.VM); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed[i] = err
			}
			return nil
		})
	}
	_ = g.Wait() // nothing in it fails
	c.addProbeErrors(failed)
	return ctx.Err()
}

// addProbeErrors adds the errors of probes, by the index of the migration, in the order of the plan.
func (c *check) addProbeErrors(failed map[int]error) {
	var order []int
	for i := range failed {
		order = append(order, i)
	}
	slices.Sort(order)
	for _, i := range order {
		m := c.moves[i]
		c.addFinding(i, planfile.ErrorFinding("transport", m.Pos, m.VM.Name, failed[i]))
	}
}

// probeDisk opens the first disk of a VM. It fails if the transport cannot read it.
func probeDisk(ctx context.Context, t transport.Transport, vm *inventory.VM) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	d := &vm.Disks[0]
	offer, err := t.Probe(ctx, transport.Disk{VM: vm, Disk: d})
	switch {
	case err != nil:
		return fmt.Errorf("open disk %d over %s: %w", d.Key, t.Name(), err)
	case !offer.Usable:
		return fault.New(fault.Unsupported, "%s cannot transfer disk %d: %s", t.Name(), d.Key, offer.Reason).
			WithHint("select another transport, or change the disk")
	}
	return nil
}
