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
	// unmountWait is the default of Options.UnmountWait. A host closes the files of a failed copy within
	// seconds. Without a connection it needs 140 s (Misc.APDTimeout); then the next run unmounts.
	unmountWait = time.Minute

	unmountEvery = 2 * time.Second // pause between two attempts
)

// hostMount is our datastore on one host.
type hostMount struct {
	host inventory.MoRef // host that mounted it
	nas  esx.NAS         // export and the datastore's name on the host
	ours bool            // this run or an earlier one mounted it, so that it must be unmounted
}

// mountRecord returns the record of a mount, by which the next run removes it if this run is killed.
func (t *Transport) mountRecord(host inventory.MoRef, n esx.NAS) cleanup.Record {
	return cleanup.Record{
		Kind: cleanup.NFSDatastore, Server: t.opts.Server, Host: host,
		Details:       map[string]string{"server": n.Server, "path": n.Path, "name": n.Name},
		Text:          fmt.Sprintf("datastore %s (%s:%s)", n.Name, n.Server, n.Path),
		ManualCommand: "esxcli storage nfs remove -v " + n.Name,
		Since:         time.Now(),
	}
}

// Recorded returns the datastore in a record of mountRecord.
func Recorded(r cleanup.Record) esx.NAS {
	return esx.NAS{Server: r.Details["server"], Path: r.Details["path"], Name: r.Details["name"]}
}

// mountExport makes a host mount the datastore. It records the mount before it sends the request. A
// mount under our name is from a run that was killed: it is removed and mounted again, because its root
// may be a deleted folder.
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
		// The host may have mounted it despite the error, or its answer was lost.
		return m, errors.Join(err, t.unmountHost(m))
	}
	if name != n.Name {
		t.opts.Log.Info("export already mounted by the host, it stays mounted", "host", host, "datastore", name)
		m.nas.Name, m.ours = name, false
		return m, t.forgetMount(hostMount{host: host, nas: n})
	}
	return m, nil
}

// isIdle reports whether no disk is landing, so that the datastore can be unmounted.
func (t *Transport) isIdle() bool {
	t.landing.Lock()
	defer t.landing.Unlock()
	return len(t.disks) == 0
}

// unmountHost unmounts the datastore from a host. It waits for files that the host has open. A mount
// that cannot be removed stays recorded.
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

// waitFor waits for d, and returns false if ctx ends before.
func (t *Transport) waitFor(ctx context.Context, d time.Duration) bool {
	select {
	case <-t.opts.After(d):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// recordMount records a mount in Leftovers, if that is set.
func (t *Transport) recordMount(m hostMount) error {
	if t.opts.Leftovers == nil {
		return nil
	}
	_, err := t.opts.Leftovers.Add(t.mountRecord(m.host, m.nas))
	return err
}

// forgetMount removes a mount from Leftovers, if that is set.
func (t *Transport) forgetMount(m hostMount) error {
	if t.opts.Leftovers == nil {
		return nil
	}
	return t.opts.Leftovers.Remove(t.mountRecord(m.host, m.nas).ID())
}

// reportLeftover reports a datastore that could not be unmounted. The landed disks are complete, so
// this is no error of the transfer if the mount is recorded and Stays is set.
func (t *Transport) reportLeftover(m hostMount, why error) error {
	r := t.mountRecord(m.host, m.nas)
	err := cleanup.LeftoverError(r, why)
	if t.opts.Leftovers != nil {
		t.opts.Leftovers.Release(r.ID())
	}
	if t.opts.Leftovers == nil || t.opts.Stays == nil {
		return err
	}
	t.opts.Stays(err)
	return nil
}

// exportFor returns the export that a host with address addr must mount. Path and name are derived from
// our address and Dir: the datastore is found again after a crash, and two runs of decamp do not share
// one.
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

// exportPath returns the path that hosts mount. It is different for each Dir: a host that still has the
// datastore of another run mounted would otherwise report that it has ours.
func exportPath(dir string) string { return "/" + hashedName(dir) }

// hashedName returns a name of fixed length derived from s. A datastore's name has at most 42
// characters.
func hashedName(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "decamp-" + hex.EncodeToString(sum[:4])
}

// localAddrTo returns the address of this machine on the route to addr. It sends nothing: connecting a
// UDP socket only selects the route.
func localAddrTo(addr netip.Addr) (netip.Addr, error) {
	c, err := net.Dial("udp", netip.AddrPortFrom(addr, 2049).String())
	if err != nil {
		return netip.Addr{}, fault.New(fault.Unreachable, "find the route to host %s: %w", addr, err).
			WithHint("set an address of this machine that the host can reach: --advertise IP")
	}
	defer c.Close() // cannot lose data: nothing was sent
	at, err := netip.ParseAddrPort(c.LocalAddr().String())
	return at.Addr().Unmap(), err
}

// withDefaults returns o with defaults in place of zero fields.
func (o Options) withDefaults() Options {
	o.Memory = cmp.Or(o.Memory, defaultMemory)
	o.UnmountWait, o.Stall = cmp.Or(o.UnmountWait, unmountWait), cmp.Or(o.Stall, stallAfter)
	o.Hold = cmp.Or(o.Hold, defaultHold)
	if o.After == nil {
		o.After = time.After
	}
	return o
}
