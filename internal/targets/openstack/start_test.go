package openstack

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	lab "github.com/decamp/decamp/internal/lab/openstack"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/platform"
	"github.com/decamp/decamp/internal/targets/targettest"
	"github.com/decamp/decamp/test/lane"
)

func mustStart(t *testing.T, p *Platform, d platform.Delivery) targets.Started {
	t.Helper()
	s, err := p.Start(t.Context(), d.Definition)
	if err != nil {
		t.Fatalf("Start: %v (%s)", err, fault.HintOf(err))
	}
	return s
}

// onlyServer returns the only server, which must run.
func onlyServer(t *testing.T, cloud *lab.Cloud) lab.Server {
	t.Helper()
	all := cloud.Servers()
	if len(all) != 1 || all[0].Status != "ACTIVE" {
		t.Fatalf("got servers %+v, want one that is active", all)
	}
	return all[0]
}

// Start creates one server with all delivered objects, also if the answer to its request is lost. Deliver creates no
// server.
func TestStartCreatesServerOnce(t *testing.T) {
	cloud := startCloud(t, lab.Config{})
	p := newPlatform(t, cloud, "lab")
	p.cloud.http.Transport = &lostAnswer{next: p.cloud.http.Transport}
	d := newTestDelivery(t, webVM())
	r := mustDeliver(t, p, d)
	if all := cloud.Servers(); len(all) > 0 {
		t.Fatalf("Deliver creates servers %+v", all)
	}
	first, again := mustStart(t, p, d), mustStart(t, p, d)
	if now := mustDeliver(t, p, d); now.ID != r.ID {
		t.Errorf("the second receipt has ID %s, the first %s", now.ID, r.ID)
	}
	s := onlyServer(t, cloud)
	if first != again || first.Console != "openstack --os-cloud lab console url show "+s.ID {
		t.Errorf("got consoles %q and %q", first.Console, again.Console)
	}
	v := cloud.Volumes()
	if s.Flavor != "v2" || !slices.Equal(s.Volumes, []string{v[0].ID, v[1].ID}) || len(s.Ports) != 1 || s.Metadata[sourceKey] != sourceID(d.VM) {
		t.Errorf("got server %+v", s)
	}
}

// lostAnswer loses the answer to the first request that creates a server.
type lostAnswer struct {
	next http.RoundTripper
	once sync.Once
}

func (u *lostAnswer) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := u.next.RoundTrip(r)
	if err == nil && r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/servers") {
		u.once.Do(func() {
			err = errors.Join(errors.New("the connection broke"), res.Body.Close())
			res = nil
		})
	}
	return res, err
}

// Start removes only a server that never ran. The next start creates another one.
func TestStartRemovesServerThatNeverRan(t *testing.T) {
	for name, v := range map[string]struct {
		config   lab.Config
		injected lab.Fault
		address  string
		kind     fault.Kind
		message  string
	}{
		"no host":         {config: lab.Config{BadServers: 1}, kind: fault.Full, message: "No valid host"},
		"boot from image": {config: lab.Config{BadServers: 1}, address: "?boot=image&flavor=d4", kind: fault.Full, message: "server create --flavor d4 --image "},
		"Nova's quota":    {injected: lab.Fault{Method: "POST", Path: "servers", Status: 403, Body: `{"forbidden": {"message": "Quota exceeded for cores"}}`, Times: 1}, kind: fault.Full, message: "cores"},
		"no right":        {injected: lab.Fault{Method: "POST", Path: "servers", Status: 403, Times: 1}, kind: fault.Denied, message: "member"},
		"invalid request": {injected: lab.Fault{Method: "POST", Path: "servers", Status: 400, Body: `{"badRequest": {"message": "Block Device Mapping is Invalid"}}`, Times: 1}, kind: fault.Invalid, message: "Mapping"},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := startCloud(t, v.config)
			cloud.InjectFault(v.injected)
			p := newPlatform(t, cloud, "lab"+v.address)
			d := newTestDelivery(t, changedVM(webVM(), func(vm *inventory.VM) { vm.Disks = vm.Disks[:1] }))
			mustDeliver(t, p, d)
			before := listObjects(cloud)
			_, err := p.Start(t.Context(), d.Definition)
			checkError(t, err, v.kind, v.message)
			if now := listObjects(cloud); !slices.Equal(now, before) {
				t.Errorf("the objects change from %q to %q", before, now)
			}
			mustStart(t, p, d)
			onlyServer(t, cloud)
		})
	}
}

// Start accepts a server that runs or is off. Any other status is a conflict, and the server is not replaced.
func TestStartAcceptsOnlyExpectedServerStates(t *testing.T) {
	for status, v := range map[string]struct {
		kind    fault.Kind // fault.Internal if Start must succeed
		message string
	}{
		"ACTIVE":            {},
		"SHUTOFF":           {},
		"BUILD":             {},
		"ERROR":             {fault.Conflict, "server reboot --hard"},
		"PAUSED":            {fault.Conflict, "server unpause"},
		"SHELVED_OFFLOADED": {fault.Conflict, "server unshelve"},
	} {
		cloud := startCloud(t, lab.Config{})
		p := newPlatform(t, cloud, "lab")
		d := newTestDelivery(t, webVM())
		mustDeliver(t, p, d)
		mustStart(t, p, d)
		id := onlyServer(t, cloud).ID
		cloud.SetStatus(id, status)
		_, err := p.Start(t.Context(), d.Definition)
		if v.message != "" {
			checkError(t, err, v.kind, v.message)
		} else if err != nil || onlyServer(t, cloud).ID != id {
			t.Errorf("%s: %v", status, err)
		}
		if all := cloud.Servers(); len(all) != 1 || all[0].ID != id {
			t.Errorf("%s: got servers %+v, want only the first", status, all)
		}
	}
}

func TestStartRefuses(t *testing.T) {
	for name, v := range map[string]struct {
		after   func(*lab.Cloud, *Platform, *platform.Delivery)
		kind    fault.Kind
		message string
	}{
		"no volumes": {func(_ *lab.Cloud, p *Platform, d *platform.Delivery) { _ = p.Withdraw(context.Background(), d.VM) }, fault.NotFound, "volume list"},
		"foreign server": {func(cloud *lab.Cloud, p *Platform, d *platform.Delivery) {
			_ = p.Withdraw(context.Background(), d.VM)
			cloud.AddServer("web 01")
		}, fault.Conflict, "web 01-old"},
		"earlier copy": {func(_ *lab.Cloud, _ *Platform, d *platform.Delivery) {
			d.Images = slices.Clone(d.Images)
			d.Images[0].Root = "bb66"
		}, fault.Conflict, "earlier copy"},
		"foreign use of a volume": {func(cloud *lab.Cloud, _ *Platform, _ *platform.Delivery) {
			cloud.Attach(cloud.Volumes()[1].ID, "theirs")
		}, fault.Conflict, "server show theirs"},
		"no port": {func(cloud *lab.Cloud, _ *Platform, _ *platform.Delivery) { cloud.RemovePort(cloud.Ports()[0].ID) }, fault.Conflict, "does not exist any more"},
		"too large": {func(_ *lab.Cloud, _ *Platform, d *platform.Delivery) {
			d.VM = changedVM(webVM(), func(vm *inventory.VM) { vm.CPUs = 64 })
		}, fault.NotFound, "flavor create"},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := startCloud(t, lab.Config{})
			p, d := newPlatform(t, cloud, "lab"), newTestDelivery(t, webVM())
			mustDeliver(t, p, d)
			v.after(cloud, p, &d)
			before := listObjects(cloud)
			_, err := p.Start(t.Context(), d.Definition)
			checkError(t, err, v.kind, v.message)
			if now := listObjects(cloud); !slices.Equal(now, before) {
				t.Errorf("the objects change from %q to %q", before, now)
			}
		})
	}
}

// After a crash before or after any call that changes something, the next start continues and one server runs. This
// also holds if the first server fails. The slow lane also crashes at every read.
func TestStartResumesAfterCrash(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for _, config := range []lab.Config{{}, {BadServers: 1}, {Late: 1, TokenCalls: 7}} {
		calls := startCalls(t, config)
		if len(calls) < 7 {
			t.Errorf("%+v: got only %d calls of a start", config, len(calls))
		}
		for i, reads := range calls {
			if !reads || lane.Slow {
				crashAt(t, config, i+1, targettest.Unanswered)
			}
			if !reads || lane.Slow || i%4 == 0 {
				crashAt(t, config, i+1, targettest.Lost)
			}
		}
	}
}

// startCalls returns for each call of a start whether it only reads.
func startCalls(t *testing.T, config lab.Config) (reads []bool) {
	t.Helper()
	_, p, d, callHook := newDeliveredVM(t, config)
	n := 0
	callHook.SetHook(func(call int) targettest.Outcome { n = call; return targettest.Pass })
	if _, err := p.Start(t.Context(), d.Definition); err != nil && config.BadServers == 0 {
		t.Fatal(err)
	}
	for call := range n {
		reads = append(reads, callHook.Reads(call+1))
	}
	return reads
}

// newDeliveredVM returns a cloud with a delivered VM, and the hook of its calls.
func newDeliveredVM(t *testing.T, config lab.Config) (*lab.Cloud, *Platform, platform.Delivery, *targettest.CallHook) {
	t.Helper()
	cloud := startCloud(t, config)
	p, d := newPlatform(t, cloud, "lab"), newTestDelivery(t, webVM())
	callHook := &targettest.CallHook{Next: p.cloud.http.Transport}
	p.cloud.http.Transport = callHook // before the login
	mustDeliver(t, p, d)
	return cloud, p, d, callHook
}

// crashAt loses a call of a start or its answer, and all later calls. Then it checks that the next start continues.
func crashAt(t *testing.T, config lab.Config, at int, outcome targettest.Outcome) {
	t.Helper()
	cloud, p, d, callHook := newDeliveredVM(t, config)
	ctx, cancel := context.WithCancel(t.Context())
	dead := false
	callHook.SetHook(func(n int) targettest.Outcome {
		if n == at {
			cancel()
			dead = true
			return outcome
		}
		if dead {
			return targettest.Lost
		}
		return targettest.Pass
	})
	_, err := p.Start(ctx, d.Definition)
	cancel()
	if !dead || err == nil {
		t.Errorf("call %d: crashed: %v, error: %v", at, dead, err)
	}
	callHook.SetHook(nil)
	fails := config.BadServers > 0 && !slices.ContainsFunc(cloud.Servers(), func(s lab.Server) bool { return s.Status == "ERROR" })
	if _, err := p.Start(t.Context(), d.Definition); err != nil && !(fails && fault.Is(err, fault.Full)) {
		t.Errorf("after call %d (%v): %v", at, outcome, err)
	}
	mustStart(t, p, d)
	if s := onlyServer(t, cloud); len(s.Volumes) != 2 || len(s.Ports) != 1 {
		t.Errorf("after call %d: %+v", at, s)
	}
}
