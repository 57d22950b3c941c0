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

func startOf(t *testing.T, p *Platform, d platform.Delivery) targets.Started {
	t.Helper()
	s, err := p.Start(t.Context(), d.Definition)
	if err != nil {
		t.Fatalf("start: %v (%s)", err, fault.HintOf(err))
	}
	return s
}

// onlyServer is the one that there is, which runs.
func onlyServer(t *testing.T, cloud *lab.Cloud) lab.Server {
	t.Helper()
	all := cloud.Servers()
	if len(all) != 1 || all[0].Status != "ACTIVE" {
		t.Fatalf("servers: %+v", all)
	}
	return all[0]
}

// The server is made of all that was delivered, once, also if the answer to that was lost. A delivery alone
// makes none.
func TestStartMakesTheServerOnce(t *testing.T) {
	cloud := serve(t, lab.Config{})
	p := place(t, cloud, "lab")
	p.cloud.http.Transport = &unheard{next: p.cloud.http.Transport}
	d := deliveryOf(t, web())
	r := deliver(t, p, d)
	if all := cloud.Servers(); len(all) > 0 {
		t.Fatalf("a delivery made %+v", all)
	}
	first, again := startOf(t, p, d), startOf(t, p, d)
	if now := deliver(t, p, d); now.ID != r.ID {
		t.Errorf("the receipt names %s, and named %s", now.ID, r.ID)
	}
	s := onlyServer(t, cloud)
	if first != again || first.Console != "openstack --os-cloud lab console url show "+s.ID {
		t.Errorf("consoles %q and %q", first.Console, again.Console)
	}
	v := cloud.Volumes()
	if s.Flavor != "v2" || !slices.Equal(s.Volumes, []string{v[0].ID, v[1].ID}) || len(s.Ports) != 1 || s.Metadata[sourceKey] != sourceID(d.VM) {
		t.Errorf("made of %+v", s)
	}
}

// unheard loses the answer to the first call that makes a server.
type unheard struct {
	next http.RoundTripper
	once sync.Once
}

func (u *unheard) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := u.next.RoundTrip(r)
	if err == nil && r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/servers") {
		u.once.Do(func() {
			err = errors.Join(errors.New("the connection broke"), res.Body.Close())
			res = nil
		})
	}
	return res, err
}

// A server that never came up is removed, with nothing else: the next start makes another.
func TestStartRemovesWhatNeverCameUp(t *testing.T) {
	for name, v := range map[string]struct {
		config  lab.Config
		trouble lab.Fault
		address string
		kind    fault.Kind
		words   string
	}{
		"no host":       {config: lab.Config{BadServers: 1}, kind: fault.Full, words: "No valid host"},
		"of an image":   {config: lab.Config{BadServers: 1}, address: "?boot=image&flavor=d4", kind: fault.Full, words: "server create --flavor d4 --image "},
		"Nova's quota":  {trouble: lab.Fault{Method: "POST", Path: "servers", Status: 403, Body: `{"forbidden": {"message": "Quota exceeded for cores"}}`, Times: 1}, kind: fault.Full, words: "cores"},
		"no right":      {trouble: lab.Fault{Method: "POST", Path: "servers", Status: 403, Times: 1}, kind: fault.Denied, words: "member"},
		"refused to us": {trouble: lab.Fault{Method: "POST", Path: "servers", Status: 400, Body: `{"badRequest": {"message": "Block Device Mapping is Invalid"}}`, Times: 1}, kind: fault.Invalid, words: "Mapping"},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := serve(t, v.config)
			cloud.InjectFault(v.trouble)
			p := place(t, cloud, "lab"+v.address)
			d := deliveryOf(t, with(web(), func(vm *inventory.VM) { vm.Disks = vm.Disks[:1] }))
			deliver(t, p, d)
			before := thingsIn(cloud)
			_, err := p.Start(t.Context(), d.Definition)
			hasHint(t, err, v.kind, v.words)
			if now := thingsIn(cloud); !slices.Equal(now, before) {
				t.Errorf("it was %q, and is %q", before, now)
			}
			startOf(t, p, d)
			onlyServer(t, cloud)
		})
	}
}

// What a start that was cut off left of a server in error is not taken for one that ran.
func TestStartTellsServersApart(t *testing.T) {
	for status, v := range map[string]struct {
		kind  fault.Kind // fault.Internal: it runs
		words string
	}{
		"ACTIVE":            {},
		"SHUTOFF":           {},
		"BUILD":             {},
		"ERROR":             {fault.Conflict, "server reboot --hard"},
		"PAUSED":            {fault.Conflict, "server unpause"},
		"SHELVED_OFFLOADED": {fault.Conflict, "server unshelve"},
	} {
		cloud := serve(t, lab.Config{})
		p := place(t, cloud, "lab")
		d := deliveryOf(t, web())
		deliver(t, p, d)
		startOf(t, p, d)
		was := onlyServer(t, cloud).ID
		cloud.SetStatus(was, status)
		_, err := p.Start(t.Context(), d.Definition)
		if v.words != "" {
			hasHint(t, err, v.kind, v.words)
		} else if err != nil || onlyServer(t, cloud).ID != was {
			t.Errorf("%s: %v", status, err)
		}
		if all := cloud.Servers(); len(all) != 1 || all[0].ID != was {
			t.Errorf("%s: there are %+v", status, all)
		}
	}
}

func TestStartRefuses(t *testing.T) {
	for name, v := range map[string]struct {
		after func(*lab.Cloud, *Platform, *platform.Delivery)
		kind  fault.Kind
		words string
	}{
		"nothing there": {func(_ *lab.Cloud, p *Platform, d *platform.Delivery) { _ = p.Withdraw(context.Background(), d.VM) }, fault.NotFound, "volume list"},
		"another's": {func(cloud *lab.Cloud, p *Platform, d *platform.Delivery) {
			_ = p.Withdraw(context.Background(), d.VM)
			cloud.AddServer("web 01")
		}, fault.Conflict, "web 01-old"},
		"of an earlier copy": {func(_ *lab.Cloud, _ *Platform, d *platform.Delivery) {
			d.Images = slices.Clone(d.Images)
			d.Images[0].Root = "bb66"
		}, fault.Conflict, "earlier copy"},
		"made by hand": {func(cloud *lab.Cloud, _ *Platform, _ *platform.Delivery) {
			cloud.Attach(cloud.Volumes()[1].ID, "theirs")
		}, fault.Conflict, "server show theirs"},
		"no port": {func(cloud *lab.Cloud, _ *Platform, _ *platform.Delivery) { cloud.RemovePort(cloud.Ports()[0].ID) }, fault.Conflict, "does not exist any more"},
		"too large": {func(_ *lab.Cloud, _ *Platform, d *platform.Delivery) {
			d.VM = with(web(), func(vm *inventory.VM) { vm.CPUs = 64 })
		}, fault.NotFound, "flavor create"},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := serve(t, lab.Config{})
			p, d := place(t, cloud, "lab"), deliveryOf(t, web())
			deliver(t, p, d)
			v.after(cloud, p, &d)
			before := thingsIn(cloud)
			_, err := p.Start(t.Context(), d.Definition)
			hasHint(t, err, v.kind, v.words)
			if now := thingsIn(cloud); !slices.Equal(now, before) {
				t.Errorf("it was %q, and is %q", before, now)
			}
		})
	}
}

// A crash at any call that changes something, before it or after: the next start finds what there is, and one
// server runs. The same where the first server fails. Of the calls that only read, the slow lane has all.
func TestStartGoesOnAfterACrash(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for _, config := range []lab.Config{{}, {BadServers: 1}, {Late: 1, TokenCalls: 7}} {
		calls := startCalls(t, config)
		if len(calls) < 7 {
			t.Errorf("%+v: a start has %d calls", config, len(calls))
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

// startCalls returns the calls of a start, by whether they only read.
func startCalls(t *testing.T, config lab.Config) (reads []bool) {
	t.Helper()
	_, p, d, tapped := deliveredTo(t, config)
	n := 0
	tapped.SetHook(func(call int) targettest.Outcome { n = call; return targettest.Pass })
	if _, err := p.Start(t.Context(), d.Definition); err != nil && config.BadServers == 0 {
		t.Fatal(err)
	}
	for call := range n {
		reads = append(reads, tapped.Reads(call+1))
	}
	return reads
}

// deliveredTo returns a cloud with a delivered VM, and the hook of its calls.
func deliveredTo(t *testing.T, config lab.Config) (*lab.Cloud, *Platform, platform.Delivery, *targettest.CallHook) {
	t.Helper()
	cloud := serve(t, config)
	p, d := place(t, cloud, "lab"), deliveryOf(t, web())
	tapped := &targettest.CallHook{Next: p.cloud.http.Transport}
	p.cloud.http.Transport = tapped // before it logs in
	deliver(t, p, d)
	return cloud, p, d, tapped
}

// crashAt loses a call of a start, or its answer, and all later ones.
func crashAt(t *testing.T, config lab.Config, at int, fate targettest.Outcome) {
	t.Helper()
	cloud, p, d, tapped := deliveredTo(t, config)
	ctx, cancel := context.WithCancel(t.Context())
	dead := false
	tapped.SetHook(func(n int) targettest.Outcome {
		if n == at {
			cancel()
			dead = true
			return fate
		}
		if dead {
			return targettest.Lost
		}
		return targettest.Pass
	})
	_, err := p.Start(ctx, d.Definition)
	cancel()
	if !dead || err == nil {
		t.Errorf("call %d: it did not crash (%v), or not notice: %v", at, dead, err)
	}
	tapped.SetHook(nil)
	fails := config.BadServers > 0 && !slices.ContainsFunc(cloud.Servers(), func(s lab.Server) bool { return s.Status == "ERROR" })
	if _, err := p.Start(t.Context(), d.Definition); err != nil && !(fails && fault.Is(err, fault.Full)) {
		t.Errorf("after call %d (%v): %v", at, fate, err)
	}
	startOf(t, p, d)
	if s := onlyServer(t, cloud); len(s.Volumes) != 2 || len(s.Ports) != 1 {
		t.Errorf("after call %d: %+v", at, s)
	}
}
