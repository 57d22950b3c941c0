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

// fakeHost is a host whose behaviour the set fields change.
type fakeHost struct {
	landing.Host
	beforeMount  func(ctx context.Context, host inventory.MoRef, n esx.NAS) // called before the real call
	mountError   func() error                                               // replaces the result of a successful mount
	unmountError func() error                                               // a non-nil error replaces the real call
	addresses    []netip.Addr
	beforeCopy   func()            // blocks a copy until its turn
	onProgress   func(percent int) // called with each progress above 0
}

func (o *fakeHost) MountNAS(ctx context.Context, host inventory.MoRef, n esx.NAS) (string, bool, error) {
	if o.beforeMount != nil {
		o.beforeMount(ctx, host, n)
	}
	name, fresh, err := o.Host.MountNAS(ctx, host, n)
	if err == nil && o.mountError != nil {
		err = o.mountError()
	}
	return name, fresh, err
}

func (o *fakeHost) UnmountNAS(ctx context.Context, host inventory.MoRef, n esx.NAS) error {
	if o.unmountError != nil {
		if err := o.unmountError(); err != nil {
			return err
		}
	}
	return o.Host.UnmountNAS(ctx, host, n)
}

func (o *fakeHost) HostAddresses(ctx context.Context, host inventory.MoRef) ([]netip.Addr, error) {
	if o.addresses != nil {
		return o.addresses, nil
	}
	return o.Host.HostAddresses(ctx, host)
}

func (o *fakeHost) CopyDisk(ctx context.Context, c esx.DiskCopy) error {
	if o.beforeCopy != nil {
		o.beforeCopy()
	}
	if report := c.Progress; o.onProgress != nil {
		c.Progress = func(percent int) {
			report(percent)
			if percent > 0 {
				o.onProgress(percent)
			}
		}
	}
	return o.Host.CopyDisk(ctx, c)
}

// errorList collects the errors that Options.Stays receives.
type errorList struct {
	mu  sync.Mutex
	all []error
}

func (c *errorList) add(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, err)
}

func (c *errorList) take() (all []error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all, c.all = c.all, nil
	return all
}

// newLandingFor returns a landing for a fake host, and the errors of mounts that it could not remove.
func (r *rig) newLandingFor(host *fakeHost, change ...func(*landing.Options)) (*landing.Transport, *errorList) {
	c := &errorList{}
	host.Host = r.session
	o := r.landingOptions()
	o.Stays = c.add
	for _, f := range change {
		f(&o)
	}
	t := landing.New(host, o)
	r.Cleanup(func() { r.checkError(t.Close()) })
	return t, c
}

func (r *rig) recordCount() int {
	r.Helper()
	list, err := r.leftovers().List()
	r.must(err)
	return len(list)
}

var errBusy = fault.New(fault.Conflict, "a file is open")

func smallDisk() lab.Disk { return lab.Disk{Capacity: 4 << 20, Fill: 50, Seed: 5} }

// If the reply to the mount is lost, the landing does not know whether the mount exists, and removes it.
func TestMountWithLostReplyIsRemoved(t *testing.T) {
	r := newRig(t, smallDisk())
	lost := fault.New(fault.Transient, "connection reset")
	host := &fakeHost{mountError: func() error { return lost }}
	tr, stays := r.newLandingFor(host)
	if _, err := r.landDisk(tr, 0, image.Raw); !errors.Is(err, lost) {
		t.Errorf("error %v, want %v", err, lost)
	}
	if r.hasDatastore() || r.recordCount() > 0 {
		t.Errorf("mounted %v, %d records, want neither", r.hasDatastore(), r.recordCount())
	}
	host.mountError = nil
	f, err := r.landDisk(tr, 0, image.Raw)
	r.must(err)
	r.requireSameContent(f, 0)
	r.closeAndRequireClean(tr, stays)
}

func TestUnmountWaitsForOpenFiles(t *testing.T) {
	r := newRig(t, smallDisk())
	attempts := 0
	tr, stays := r.newLandingFor(&fakeHost{unmountError: func() error {
		if attempts++; attempts < 4 {
			return errBusy
		}
		return nil
	}})
	_, err := r.landDisk(tr, 0, image.Raw)
	r.must(err)
	r.must(tr.Close())
	if attempts != 4 || r.hasDatastore() || r.recordCount() > 0 || len(stays.take()) > 0 {
		t.Errorf("after %d attempts: mounted %v, %d records, want neither after 4", attempts, r.hasDatastore(), r.recordCount())
	}
}

// If the host keeps a file open too long or does not answer, Close calls Stays with the remaining mount, and
// the mount stays recorded. The next run removes it.
func TestRemainingMountIsReportedAndRecorded(t *testing.T) {
	for name, tc := range map[string]struct {
		begin, end func(r *rig, o *fakeHost)
		kind       fault.Kind
	}{
		"held open": {
			begin: func(_ *rig, o *fakeHost) { o.unmountError = func() error { return errBusy } },
			end:   func(_ *rig, o *fakeHost) { o.unmountError = nil },
			kind:  fault.Conflict,
		},
		"unreachable": {
			begin: func(r *rig, _ *fakeHost) { r.must(r.lab.Stop()) },
			end:   func(r *rig, _ *fakeHost) { r.must(r.lab.Resume()) },
			kind:  fault.Unreachable,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, smallDisk())
			host := &fakeHost{}
			tr, stays := r.newLandingFor(host, func(o *landing.Options) {
				if tc.kind == fault.Conflict { // only a conflict is waited for
					o.UnmountWait = 300 * time.Millisecond
				}
			})
			_, err := r.landDisk(tr, 0, image.Raw)
			r.must(err)
			tc.begin(r, host)
			r.must(tr.Close())
			all := stays.take()
			if len(all) != 1 || !fault.Is(all[0], tc.kind) || !strings.Contains(fault.HintOf(all[0]), "esxcli storage nfs remove -v decamp-") {
				t.Fatalf("Stays was called with %v, want one error of kind %v with a command in its hint", all, tc.kind)
			}
			tc.end(r, host)
			if !r.hasDatastore() || r.recordCount() != 1 {
				t.Fatalf("mounted %v, %d records, want a mount and its record", r.hasDatastore(), r.recordCount())
			}
			r.undoLeftovers()
			if r.hasDatastore() || r.recordCount() > 0 {
				t.Errorf("after the next run: mounted %v, %d records, want neither", r.hasDatastore(), r.recordCount())
			}
		})
	}
}

// Without Leftovers, Close returns an error for a mount that it could not remove.
func TestUnrecordedRemainingMountIsAnError(t *testing.T) {
	r := newRig(t, smallDisk())
	host := &fakeHost{unmountError: func() error { return errBusy }}
	tr, _ := r.newLandingFor(host, func(o *landing.Options) { o.UnmountWait, o.Leftovers = 100*time.Millisecond, nil })
	_, err := r.landDisk(tr, 0, image.Raw)
	r.must(err)
	if err := tr.Close(); !fault.Is(err, fault.Conflict) {
		t.Errorf("Close returned %v, want kind Conflict", err)
	}
	if r.recordCount() > 0 {
		t.Error("the mount was recorded, want no record")
	}
}

// If this machine had another address in the killed run, the next run removes the old mount.
func TestMountOfEarlierAddressIsRemoved(t *testing.T) {
	r := newRig(t, smallDisk())
	_, port, _ := net.SplitHostPort(r.ports.NFS)
	r.ports.NFS = ":" + port
	host := &fakeHost{unmountError: func() error { return errors.New("killed") }}
	older, stays := r.newLandingFor(host, func(o *landing.Options) { o.Advertise = netip.MustParseAddr("127.0.0.2") })
	_, err := r.landDisk(older, 0, image.Raw)
	r.must(err)
	r.must(older.Close())
	if len(stays.take()) != 1 || !r.hasDatastore() {
		t.Fatal("the older mount was not left mounted")
	}
	r.undoLeftovers()
	tr := r.newLanding()
	f, err := r.landDisk(tr, 0, image.Raw)
	r.must(err)
	r.requireSameContent(f, 0)
	if m := r.lab.Mounts(); len(m) != 1 || m[0].Server != "127.0.0.1" {
		t.Errorf("the host has mounts %+v, want one of 127.0.0.1", m)
	}
}

// If the record of a mount is lost, the next run recognizes the mount by its name and mounts it again.
func TestUnrecordedOwnMountIsReplaced(t *testing.T) {
	r := newRig(t, smallDisk())
	host := &fakeHost{unmountError: func() error { return errBusy }}
	killed, _ := r.newLandingFor(host, func(o *landing.Options) { o.UnmountWait = 50 * time.Millisecond })
	_, err := r.landDisk(killed, 0, image.Raw)
	r.must(err)
	r.must(killed.Close())
	list, err := r.leftovers().List()
	r.must(err)
	r.must(r.leftovers().Remove(list[0].ID()))
	tr := r.newLanding()
	f, err := r.landDisk(tr, 0, image.Raw)
	r.must(err)
	r.requireSameContent(f, 0)
	r.must(tr.Close())
	if r.hasDatastore() || r.recordCount() > 0 {
		t.Errorf("mounted %v, %d records, want neither", r.hasDatastore(), r.recordCount())
	}
}

// A mount of another user stays: one with the name of the landing, one that uses up the host's volumes, or one of
// the same export with another name.
func TestMountsOfOthersAreKept(t *testing.T) {
	for name, tc := range map[string]struct {
		foreignMount func(n esx.NAS) esx.NAS
		kind         fault.Kind // expected kind; Internal: the landing works
	}{
		"name taken":            {func(n esx.NAS) esx.NAS { n.Server = "localhost"; return n }, fault.Conflict},
		"volume limit":          {func(n esx.NAS) esx.NAS { n.Server, n.Name = "localhost", "theirs"; return n }, fault.Full},
		"ours, by another name": {func(n esx.NAS) esx.NAS { n.Name = "theirs"; return n }, fault.Internal},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRigOf(t, lab.Config{NFS: lab.NFS{MaxVolumes: 1}, VMs: []lab.VM{{Name: "web 01", Disks: []lab.Disk{smallDisk()}}}})
			tr, stays := r.newLandingFor(&fakeHost{beforeMount: func(ctx context.Context, host inventory.MoRef, n esx.NAS) {
				_, _, err := r.session.MountNAS(ctx, host, tc.foreignMount(n))
				r.must(err)
			}})
			_, err := r.landDisk(tr, 0, image.Raw)
			if works := tc.kind == fault.Internal; works != (err == nil) || !works && (!fault.Is(err, tc.kind) || fault.HintOf(err) == "") {
				t.Errorf("error %v of kind %v (hint: %s), want kind %v", err, fault.KindOf(err), fault.HintOf(err), tc.kind)
			}
			r.must(tr.Close())
			if m := r.lab.Mounts(); len(m) != 1 {
				t.Errorf("the host has mounts %+v, want one", m)
			}
			if r.recordCount() > 0 || len(stays.take()) > 0 {
				t.Error("the foreign mount is recorded or reported")
			}
		})
	}
}

// If the host connects from an address that it does not report, as behind NAT, the error and the log name the
// address and the hint names the flag that allows it.
func TestHostConnectsFromUnknownAddress(t *testing.T) {
	r := newRig(t, smallDisk())
	host := &fakeHost{addresses: []netip.Addr{netip.MustParseAddr("192.0.2.7")}}
	advertise := func(o *landing.Options) { o.Advertise = netip.MustParseAddr("127.0.0.1") }
	tr, _ := r.newLandingFor(host, advertise)
	_, err := r.landDisk(tr, 0, image.Raw)
	if !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), "a connection came from 127.0.0.1") ||
		!strings.Contains(fault.HintOf(err), "--landing-allow 127.0.0.1") {
		t.Errorf("error %v (hint: %s), want Denied with the address and the flag", err, fault.HintOf(err))
	}
	if !strings.Contains(r.log.String(), "from=127.0.0.1") {
		t.Errorf("the log does not name the address: %s", r.log.String())
	}
	r.must(tr.Close())
	tr, _ = r.newLandingFor(host, advertise, func(o *landing.Options) { o.Allow = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	_, err = r.landDisk(tr, 0, image.Raw)
	r.must(err)
}

// If a firewall blocks port 111 or 2049, the hint names the port.
func TestFirewallIsReported(t *testing.T) {
	for name, tc := range map[string]struct {
		mapper bool // whether the host reaches the port mapper
		hint   string
	}{
		"111":  {false, "open 111 and 2049"},
		"2049": {true, "a firewall drops TCP"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := lab.Config{VMs: []lab.VM{{Name: "web 01", Disks: []lab.Disk{smallDisk()}}}}
			if !tc.mapper {
				cfg.NFS.Portmap, cfg.NFS.Times.Mount = listenSilently(t), 500*time.Millisecond
			}
			r := newRigOf(t, cfg)
			advertise := "127.0.0.1"
			if tc.mapper {
				advertise = "127.0.0.2" // no NFS server listens there
			}
			tr, _ := r.newLandingFor(&fakeHost{}, func(o *landing.Options) { o.Advertise = netip.MustParseAddr(advertise) })
			_, err := r.landDisk(tr, 0, image.Raw)
			if !fault.Is(err, fault.Unreachable) || !strings.Contains(fault.HintOf(err), tc.hint) {
				t.Errorf("error %v (hint: %s), want Unreachable with hint %q", err, fault.HintOf(err), tc.hint)
			}
			if r.recordCount() > 0 {
				t.Error("a failed mount is recorded")
			}
		})
	}
}

// listenSilently listens on a port that never answers, like a port behind a firewall that drops packets.
func listenSilently(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// If another process has the ports, the error names it and the hint names the flag for other ports.
func TestUsedPortsAreReportedWithOwner(t *testing.T) {
	r := newRig(t, smallDisk())
	first := r.newLanding()
	_, err := r.landDisk(first, 0, image.Raw)
	r.must(err)
	second, _ := r.newLandingFor(&fakeHost{}, func(o *landing.Options) { o.Dir += "2" })
	_, err = r.landDisk(second, 0, image.Raw)
	if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "landing.test") || !strings.Contains(fault.HintOf(err), "--landing-listen") {
		t.Errorf("error %v (hint: %s), want Conflict with the process and the flag", err, fault.HintOf(err))
	}
	if n := r.recordCount(); n != 1 {
		t.Errorf("%d records, want that of the first landing", n)
	}
}
