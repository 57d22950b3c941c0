package landing_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/transport/landing"
)

// odd is a host that does something else where a field is set.
type odd struct {
	landing.Host
	mount     func(ctx context.Context, host inventory.MoRef, n esx.NAS) // before the real call
	answered  func() error                                               // in place of the real call's answer, if it is an error
	unmount   func() error                                               // in place of the real call, if it is an error
	addresses []netip.Addr
	turn      func()            // returns when it is a copy's turn
	progress  func(percent int) // told once there is some
}

func (o *odd) MountNAS(ctx context.Context, host inventory.MoRef, n esx.NAS) (string, bool, error) {
	if o.mount != nil {
		o.mount(ctx, host, n)
	}
	name, fresh, err := o.Host.MountNAS(ctx, host, n)
	if err == nil && o.answered != nil {
		err = o.answered()
	}
	return name, fresh, err
}

func (o *odd) UnmountNAS(ctx context.Context, host inventory.MoRef, n esx.NAS) error {
	if o.unmount != nil {
		if err := o.unmount(); err != nil {
			return err
		}
	}
	return o.Host.UnmountNAS(ctx, host, n)
}

func (o *odd) HostAddresses(ctx context.Context, host inventory.MoRef) ([]netip.Addr, error) {
	if o.addresses != nil {
		return o.addresses, nil
	}
	return o.Host.HostAddresses(ctx, host)
}

func (o *odd) CopyDisk(ctx context.Context, c esx.DiskCopy) error {
	if o.turn != nil {
		o.turn()
	}
	if report := c.Progress; o.progress != nil {
		c.Progress = func(percent int) {
			report(percent)
			if percent > 0 {
				o.progress(percent)
			}
		}
	}
	return o.Host.CopyDisk(ctx, c)
}

// complaints are what Options.Stays is told.
type complaints struct {
	mu  sync.Mutex
	all []error
}

func (c *complaints) add(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, err)
}

func (c *complaints) take() (all []error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all, c.all = c.all, nil
	return all
}

// landingOf is a landing for another host than the session, and what it could not put back.
func (r *rig) landingOf(host *odd, change ...func(*landing.Options)) (*landing.Transport, *complaints) {
	c := &complaints{}
	host.Host = r.session
	o := r.options()
	o.Stays = c.add
	for _, f := range change {
		f(&o)
	}
	t := landing.New(host, o)
	r.Cleanup(func() { r.check(t.Close()) })
	return t, c
}

func (r *rig) recorded() int {
	r.Helper()
	list, err := r.leftovers().List()
	r.must(err)
	return len(list)
}

var busy = fault.New(fault.Conflict, "a file is open")

func smallDisk() lab.Disk { return lab.Disk{Capacity: 4 << 20, Fill: 50, Seed: 5} }

// The answer to the mount is lost: whether it was made is not known, and it is taken off.
func TestMountWhoseAnswerIsLostIsTakenOff(t *testing.T) {
	r := newRig(t, smallDisk())
	lost := fault.New(fault.Transient, "connection reset")
	host := &odd{answered: func() error { return lost }}
	tr, told := r.landingOf(host)
	if _, err := r.land(tr, 0, image.Raw); !errors.Is(err, lost) {
		t.Errorf("%v", err)
	}
	if r.mounted() || r.recorded() > 0 {
		t.Errorf("mounted %v, %d on record", r.mounted(), r.recorded())
	}
	host.answered = nil
	f, err := r.land(tr, 0, image.Raw)
	r.must(err)
	r.same(f, 0)
	r.gone(tr, told)
}

func TestUnmountWaitsForOpenFiles(t *testing.T) {
	r := newRig(t, smallDisk())
	asked := 0
	tr, told := r.landingOf(&odd{unmount: func() error {
		if asked++; asked < 4 {
			return busy
		}
		return nil
	}})
	_, err := r.land(tr, 0, image.Raw)
	r.must(err)
	r.must(tr.Close())
	if asked != 4 || r.mounted() || r.recorded() > 0 || len(told.take()) > 0 {
		t.Errorf("after %d attempts: mounted %v, %d on record", asked, r.mounted(), r.recorded())
	}
}

// A host that holds a file open for longer than one waits, and one that does not answer.
func TestWhatStaysIsSaidAndOnRecord(t *testing.T) {
	for name, tc := range map[string]struct {
		begin, end func(r *rig, o *odd)
		kind       fault.Kind
	}{
		"held open": {
			begin: func(_ *rig, o *odd) { o.unmount = func() error { return busy } },
			end:   func(_ *rig, o *odd) { o.unmount = nil },
			kind:  fault.Conflict,
		},
		"unreachable": {
			begin: func(r *rig, _ *odd) { r.must(r.lab.Stop()) },
			end:   func(r *rig, _ *odd) { r.must(r.lab.Resume()) },
			kind:  fault.Unreachable,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, smallDisk())
			host := &odd{}
			tr, told := r.landingOf(host, func(o *landing.Options) {
				if tc.kind == fault.Conflict { // else it does not wait
					o.UnmountWait = 300 * time.Millisecond
				}
			})
			_, err := r.land(tr, 0, image.Raw)
			r.must(err)
			tc.begin(r, host)
			r.must(tr.Close())
			all := told.take()
			if len(all) != 1 || !fault.Is(all[0], tc.kind) || !strings.Contains(fault.HintOf(all[0]), "esxcli storage nfs remove -v decamp-") {
				t.Fatalf("told: %v", all)
			}
			tc.end(r, host)
			if !r.mounted() || r.recorded() != 1 {
				t.Fatalf("mounted %v, %d on record", r.mounted(), r.recorded())
			}
			r.putBack()
			if r.mounted() || r.recorded() > 0 {
				t.Errorf("the next run left it: mounted %v, %d on record", r.mounted(), r.recorded())
			}
		})
	}
}

// Without a record, what stays is an error: nobody would know of it.
func TestWithoutRecordWhatStaysIsAnError(t *testing.T) {
	r := newRig(t, smallDisk())
	host := &odd{unmount: func() error { return busy }}
	tr, _ := r.landingOf(host, func(o *landing.Options) { o.UnmountWait, o.Leftovers = 100*time.Millisecond, nil })
	_, err := r.land(tr, 0, image.Raw)
	r.must(err)
	if err := tr.Close(); !fault.Is(err, fault.Conflict) {
		t.Errorf("closed: %v", err)
	}
	if r.recorded() > 0 {
		t.Error("it was recorded nevertheless")
	}
}

// This machine had another address when the run was killed.
func TestMountOfAnOlderAddressIsTakenOff(t *testing.T) {
	r := newRig(t, smallDisk())
	_, port, _ := net.SplitHostPort(r.ports.NFS)
	r.ports.NFS = ":" + port
	host := &odd{unmount: func() error { return errors.New("killed") }}
	older, told := r.landingOf(host, func(o *landing.Options) { o.Advertise = netip.MustParseAddr("127.0.0.2") })
	_, err := r.land(older, 0, image.Raw)
	r.must(err)
	r.must(older.Close())
	if len(told.take()) != 1 || !r.mounted() {
		t.Fatal("the older mount is not there")
	}
	r.putBack()
	tr := r.landing()
	f, err := r.land(tr, 0, image.Raw)
	r.must(err)
	r.same(f, 0)
	if m := r.lab.Mounts(); len(m) != 1 || m[0].Server != "127.0.0.1" {
		t.Errorf("the host has %+v", m)
	}
}

// A record is lost, or the state folder is another: the name tells, and it is mounted anew.
func TestUnrecordedMountOfOursIsMountedAnew(t *testing.T) {
	r := newRig(t, smallDisk())
	host := &odd{unmount: func() error { return busy }}
	killed, _ := r.landingOf(host, func(o *landing.Options) { o.UnmountWait = 50 * time.Millisecond })
	_, err := r.land(killed, 0, image.Raw)
	r.must(err)
	r.must(killed.Close())
	list, err := r.leftovers().List()
	r.must(err)
	r.must(r.leftovers().Remove(list[0].ID()))
	tr := r.landing()
	f, err := r.land(tr, 0, image.Raw)
	r.must(err)
	r.same(f, 0)
	r.must(tr.Close())
	if r.mounted() || r.recorded() > 0 {
		t.Errorf("mounted %v, %d on record", r.mounted(), r.recorded())
	}
}

// Somebody has the name, or all that the host mounts, or our export under a name of his own.
func TestWhatOthersMountedStays(t *testing.T) {
	for name, tc := range map[string]struct {
		theirs func(n esx.NAS) esx.NAS
		kind   fault.Kind // Internal: it works
	}{
		"name taken":            {func(n esx.NAS) esx.NAS { n.Server = "localhost"; return n }, fault.Conflict},
		"as many as there may":  {func(n esx.NAS) esx.NAS { n.Server, n.Name = "localhost", "theirs"; return n }, fault.Full},
		"ours, by another name": {func(n esx.NAS) esx.NAS { n.Name = "theirs"; return n }, fault.Internal},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRigOf(t, lab.Config{NFS: lab.NFS{MaxVolumes: 1}, VMs: []lab.VM{{Name: "web 01", Disks: []lab.Disk{smallDisk()}}}})
			tr, told := r.landingOf(&odd{mount: func(ctx context.Context, host inventory.MoRef, n esx.NAS) {
				_, _, err := r.session.MountNAS(ctx, host, tc.theirs(n))
				r.must(err)
			}})
			_, err := r.land(tr, 0, image.Raw)
			if works := tc.kind == fault.Internal; works != (err == nil) || !works && (!fault.Is(err, tc.kind) || fault.HintOf(err) == "") {
				t.Errorf("landed: %v (remedy: %s)", err, fault.HintOf(err))
			}
			r.must(tr.Close())
			if m := r.lab.Mounts(); len(m) != 1 {
				t.Errorf("the host has %+v", m)
			}
			if r.recorded() > 0 || len(told.take()) > 0 {
				t.Error("it is on record as ours")
			}
		})
	}
}

// The host sends from an address that it does not know of: it is behind NAT.
func TestHostFromAnotherAddress(t *testing.T) {
	r := newRig(t, smallDisk())
	host := &odd{addresses: []netip.Addr{netip.MustParseAddr("192.0.2.7")}}
	ours := func(o *landing.Options) { o.Advertise = netip.MustParseAddr("127.0.0.1") }
	tr, _ := r.landingOf(host, ours)
	_, err := r.land(tr, 0, image.Raw)
	if !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), "a connection came from 127.0.0.1") ||
		!strings.Contains(fault.HintOf(err), "--landing-allow 127.0.0.1") {
		t.Errorf("%v (remedy: %s)", err, fault.HintOf(err))
	}
	if !strings.Contains(r.told.String(), "from=127.0.0.1") {
		t.Errorf("the log does not say who it was: %s", r.told.String())
	}
	r.must(tr.Close())
	tr, _ = r.landingOf(host, ours, func(o *landing.Options) { o.Allow = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	_, err = r.land(tr, 0, image.Raw)
	r.must(err)
}

// Firewalls that let nothing through to 111, or nothing to 2049.
func TestFirewallIsNamed(t *testing.T) {
	for name, tc := range map[string]struct {
		mapper bool // the port mapper is reached
		hint   string
	}{
		"111":  {false, "open 111 and 2049"},
		"2049": {true, "a firewall drops TCP"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := lab.Config{VMs: []lab.VM{{Name: "web 01", Disks: []lab.Disk{smallDisk()}}}}
			if !tc.mapper {
				cfg.NFS.Portmap, cfg.NFS.Times.Mount = silence(t), 500*time.Millisecond
			}
			r := newRigOf(t, cfg)
			advertise := "127.0.0.1"
			if tc.mapper {
				advertise = "127.0.0.2" // where nobody listens on NFS
			}
			tr, _ := r.landingOf(&odd{}, func(o *landing.Options) { o.Advertise = netip.MustParseAddr(advertise) })
			_, err := r.land(tr, 0, image.Raw)
			if !fault.Is(err, fault.Unreachable) || !strings.Contains(fault.HintOf(err), tc.hint) {
				t.Errorf("%v (remedy: %s)", err, fault.HintOf(err))
			}
			if r.recorded() > 0 {
				t.Error("what was not mounted is on record")
			}
		})
	}
}

// silence listens and never answers, as a port behind a firewall that drops.
func silence(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// The ports are another's, or another decamp's.
func TestPortsThatAreTaken(t *testing.T) {
	r := newRig(t, smallDisk())
	first := r.landing()
	_, err := r.land(first, 0, image.Raw)
	r.must(err)
	second, _ := r.landingOf(&odd{}, func(o *landing.Options) { o.Dir += "2" })
	_, err = r.land(second, 0, image.Raw)
	if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "landing.test") || !strings.Contains(fault.HintOf(err), "--landing-listen") {
		t.Errorf("%v (remedy: %s)", err, fault.HintOf(err))
	}
	if n := r.recorded(); n != 1 {
		t.Errorf("%d on record, want that of the first", n)
	}
}
