package proxmox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab/pve"
	"github.com/decamp/decamp/internal/sleep"
	"github.com/decamp/decamp/internal/targets/platform"
)

// newDeliveredGuest delivers a guest, which is off, and returns the node, the platform and the delivery.
func newDeliveredGuest(t *testing.T, c pve.Config) (*pve.Server, *Platform, platform.Delivery) {
	t.Helper()
	s, d := startServer(t, c), newDelivery(t, changedVM(biosVM(), func(vm *inventory.VM) { vm.MemoryMiB = 64 }))
	p := newPlatform(t, s, Options{})
	if _, err := p.Deliver(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	return s, p, d
}

// isRunning reports whether the guest runs.
func isRunning(t *testing.T, p *Platform, vmid int) bool {
	t.Helper()
	var is struct{ Status string }
	if err := p.api.get(t.Context(), guestPath(p.node, vmid)+"/status/current", nil, &is); err != nil {
		t.Fatal(err)
	}
	return is.Status == "running"
}

// countStarts counts the requests that start a guest.
func countStarts(s *pve.Server) (n int) {
	for _, r := range s.Requests() {
		if r.Method == http.MethodPost && strings.HasSuffix(r.Path, "/status/start") {
			n++
		}
	}
	return n
}

func TestStart(t *testing.T) {
	t.Parallel()
	s, p, d := newDeliveredGuest(t, pve.Config{})
	vmid, was := guestOf(t, s, d.VM)
	console := fmt.Sprintf("qm terminal %d on pve1, or %s/?console=kvm&node=pve1&novnc=1&vmid=%d", vmid, s.URL(), vmid)
	for range 2 {
		started, err := p.Start(t.Context(), d.Definition)
		if err != nil {
			t.Fatalf("%v (%s)", err, fault.HintOf(err))
		}
		if started.Console != console {
			t.Errorf("got console %q, want %q", started.Console, console)
		}
		if !isRunning(t, p, vmid) {
			t.Error("the guest is off")
		}
	}
	if n := countStarts(s); n != 1 {
		t.Errorf("got %d start requests, want 1", n)
	}
	if _, is := guestOf(t, s, d.VM); !maps.Equal(is, was) {
		t.Errorf("Start changes the options from %v to %v", was, is)
	}
}

func TestConsole(t *testing.T) {
	t.Parallel()
	const screen = "https://pve1:8006/?console=kvm&node=pve1&novnc=1&vmid=101"
	serial, away := map[string]string{"serial0": "socket"}, strings.ReplaceAll(screen, "node=pve1", "node=pve2")
	for _, tt := range []struct {
		name, ssh, node string
		config          map[string]string
		want            string
	}{
		{"without a serial port", "", "pve1", nil, screen},
		{"with one", "", "pve1", serial, "qm terminal 101 on pve1, or " + screen},
		{"a port that is a device", "", "pve1", map[string]string{"serial0": "/dev/ttyS0"}, screen},
		{"over SSH", "root@pve1", "pve1", serial, "ssh -t root@pve1 qm terminal 101, or " + screen},
		{"over SSH at a port", "root@pve1:2222", "pve1", serial, "ssh -t ssh://root@pve1:2222 qm terminal 101, or " + screen},
		{"moved to another node", "root@pve1", "pve2", serial, "qm terminal 101 on pve2, or " + away},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := New("https://pve1/pve1", Options{Token: "root@pam!a=b", SSH: tt.ssh})
			if err != nil {
				t.Fatal(err)
			}
			if got := p.newStarter().consoleCommand(&found{vmid: 101, node: tt.node}, tt.config); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// A guest that cannot start is not changed. The error has the node's message and a hint.
func TestStartFails(t *testing.T) {
	t.Parallel()
	acl := pve.ACL{"/": pve.All()}
	acl["/vms"] = strings.Fields(strings.ReplaceAll(strings.Join(pve.All(), " "), "VM.PowerMgmt", ""))
	weak := []pve.Token{{User: "a@pve", ID: "t", Secret: "s", ACL: acl}}
	for _, tt := range []struct {
		name    string
		tokens  []pve.Token
		faults  pve.Faults
		option  [2]string
		kind    fault.Kind
		message string
		hint    string
	}{
		{"no virtualisation", nil, pve.Faults{NoKVM: true}, [2]string{}, fault.Unsupported, "KVM virtualisation configured, but not available", "VT-x"},
		{"no memory", nil, pve.Faults{FreeMiB: 32}, [2]string{}, fault.Full, "Cannot allocate memory", "free -m, on pve1"},
		{"no storage", nil, pve.Faults{Offline: []string{"local-lvm"}}, [2]string{}, fault.Transient, "storage 'local-lvm' is not online", "pvesm status"},
		{"no bridge", nil, pve.Faults{}, [2]string{"net0", "vmxnet3=00:50:56:AB:CD:01,bridge=vmbr9"}, fault.NotFound, "bridge 'vmbr9' does not exist", "/nodes/pve1/network"},
		{"locked", nil, pve.Faults{}, [2]string{"lock", "backup"}, fault.Conflict, "VM is locked (backup)", "qm unlock 100"},
		{"QEMU fails", nil, pve.Faults{}, [2]string{"cpu", ""}, fault.Internal, "QEMU exited with code 1; before that: kvm: ", "task list"},
		{"task fails", nil, pve.Faults{Tasks: map[string]string{"qmstart": "hookscript error for 100"}}, [2]string{}, fault.Internal, "hookscript error for 100", "task list"},
		{"dies at once", nil, pve.Faults{Dies: true}, [2]string{}, fault.Conflict, "its start succeeded, but it is off", "journalctl -t QEMU"},
		{"no right", weak, pve.Faults{}, [2]string{}, fault.Denied, "VM.PowerMgmt", "pveum role add DecampStart-vms --privs VM.PowerMgmt; pveum acl modify /vms --tokens 'a@pve!t'"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, p, d := newDeliveredGuest(t, pve.Config{Tokens: tt.tokens})
			vmid, config := guestOf(t, s, d.VM)
			delete(config, "digest")
			original := maps.Clone(config)
			switch key, value := tt.option[0], tt.option[1]; key {
			case "":
			case "cpu":
				config["sockets"], config["cores"] = "200", "100" // more than any QEMU machine supports
			default:
				config[key] = value
			}
			s.AddGuest(vmid, config)
			s.SetFaults(tt.faults)
			_, err := p.Start(t.Context(), d.Definition)
			if !fault.Is(err, tt.kind) || !strings.Contains(fmt.Sprint(err), tt.message) || !strings.Contains(fault.HintOf(err), tt.hint) {
				t.Errorf("got %v (%v, hint %q), want %v", err, fault.KindOf(err), fault.HintOf(err), tt.kind)
			}
			if isRunning(t, p, vmid) {
				t.Error("the guest runs")
			}
			if tt.tokens != nil {
				return
			}
			s.AddGuest(vmid, original) // the guest starts after the cause is removed
			s.SetFaults(pve.Faults{})
			if _, err := p.Start(t.Context(), d.Definition); err != nil || !isRunning(t, p, vmid) {
				t.Errorf("Start after the cause is removed: %v", err)
			}
		})
	}
}

// Examine warns if the token may not start guests. This does not prevent a delivery.
func TestExamineWarnsOfMissingStartPermission(t *testing.T) {
	t.Parallel()
	acl := pve.ACL{"/": pve.All(), "/vms": strings.Fields(strings.ReplaceAll(strings.Join(pve.All(), " "), "VM.PowerMgmt", ""))}
	for _, tt := range []struct {
		acl     pve.ACL
		results int
	}{{pve.ACL{"/": pve.All()}, 1}, {acl, 2}} {
		s := startServer(t, pve.Config{Tokens: []pve.Token{{User: "a@pve", ID: "t", Secret: "s", ACL: tt.acl}}})
		results := newPlatform(t, s, Options{}).Examine(t.Context(), platform.Rights)
		if len(results) != tt.results || results[0].Err != nil {
			t.Fatalf("%+v", results)
		}
		if last := results[tt.results-1]; tt.results == 2 && (!last.WarningOnly || !strings.Contains(fault.HintOf(last.Err), "VM.PowerMgmt")) {
			t.Errorf("%+v", last)
		}
	}
}

// Start starts only a complete guest that decamp created for the VM.
func TestStartIgnoresForeignGuests(t *testing.T) {
	t.Parallel()
	s, _, d := newDeliveredGuest(t, pve.Config{})
	vmid, config := guestOf(t, s, d.VM)
	delete(config, "digest")
	changed := func(key, value string) map[string]string {
		c := maps.Clone(config)
		c[key] = value
		return c
	}
	for _, tt := range []struct {
		name    string
		vmid    int
		guest   map[string]string
		kind    fault.Kind
		message string
	}{
		{"no guest", 200, map[string]string{"name": "db01"}, fault.NotFound, "no guest of VM web 01"},
		{"a namesake", 200, map[string]string{"name": "web-01"}, fault.Conflict, "no mark of VM web 01"},
		{"a clone", 200, config, fault.Conflict, "no mark of VM web 01"},
		{"unfinished", vmid, changed("description", guestDescription(d.VM, vmid, guestStatus{plan: earlyPlan})), fault.Conflict, "unfinished"},
		{"of an earlier copy", vmid, changed("description", guestDescription(d.VM, vmid, guestStatus{images: "aa"})), fault.Conflict, "an earlier copy"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := startServer(t, pve.Config{})
			p := newPlatform(t, s, Options{})
			s.AddGuest(tt.vmid, tt.guest)
			_, err := p.Start(t.Context(), d.Definition)
			if !fault.Is(err, tt.kind) || !strings.Contains(fmt.Sprint(err), tt.message) || fault.HintOf(err) == "" {
				t.Errorf("got %v (%v, hint %q), want %v", err, fault.KindOf(err), fault.HintOf(err), tt.kind)
			}
			if n := countStarts(s); n != 0 {
				t.Errorf("%d guests were started", n)
			}
		})
	}
}

// If any one request is lost, or the answer to a request that changes something, the guest runs in the end and Start
// succeeds.
func TestStartSurvivesLostRequests(t *testing.T) {
	t.Parallel()
	s, p, d := newDeliveredGuest(t, pve.Config{})
	vmid, _ := guestOf(t, s, d.VM)
	original := p.api.http.Transport
	for nth, more := 1, true; more; nth++ {
		for _, answered := range []bool{false, true} {
			l := &losingTransport{next: original, nth: nth, carriedOut: answered}
			p.api.http.Transport = l
			_, err := p.Start(t.Context(), d.Definition)
			p.api.http.Transport = original
			if err != nil || !isRunning(t, p, vmid) {
				t.Errorf("%s, carried out: %v: %v", l.lost, answered, err)
			}
			s.SwitchOff(vmid)
			if more = l.lost != ""; !strings.HasPrefix(l.lost, http.MethodPost) {
				break // a lost answer to a read is the same as a lost request
			}
		}
	}
	if n := countStarts(s); n < 9 {
		t.Errorf("got only %d start requests; are any requests lost?", n)
	}
}

// losingTransport loses one request, or its answer. Requests with the same method and path are of one kind, and only
// the first three of a kind are counted. So polls of a task count at most three times.
type losingTransport struct {
	next       http.RoundTripper
	nth        int    // number of the request; 0 to select it by only
	only       string // suffix of the request's path
	carriedOut bool
	lost       string // kind of the lost request

	seen  map[string]int
	kinds int
}

func (l *losingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	path, _, task := strings.Cut(r.URL.Path, "UPID")
	kind := fmt.Sprintf("%s %s%v", r.Method, path, task)
	if l.seen == nil {
		l.seen = map[string]int{}
	}
	if l.seen[kind]++; l.seen[kind] <= 3 {
		l.kinds++
	}
	selected := l.kinds == l.nth
	if l.only != "" {
		selected = strings.HasSuffix(r.URL.Path, l.only)
	}
	if l.lost != "" || !selected {
		return l.next.RoundTrip(r)
	}
	l.lost = kind
	if l.carriedOut {
		res, err := l.next.RoundTrip(r)
		if err != nil {
			return res, err
		}
		res.Body.Close()
	}
	return nil, errors.New("the connection broke")
}

// Start waits for a start task whose answer was lost, and does not start another one.
func TestStartAwaitsRunningTask(t *testing.T) {
	t.Parallel()
	s, p, d := newDeliveredGuest(t, pve.Config{})
	vmid, _ := guestOf(t, s, d.VM)
	hold := make(chan struct{})
	s.SetFaults(pve.Faults{Hold: hold})
	p.api.http.Transport = &losingTransport{next: p.api.http.Transport, only: "/status/start", carriedOut: true}
	held := true
	p.api.wait = func(ctx context.Context, _ time.Duration) error {
		if countStarts(s) == 1 && held {
			close(hold)
			held = false
		}
		return sleep.For(ctx, time.Millisecond)
	}
	if _, err := p.Start(t.Context(), d.Definition); err != nil || !isRunning(t, p, vmid) {
		t.Errorf("%v", err)
	}
	if n := countStarts(s); n != 1 || held {
		t.Errorf("got %d start requests, waited: %v", n, !held)
	}
}

// With HA, the manager of the cluster starts the guest after the task has ended.
func TestStartByTheHAManager(t *testing.T) {
	t.Parallel()
	s, p, d := newDeliveredGuest(t, pve.Config{})
	s.SetFaults(pve.Faults{HA: true})
	vmid, _ := guestOf(t, s, d.VM)
	p.api.wait = func(ctx context.Context, _ time.Duration) error {
		for !isRunning(t, p, vmid) && ctx.Err() == nil { // QEMU may need more time than Start waits
			time.Sleep(time.Millisecond)
		}
		return ctx.Err()
	}
	if _, err := p.Start(t.Context(), d.Definition); err != nil || !isRunning(t, p, vmid) {
		t.Errorf("%v (%s)", err, fault.HintOf(err))
	}
}

func TestCanceledStart(t *testing.T) {
	t.Parallel()
	s, p, d := newDeliveredGuest(t, pve.Config{})
	hold := make(chan struct{})
	defer close(hold)
	s.SetFaults(pve.Faults{Hold: hold})
	ctx, cancel := cancelable(t)
	defer cancel()
	p.api.wait = func(ctx context.Context, d time.Duration) error {
		cancel()
		return sleep.For(ctx, d)
	}
	if _, err := p.Start(ctx, d.Definition); !fault.Is(err, fault.Canceled) {
		t.Errorf("got %v, want canceled", err)
	}
}
