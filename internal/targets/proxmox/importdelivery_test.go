package proxmox

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/lab/pve"
	"github.com/decamp/decamp/internal/sleep"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/test/lane"
)

func TestDeliverCreatesTheGuest(t *testing.T) {
	t.Parallel()
	s := startServer(t, pve.Config{})
	s.AddGuest(100, map[string]string{"name": "older"})
	p, d := newPlatform(t, s, Options{}), newDelivery(t, biosVM())
	toQCOW2(t, &d.Images[1])
	var last, total int64
	d.Progress = func(done, all int64) { last, total = done, all }
	receipt, err := p.Deliver(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	checkDelivered(t, s, d)
	vmid, config := guestOf(t, s, d.VM)
	if receipt.Platform != "proxmox pve1" || receipt.ID != "101" || receipt.Name != "web-01" || vmid != 101 {
		t.Errorf("receipt %+v for guest %d", receipt, vmid)
	}
	if len(receipt.Warnings) > 0 {
		t.Errorf("warnings %v", receipt.Warnings)
	}
	if last != total || total < 1<<20 {
		t.Errorf("progress reports %d of %d bytes", last, total)
	}
	if !strings.Contains(config["description"], "bill to: R&D") || config["net0"] != "vmxnet3=00:50:56:AB:CD:01,bridge=vmbr0" {
		t.Errorf("guest %d is %v", vmid, config)
	}
}

// The disk of a guest may begin with a qcow2 header that names a file of the node as its backing file. It is
// delivered as raw data.
func TestDeliversDiskWithImageSignatureAsRaw(t *testing.T) {
	t.Parallel()
	s := startServer(t, pve.Config{})
	p, d := newPlatform(t, s, Options{}), newDelivery(t, biosVM())
	evil := filepath.Join(t.TempDir(), "evil.qcow2")
	if out, err := exec.Command("qemu-img", "create", "-q", "-f", "qcow2", "-u", "-b", "/etc/passwd", "-F", "raw", evil, "1M").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	head, err := os.ReadFile(evil)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(d.Images[0].Path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(head, 0)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Deliver(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(d.Images[0].Path)
	if err != nil {
		t.Fatal(err)
	}
	_, config := guestOf(t, s, d.VM)
	if got, err := s.Read(t.Context(), config["scsi0"]); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: %d bytes differ from the guest's %d bytes: %v", config["scsi0"], len(got), len(want), err)
	}
}

// toQCOW2 converts an image to qcow2.
func toQCOW2(t *testing.T, img *targets.Image) {
	t.Helper()
	path := strings.TrimSuffix(img.Path, ".raw") + ".qcow2"
	if out, err := exec.Command("qemu-img", "convert", "-f", "raw", "-O", "qcow2", img.Path, path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	img.Path, img.Format = path, targets.QCOW2
}

func TestSecondDeliverChangesNothing(t *testing.T) {
	t.Parallel()
	s := startServer(t, pve.Config{})
	p, d := newPlatform(t, s, Options{}), newDelivery(t, biosVM())
	first, err := p.Deliver(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	before := len(s.Requests())
	second, err := p.Deliver(t.Context(), d)
	if err != nil || second.ID != first.ID {
		t.Errorf("second Deliver: got %+v, %v; want ID %s", second, err, first.ID)
	}
	for _, r := range s.Requests()[before:] {
		if r.Method != http.MethodGet {
			t.Errorf("second Deliver sends %s %s", r.Method, r.Path)
		}
	}
	if err := p.Check(t.Context(), d.VM); err != nil {
		t.Errorf("Check with the delivered guest: %v", err)
	}
}

// Deliver refuses to take a guest of an earlier copy for the new copy.
func TestDeliverRefusesAGuestOfAnEarlierCopy(t *testing.T) {
	t.Parallel()
	s, d := startServer(t, pve.Config{}), newDelivery(t, biosVM())
	p := newPlatform(t, s, Options{})
	if _, err := p.Deliver(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	later := newDelivery(t, d.VM)
	later.Images[1].Root = "bb66"
	if _, err := p.Deliver(t.Context(), later); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
		t.Errorf("got %v (hint %q), want a conflict", err, fault.HintOf(err))
	}
	checkDelivered(t, s, d)
}

// crashingTransport passes a number of requests and fails all later ones, as if the process had crashed.
type crashingTransport struct {
	left atomic.Int64
	next http.RoundTripper
}

func (c *crashingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.left.Add(-1) < 0 {
		return nil, errors.New("crashed")
	}
	return c.next.RoundTrip(r)
}

func crashAfter(p *Platform, requests int64) *crashingTransport {
	c := &crashingTransport{next: p.api.http.Transport}
	c.left.Store(requests)
	p.api.http.Transport = c
	p.api.wait = func(ctx context.Context, _ time.Duration) error {
		if c.left.Load() < 0 {
			return errors.New("crashed")
		}
		return sleep.For(ctx, 2*time.Millisecond)
	}
	return c
}

func TestDeliverResumesAfterCrashAtEveryRequest(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	s := startServer(t, pve.Config{})
	s.AddGuest(100, map[string]string{"name": "older"})
	d := newDelivery(t, biosVM())
	step := int64(1)
	if !lane.Slow {
		step = 8 // TestConformance stops a delivery at each of its calls
	}
	for after := int64(0); ; after += step {
		broken := newPlatform(t, s, Options{})
		crashed := crashAfter(broken, after)
		_, err := broken.Deliver(t.Context(), d)
		if (err == nil) != (crashed.left.Load() >= 0) {
			t.Fatalf("crash after %d requests: %v", after, err)
		}
		p := newPlatform(t, s, Options{})
		if _, err := p.Deliver(t.Context(), d); err != nil {
			t.Fatalf("after a crash at request %d: %v", after, err)
		}
		checkDelivered(t, s, d)
		if err := p.Withdraw(t.Context(), d.VM); err != nil {
			t.Fatal(err)
		}
		checkGone(t, s, 100)
		if t.Failed() || crashed.left.Load() >= 0 {
			t.Logf("%d crashes", after)
			return
		}
	}
}

func TestDeliverRestartsAfterHardwareChange(t *testing.T) {
	t.Parallel()
	s := startServer(t, pve.Config{})
	d := newDelivery(t, biosVM())
	broken := newPlatform(t, s, Options{})
	// 20 requests create the guest, but do not finish it.
	crashAfter(broken, 20)
	if _, err := broken.Deliver(t.Context(), d); err == nil {
		t.Fatal("Deliver succeeds despite the crash")
	}
	if vmid, config := guestOf(t, s, d.VM); parseDescription(config["description"], d.VM, vmid).plan == "" {
		t.Fatalf("guest %d is complete: %v", vmid, config)
	}
	d.Hardware = targets.Virtio
	if _, err := newPlatform(t, s, Options{}).Deliver(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	checkDelivered(t, s, d)
	if _, config := guestOf(t, s, d.VM); config["scsihw"] != "virtio-scsi-single" || !strings.HasPrefix(config["net0"], "virtio=") {
		t.Errorf("the guest is %v", config)
	}
}

func TestFailedDeliverLeavesNoObjects(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		faults  pve.Faults
		kind    fault.Kind
		message string
	}{
		{"create", pve.Faults{Tasks: map[string]string{"qmcreate": "lvcreate failed: Volume group \"pve\" has insufficient free space"}}, fault.Full, "insufficient"},
		{"import", pve.Faults{Tasks: map[string]string{"qmconfig": "copy failed: No space left on device"}}, fault.Full, "No space left"},
		{"sum", pve.Faults{Garble: true}, fault.Corrupt, "checksum mismatch"},
		{"copy", pve.Faults{Tasks: map[string]string{"imgcopy": "import failed: scp: exit code 255"}}, fault.Internal, "scp"},
		{"cut", pve.Faults{Cuts: uploadTries, CutAfter: 500000}, fault.Unreachable, "upload"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := startServer(t, pve.Config{})
			s.SetFaults(tt.faults)
			_, err := newPlatform(t, s, Options{}).Deliver(t.Context(), newDelivery(t, biosVM()))
			if !fault.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.message) {
				t.Errorf("got %v: %v, want %v", fault.KindOf(err), err, tt.kind)
			}
			if made, imported := countPosts(s, "/qemu"), countPosts(s, "/config"); made != 1 || imported > 1 {
				t.Errorf("%d requests for guests and %d for imports", made, imported)
			}
			checkGone(t, s)
		})
	}
}

func TestDeliverSurvivesTemporaryFailures(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		faults pve.Faults
	}{
		{"cut", pve.Faults{Cuts: uploadTries - 1, CutAfter: 500000}},
		{"restart", pve.Faults{Down: 5}},
		{"taken", pve.Faults{Taken: createTries - 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, d := startServer(t, pve.Config{}), newDelivery(t, biosVM())
			s.SetFaults(tt.faults)
			var last int64
			d.Progress = func(done, total int64) {
				if done <= last || done > total {
					t.Errorf("progress reports %d of %d bytes after %d", done, total, last)
				}
				last = done
			}
			if _, err := newPlatform(t, s, Options{}).Deliver(t.Context(), d); err != nil {
				t.Fatal(err)
			}
			checkDelivered(t, s, d)
			if got := len(s.VMIDs()); got != 1+tt.faults.Taken {
				t.Errorf("got guests %v, want %d", s.VMIDs(), 1+tt.faults.Taken)
			}
		})
	}
}

// countPosts counts the POST requests whose path ends with ending.
func countPosts(s *pve.Server, ending string) (n int) {
	for _, r := range s.Requests() {
		if r.Method == http.MethodPost && strings.HasSuffix(r.Path, ending) {
			n++
		}
	}
	return n
}

func TestDeliverFailsIfVMIDsAreTaken(t *testing.T) {
	t.Parallel()
	s, d := startServer(t, pve.Config{}), newDelivery(t, biosVM())
	s.SetFaults(pve.Faults{Taken: createTries})
	if _, err := newPlatform(t, s, Options{}).Deliver(t.Context(), d); !fault.Is(err, fault.Conflict) {
		t.Errorf("got %v, want a conflict", err)
	}
	for _, vmid := range s.VMIDs() {
		if name := s.Guest(vmid)["name"]; name != "somebody-elses" {
			t.Errorf("guest %d (%s) remains", vmid, name)
		}
	}
	if n := len(s.VMIDs()); n != createTries {
		t.Errorf("got %d guests, want the %d foreign ones", n, createTries)
	}
}

// roundTripFunc is a function that implements http.RoundTripper.
type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// isImport reports whether a request imports a disk.
func isImport(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/config")
}

// If an unfinished guest cannot be removed, the error contains this and the cause.
func TestDeliverReportsAFailedRemoval(t *testing.T) {
	t.Parallel()
	s, d := startServer(t, pve.Config{}), newDelivery(t, biosVM())
	s.SetFaults(pve.Faults{Tasks: map[string]string{"qmconfig": "copy failed: No space left on device"}})
	p := newPlatform(t, s, Options{})
	next := p.api.http.Transport
	p.api.http.Transport = roundTripFunc(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/qemu/100") {
			return &http.Response{Status: "403 Permission check failed (no removal)", StatusCode: http.StatusForbidden, Body: http.NoBody, Request: r}, nil
		}
		return next.RoundTrip(r)
	})
	_, err := p.Deliver(t.Context(), d)
	if !fault.Is(err, fault.Full) || !strings.Contains(err.Error(), "No space left") || !strings.Contains(err.Error(), "no removal") {
		t.Errorf("got %v: %v, want both errors", fault.KindOf(err), err)
	}
}

// An import whose request or answer is lost is done exactly once.
func TestImportWithLostResponseRunsOnce(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name       string
		lost       int
		carriedOut bool
		fails      bool
	}{
		{"a request", 1, false, false},
		{"an answer", 1, true, false},
		{"all but one request", diskTries - 1, false, false},
		{"too many requests", diskTries, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, d := startServer(t, pve.Config{}), newDelivery(t, biosVM())
			p := newPlatform(t, s, Options{})
			next, left := p.api.http.Transport, tt.lost
			p.api.http.Transport = roundTripFunc(func(r *http.Request) (*http.Response, error) {
				if !isImport(r) || left == 0 {
					return next.RoundTrip(r)
				}
				if left--; tt.carriedOut {
					res, err := next.RoundTrip(r)
					if err != nil {
						return res, err
					}
					res.Body.Close()
				}
				return nil, errors.New("the connection broke")
			})
			_, err := p.Deliver(t.Context(), d)
			if tt.fails {
				if !fault.Is(err, fault.Unreachable) {
					t.Errorf("%v: %v", fault.KindOf(err), err)
				}
				checkGone(t, s)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			checkDelivered(t, s, d)
			if n := countPosts(s, "/config"); n != len(d.Images) {
				t.Errorf("%d import requests for %d disks", n, len(d.Images))
			}
		})
	}
}

// Deliver waits for an import that a crashed delivery started, and does not start another one.
func TestDeliverAwaitsTheImportOfACrash(t *testing.T) {
	t.Parallel()
	s, d := startServer(t, pve.Config{}), newDelivery(t, biosVM())
	broken, hold, dead := newPlatform(t, s, Options{}), make(chan struct{}), false
	next := broken.api.http.Transport
	broken.api.http.Transport = roundTripFunc(func(r *http.Request) (*http.Response, error) {
		if dead {
			return nil, errors.New("crashed")
		}
		if dead = isImport(r); dead {
			s.SetFaults(pve.Faults{Hold: hold})
		}
		return next.RoundTrip(r)
	})
	broken.api.wait = func(ctx context.Context, _ time.Duration) error {
		if dead {
			return errors.New("crashed")
		}
		return sleep.For(ctx, time.Millisecond)
	}
	if _, err := broken.Deliver(t.Context(), d); err == nil {
		t.Error("Deliver succeeds despite the crash")
	}
	release := sync.OnceFunc(func() { close(hold) })
	defer release()
	p := newPlatform(t, s, Options{})
	p.api.wait = func(ctx context.Context, _ time.Duration) error {
		release()
		return sleep.For(ctx, time.Millisecond)
	}
	if _, err := p.Deliver(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	checkDelivered(t, s, d)
	if n := countPosts(s, "/config"); n != len(d.Images) {
		t.Errorf("%d import requests for %d disks", n, len(d.Images))
	}
}

func TestDeliverReportsFullStorage(t *testing.T) {
	t.Parallel()
	s := startServer(t, pve.Config{Storages: []pve.Storage{
		{ID: "local", Type: "dir", Content: []string{"import"}, Size: 1 << 30},
		{ID: "local-lvm", Type: "lvmthin", Content: []string{"images"}, Size: 1 << 19},
	}})
	p, d := newPlatform(t, s, Options{}), newDelivery(t, biosVM())
	if err := p.Check(t.Context(), d.VM); !fault.Is(err, fault.Full) || fault.HintOf(err) == "" {
		t.Errorf("Check: %v", err)
	}
	if _, err := p.Deliver(t.Context(), d); !fault.Is(err, fault.Full) {
		t.Errorf("Deliver: %v", err)
	}
	checkGone(t, s)
}

func TestCanceledDeliverLeavesNoGuest(t *testing.T) {
	t.Parallel()
	s, d := startServer(t, pve.Config{}), newDelivery(t, biosVM())
	ctx, cancel := cancelable(t)
	d.Progress = func(done, total int64) {
		if done > total/2 {
			cancel()
		}
	}
	if _, err := newPlatform(t, s, Options{}).Deliver(ctx, d); !fault.Is(err, fault.Canceled) {
		t.Errorf("got %v, want canceled", err)
	}
	checkGone(t, s)
}

// holdingTransport holds the tasks of the node from the first import on.
type holdingTransport struct {
	http.RoundTripper
	server *pve.Server
	hold   chan struct{}
	isHeld atomic.Bool
}

func (h *holdingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/config") && h.isHeld.CompareAndSwap(false, true) {
		h.server.SetFaults(pve.Faults{Hold: h.hold})
	}
	return h.RoundTripper.RoundTrip(r)
}

// The import task that runs when a delivery is canceled is stopped.
func TestDeliverCanceledStopsTheTask(t *testing.T) {
	t.Parallel()
	s, d := startServer(t, pve.Config{}), newDelivery(t, biosVM())
	p := newPlatform(t, s, Options{})
	h := &holdingTransport{RoundTripper: p.api.http.Transport, server: s, hold: make(chan struct{})}
	release := sync.OnceFunc(func() { close(h.hold) })
	defer release()
	p.api.http.Transport = h
	ctx, cancel := cancelable(t)
	defer cancel()
	waits := 0
	p.api.wait = func(ctx context.Context, _ time.Duration) error {
		if waits++; waits == 1000 { // the task was not stopped
			release()
		}
		if h.isHeld.Load() {
			s.SetFaults(pve.Faults{}) // only for later tasks
			cancel()
		}
		return sleep.For(ctx, time.Millisecond)
	}
	if _, err := p.Deliver(ctx, d); !fault.Is(err, fault.Canceled) {
		t.Errorf("Deliver canceled during a task: %v", err)
	}
	if !slices.ContainsFunc(s.Requests(), func(r pve.Request) bool {
		return r.Method == http.MethodDelete && strings.Contains(r.Path, "/tasks/")
	}) {
		t.Error("the task was not stopped")
	}
	checkGone(t, s)
}

func TestUploadsAreDeletedOneByOne(t *testing.T) {
	t.Parallel()
	s, d := startServer(t, pve.Config{}), newDelivery(t, biosVM())
	if _, err := newPlatform(t, s, Options{}).Deliver(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, r := range s.Requests() {
		switch {
		case strings.HasSuffix(r.Path, "/upload"):
			order = append(order, "upload")
		case strings.HasSuffix(r.Path, "/config") && r.Method == http.MethodPost:
			order = append(order, "import")
		case strings.Contains(r.Path, "/content/") && r.Method == http.MethodDelete:
			order = append(order, "delete")
		}
	}
	if want := []string{"upload", "import", "delete", "upload", "import", "delete"}; !slices.Equal(order, want) {
		t.Errorf("got %v, want %v", order, want)
	}
}
