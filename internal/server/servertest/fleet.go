// Package servertest has a fleet for tests of a server: a fleet database with plans whose VMs the test
// advances. No data is copied.
package servertest

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/bottleneck"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/lab/socket"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/server"
)

// Wave returns the fleet database of this machine, with a plan "wave" of queued VMs and without workers.
func Wave(t testing.TB, limitText func(string, int64) string, vms ...fleetdb.VM) server.Audited {
	t.Helper()
	r, err := fleetdb.Open(t.Context(), fleetdb.Config{URL: "sqlite:" + filepath.Join(t.TempDir(), "fleet.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	if _, err := r.Plans.Add(t.Context(), fleetdb.Plan{Name: "wave", Text: "version: 1\n"}); err != nil {
		t.Fatal(err)
	}
	for i := range vms {
		vms[i].Plan, vms[i].Seq, vms[i].State, vms[i].Requested = "wave", int64(i+1), fleetdb.Queued, fleetdb.First
	}
	if err := r.VMs.Add(t.Context(), vms); err != nil {
		t.Fatal(err)
	}
	return server.Audited{Local: server.Local{Database: r}, User: "tester", LimitText: limitText}
}

// VM returns a VM of Wave, whose run is its name with -1f.
func VM(ref, name string) fleetdb.VM {
	return fleetdb.VM{Key: fleetdb.Key{VM: ref}, Name: name, Runs: []string{name + "-1f"}, To: []string{"dir:/srv"}}
}

// Worker is the name of the one worker.
const Worker = "w1"

// leaseTime is longer than any test: leases are not renewed.
const leaseTime = time.Hour

// Fleet is a fleet database with a server.
type Fleet struct {
	Database    *fleetdb.Database      // open fleet database
	State       string                 // state directory of the server
	URL         string                 // https://127.0.0.1:…
	Addr        string                 // host:port of the server; kept when it is started again
	Fingerprint string                 // fingerprint of the server's certificate
	Tokens      map[server.Role]string // secrets of the tokens by role

	port          *socket.ReservedPort  // port of the server, also while it is stopped
	ahead         atomic.Int64          // nanoseconds that the clock of the database is ahead, from Advance
	read          map[fleetdb.Key]int64 // bytes of each VM in the last report
	sched, worker fleetdb.Lease         // leases of the scheduler and the worker
	stop          context.CancelFunc    // ends Server.Run
	done          chan error            // result of Server.Run
}

// New creates a fleet below dir and starts its server. change may change the configuration of the
// server; it may be nil.
func New(ctx context.Context, dir string, change func(*server.Config)) (f *Fleet, err error) {
	f = &Fleet{State: filepath.Join(dir, "state"), Tokens: map[server.Role]string{}, read: map[fleetdb.Key]int64{}}
	if f.port, err = socket.ReservePort("127.0.0.1:0"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.port.Close())
		}
	}()
	if f.Database, err = fleetdb.Open(ctx, fleetdb.Config{URL: "sqlite:" + filepath.Join(dir, "fleet.db"), Now: f.now}); err != nil {
		return nil, err
	}
	if err := errors.Join(f.acquireLeases(ctx), f.addTokens(), f.nameCredentials()); err != nil {
		return nil, errors.Join(err, f.Database.Close())
	}
	if err := f.Serve(ctx, change); err != nil {
		return nil, errors.Join(err, f.Database.Close())
	}
	return f, nil
}

// Start is New for a test. The fleet is closed when the test ends.
func Start(t testing.TB, change func(*server.Config)) *Fleet {
	t.Helper()
	f, err := New(context.Background(), t.TempDir(), change)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Errorf("server: %v", err)
		}
	})
	return f
}

// now returns the time by the clock of the database.
func (f *Fleet) now() time.Time { return time.Now().Add(time.Duration(f.ahead.Load())) }

// Advance advances the clock of the database.
func (f *Fleet) Advance(d time.Duration) { f.ahead.Add(int64(d)) }

// acquireLeases acquires the leases of the scheduler and of the worker.
func (f *Fleet) acquireLeases(ctx context.Context) (err error) {
	if f.sched, err = f.Database.Leases.Acquire(ctx, "scheduler", "test", leaseTime); err != nil {
		return err
	}
	w := fleetdb.Worker{Name: Worker, Version: "test", Offers: map[string]string{"/srv/vm": "storage-1"}, VMs: 1000}
	f.worker, err = f.Database.Workers.Join(ctx, w, leaseTime)
	return err
}

// addTokens adds a token for each role.
func (f *Fleet) addTokens() error {
	tokens := server.NewTokens(f.State)
	for _, role := range []server.Role{server.View, server.Operate, server.Admin} {
		secret, err := tokens.Add("test-"+string(role), role, 0)
		if err != nil {
			return err
		}
		f.Tokens[role] = secret
	}
	return nil
}

// access is an access file with the names that PlanText uses, and a credential for administrators only.
const access = `version: 1
credentials:
  esx1: {url: esxi://root@esx1.example.com, fingerprint: "` + fingerprint + `", passwordFile: /etc/decamp/esx1, roles: [operate]}
  esx2: {url: esxi://root@esx2.example.com, fingerprint: "` + fingerprint + `", passwordFile: /etc/decamp/esx2}
places:
  rack1: {to: "proxmox:https://pve1:8006/pve1?token=/etc/decamp/pve1", roles: [operate]}
`

// fingerprint is the certificate fingerprint of the hosts in access.
const fingerprint = "ABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABAB"

// nameCredentials writes the server's access file.
func (f *Fleet) nameCredentials() error {
	return os.WriteFile(filepath.Join(f.State, planfile.AccessFile), []byte(access), 0o600)
}

// Serve starts the server; Stop ends it. A server that is started again has the same address.
func (f *Fleet) Serve(ctx context.Context, change func(*server.Config)) error {
	ready := make(chan struct{})
	c := server.Config{Database: f.Database, State: f.State, Version: "test", Listen: f.port.Addr(), Ready: func(addr net.Addr, fingerprint string) {
		f.Addr, f.Fingerprint = addr.String(), fingerprint
		close(ready)
	}}
	if change != nil {
		change(&c)
	}
	s, err := server.New(c)
	if err != nil {
		return err
	}
	ctx, f.stop = context.WithCancel(ctx)
	f.done = make(chan error, 1)
	go func() { f.done <- s.Run(ctx) }()
	select {
	case <-ready:
	case err := <-f.done:
		return fmt.Errorf("server ended: %w", err)
	}
	f.URL = "https://" + f.Addr
	if c.Plain {
		f.URL = "http://" + f.Addr
	}
	return nil
}

// Stop ends the server. The fleet database stays open.
func (f *Fleet) Stop() error {
	f.stop()
	err := <-f.done
	socket.WaitClosed(f.port.Addr())
	return err
}

// Close ends the server and closes the database.
func (f *Fleet) Close() error { return errors.Join(f.Stop(), f.Database.Close(), f.port.Close()) }

// PlanText returns the text of a plan file.
func PlanText(name string) string {
	return "version: 1\nname: " + name + "\nsource:\n  url: esxi://root@esx1.example.com\n  credentials: {name: esx1}\ndefaults:\n  to: [dir:/srv/vm]\nselect: poweredOn\n"
}

// Key returns the key of the i-th VM of a plan, from 1.
func Key(plan string, i int) fleetdb.Key { return fleetdb.Key{Plan: plan, VM: fmt.Sprintf("vm-%d", i)} }

// Size is the size of each VM's disks, in bytes.
const Size = 100 << 30

// Plan adds a plan with a complete list of warm VMs, which are queued.
func (f *Fleet) Plan(ctx context.Context, name string, vms int) error {
	if _, err := f.Database.Plans.Add(ctx, fleetdb.Plan{Name: name, Text: PlanText(name), By: "test"}); err != nil {
		return err
	}
	all := make([]fleetdb.VM, vms)
	for i := range all {
		all[i] = fleetdb.VM{
			Key: Key(name, i+1), Name: fmt.Sprintf("%s guest %d", name, i+1), Source: "esx1.example.com:443", Host: fmt.Sprintf("esx%d", i%8+1),
			Datastore: "ssd1", To: []string{"dir:/srv/vm"}, Runs: []string{fmt.Sprintf("%s-%d", name, i+1)}, Warm: true, Disks: 1, Bytes: Size,
			Spec: json.RawMessage(`{}`),
		}
	}
	if err := f.Database.VMs.Add(ctx, all); err != nil {
		return err
	}
	return f.Database.Plans.SetState(ctx, name, fleetdb.PlanRunning, nil)
}

// Run starts the VMs of a plan from the first-th to the last-th on the worker, and returns their
// claims.
func (f *Fleet) Run(ctx context.Context, plan string, first, last int) ([]fleetdb.Claim, error) {
	var given []fleetdb.Granted
	for i := first; i <= last; i++ {
		given = append(given, fleetdb.Granted{Key: Key(plan, i), Worker: Worker, Expected: time.Hour})
	}
	granted, err := f.Database.Scheduling.Grant(ctx, f.sched, given)
	if err != nil {
		return nil, err
	}
	var claims []fleetdb.Claim
	for _, vm := range granted {
		c := fleetdb.Claim{Key: vm.Key, Worker: Worker, Epoch: vm.Epoch}
		if err := errors.Join(f.Database.Claims.Begin(ctx, c, []string{"storage-1"}), f.Database.Claims.SetStep(ctx, c, "copy", "")); err != nil {
			return nil, err
		}
		claims = append(claims, c)
	}
	return claims, nil
}

// Report reports the progress of VMs: part of Size, in percent. Half of it are zeros.
func (f *Fleet) Report(ctx context.Context, claims []fleetdb.Claim, part int64) error {
	var all []fleetdb.Progress
	read := map[string]int64{}
	for _, c := range claims {
		now := part * Size / 200
		read[c.Plan] += now - f.read[c.Key]
		f.read[c.Key] = now
		all = append(all, fleetdb.Progress{Key: c.Key, Total: Size, Done: part * Size / 100, Read: now, Rate: 100e6, Busy: bottleneck.Busy{Source: 1, Target: 0.5}})
	}
	return f.Database.Progress.Report(ctx, f.worker, all, read)
}

// SetSchedulerState writes the state of the scheduler.
func (f *Fleet) SetSchedulerState(ctx context.Context, b server.SchedulerState) error {
	text, err := json.Marshal(b)
	if err != nil {
		return err
	}
	return f.Database.SchedulerState.Write(ctx, f.sched, text)
}

// Client returns a client that accepts only the server's certificate.
func (f *Fleet) Client() *http.Client {
	conf := &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(state tls.ConnectionState) error {
		if got := server.Fingerprint(state.PeerCertificates[0].Raw); got != f.Fingerprint {
			return fmt.Errorf("certificate %s, want %s", got, f.Fingerprint)
		}
		return nil
	}}
	return &http.Client{
		Transport:     &http.Transport{TLSClientConfig: conf, ForceAttemptHTTP2: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
