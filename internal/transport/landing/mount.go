package landing

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/decamp/decamp/internal/cleanup"
	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

const (
	// unmountWait is how long a host may hold our datastore at the end. It closes what a
	// failed copy left open within seconds; where it is cut off from us it takes until it
	// gives up (Misc.APDTimeout, 140 s), and that is left to the next run.
	unmountWait = time.Minute

	unmountEvery = 2 * time.Second // between attempts
)

// mount is our datastore on one host.
type hostMount struct {
	host inventory.MoRef
	nas  esx.NAS // by the name it has there
	ours bool    // to be unmounted: nobody mounted it by hand
}

// mountRecord is what the next run is told if this one is killed.
func (t *Transport) mountRecord(host inventory.MoRef, n esx.NAS) cleanup.Record {
	return cleanup.Record{
		Kind: cleanup.NFSDatastore, Server: t.opts.Server, Host: host,
		What:   map[string]string{"server": n.Server, "path": n.Path, "name": n.Name},
		Text:   fmt.Sprintf("datastore %s (%s:%s)", n.Name, n.Server, n.Path),
		ByHand: "esxcli storage nfs remove -v " + n.Name,
		Since:  time.Now(),
	}
}

// Recorded returns the datastore of a record of ours.
func Recorded(r cleanup.Record) esx.NAS {
	return esx.NAS{Server: r.What["server"], Path: r.What["path"], Name: r.What["name"]}
}

// mountExport makes a host mount the datastore; it is on record before the host is asked. What is
// mounted under our name already is from a run that was killed, and is mounted anew: its
// root may be a folder that is no more.
func (t *Transport) mountExport(ctx context.Context, host inventory.MoRef, n esx.NAS) (hostMount, error) {
	m := hostMount{host: host, nas: n, ours: true}
	if err := t.recordMount(m); err != nil {
		return m, err
	}
	name, fresh, err := t.host.MountNAS(ctx, host, n)
	if err == nil && !fresh && name == n.Name && t.isIdle() && t.host.UnmountNAS(ctx, host, n) == nil {
		name, _, err = t.host.MountNAS(ctx, host, n)
	}
	if err != nil {
		// The host may have mounted it although its answer says otherwise, or was lost.
		return m, errors.Join(err, t.unmountHost(m))
	}
	if name != n.Name {
		t.opts.Log.Info("the host has the export mounted already, it stays", "host", host, "datastore", name)
		m.nas.Name, m.ours = name, false
		return m, t.forgetMount(hostMount{host: host, nas: n})
	}
	return m, nil
}

// isIdle reports whether nothing lands at the moment: what does would lose its datastore.
func (t *Transport) isIdle() bool {
	t.landing.Lock()
	defer t.landing.Unlock()
	return len(t.disks) == 0
}

// unmountHost takes the datastore off the host, waiting for files that it holds open. What it
// cannot take stays on record.
func (t *Transport) unmountHost(m hostMount) error {
	if !m.ours {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), t.opts.UnmountWait)
	defer cancel()
	for {
		err := t.host.UnmountNAS(ctx, m.host, m.nas)
		if err == nil {
			return t.forgetMount(m)
		}
		if !fault.Is(err, fault.Conflict) || !t.waitFor(ctx, unmountEvery) {
			return t.reportLeftover(m, err)
		}
	}
}

// waitFor reports whether d went by before ctx ended.
func (t *Transport) waitFor(ctx context.Context, d time.Duration) bool {
	select {
	case <-t.opts.After(d):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

func (t *Transport) recordMount(m hostMount) error {
	if t.opts.Leftovers == nil {
		return nil
	}
	_, err := t.opts.Leftovers.Add(t.mountRecord(m.host, m.nas))
	return err
}

func (t *Transport) forgetMount(m hostMount) error {
	if t.opts.Leftovers == nil {
		return nil
	}
	return t.opts.Leftovers.Remove(t.mountRecord(m.host, m.nas).ID())
}

// reportLeftover says that a datastore could not be unmounted. A disk that landed is none the worse
// for it, so where it is on record the owner is told, and it is no error.
func (t *Transport) reportLeftover(m hostMount, why error) error {
	r := t.mountRecord(m.host, m.nas)
	err := cleanup.Stays(r, why)
	if t.opts.Leftovers != nil {
		t.opts.Leftovers.Release(r.ID())
	}
	if t.opts.Leftovers == nil || t.opts.Stays == nil {
		return err
	}
	t.opts.Stays(err)
	return nil
}

// exportFor says what a host that sends from addr is to mount. Path and name depend on who
// serves what: the datastore is found again after a crash, and two decamps keep apart.
func (t *Transport) exportFor(addr netip.Addr) (esx.NAS, error) {
	us := t.opts.Advertise
	if !us.IsValid() {
		var err error
		if us, err = localAddrTo(addr); err != nil {
			return esx.NAS{}, err
		}
	}
	return esx.NAS{Server: us.String(), Path: exportPath(t.opts.Dir), Name: hashedName(us.String() + " " + t.opts.Dir)}, nil
}

// exportPath is what hosts mount. No other decamp of this machine has the same: a host that
// still has that one's mounted would say that it has ours.
func exportPath(dir string) string { return "/" + hashedName(dir) }

// hashedName makes a name of something longer: 42 characters are the most for a datastore.
func hashedName(what string) string {
	sum := sha256.Sum256([]byte(what))
	return "decamp-" + hex.EncodeToString(sum[:4])
}

// localAddrTo returns the address of this machine on the way to addr. Nothing is sent:
// connecting a UDP socket only asks for the route.
func localAddrTo(addr netip.Addr) (netip.Addr, error) {
	c, err := net.Dial("udp", netip.AddrPortFrom(addr, 2049).String())
	if err != nil {
		return netip.Addr{}, fault.New(fault.Unreachable, "find the way to host %s: %w", addr, err).
			WithHint("say which address of this machine the host reaches: --advertise IP")
	}
	defer c.Close() // nothing was sent
	at, err := netip.ParseAddrPort(c.LocalAddr().String())
	return at.Addr().Unmap(), err
}

// withDefaults fills in what the owner left out.
func (o Options) withDefaults() Options {
	o.Memory = cmp.Or(o.Memory, defaultMemory)
	o.UnmountWait, o.Stall = cmp.Or(o.UnmountWait, unmountWait), cmp.Or(o.Stall, stallAfter)
	o.Hold = cmp.Or(o.Hold, defaultHold)
	if o.After == nil {
		o.After = time.After
	}
	return o
}
