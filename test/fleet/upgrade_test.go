package fleet

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/lab/postgres"
)

// recordEnv names a release whose fixture is recorded before all fixtures are read: see testdata/README.md.
const recordEnv = "FLEET_RECORD"

const (
	recordedAt   = "/srv"           // folder of all files of a fixture: plans and run identifiers contain it
	recordedHost = "127.0.0.1:4443" // address of the source, which they contain as well
)

// Fixtures are what users of a release have: two state directories, published VMs, interrupted runs, and a
// PostgreSQL database, each left by a kill -9. Today's decamp shows and continues all of it.
func TestStateOfEveryReleaseContinues(t *testing.T) {
	t.Parallel()
	if !inside(t) {
		return
	}
	if release := os.Getenv(recordEnv); release != "" {
		t.Run("record", func(t *testing.T) { recordFixture(t, release) })
	}
	fixtures, err := filepath.Glob("testdata/v*")
	must(t, err)
	if len(fixtures) == 0 {
		t.Fatal("testdata has no fixture")
	}
	for _, fixture := range fixtures {
		t.Run(filepath.Base(fixture), func(t *testing.T) {
			r := newRecorded(t)
			tool(t, "tar", "-C", recordedAt, "-xzf", filepath.Join(fixture, "srv.tar.gz"))
			r.source()
			t.Run("runs", r.runsContinue)
			t.Run("plans", r.plansContinue)
			t.Run("workers", r.workersContinue)
		})
	}
}

// recorded is a rig whose paths and addresses are those of a fixture.
type recorded struct{ *rig }

// newRecorded mounts an empty folder at recordedAt.
func newRecorded(t *testing.T) *recorded {
	t.Helper()
	must(t, unix.Mount(t.TempDir(), recordedAt, "", unix.MS_BIND, ""))
	t.Cleanup(func() { must(t, unix.Unmount(recordedAt, unix.MNT_DETACH)) })
	return &recorded{rig: &rig{t: t, dir: recordedAt, url: "esxi://root@" + recordedHost}}
}

// source starts the emulated host, with the certificate of the fixture.
func (r *recorded) source() {
	r.t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(r.dir, "lab.pem"), filepath.Join(r.dir, "lab.pem"))
	must(r.t, err)
	cfg := lab.Config{Addr: recordedHost, Password: secret, Certificate: &pair, Locks: lab.LockActive}
	for i, name := range []string{"web01", "web02", "warm01", "vm01", "vm02", "vm03", "vm04", "vm05", "vm06", "vm07", "vm08", "vm09", "vm10", "vm11"} {
		capacity := lab.Bytes(2 << 20)
		if slices.Contains([]string{"web02", "warm01", "vm03", "vm05", "vm06", "vm08", "vm11"}, name) {
			capacity = 6 << 20 // killed amid its copy
		}
		cfg.VMs = append(cfg.VMs, lab.VM{Name: name, PoweredOn: name == "warm01", Disks: []lab.Disk{{Capacity: capacity, Fill: 4, Seed: uint64(i + 1)}}})
	}
	cfg.VMs = append(cfg.VMs, lab.VM{Name: "raw01", Disks: []lab.Disk{{Capacity: 4 << 20, RDM: "physicalMode"}}})
	r.lab, err = lab.Start(context.Background(), cfg)
	must(r.t, err)
	r.t.Cleanup(func() { must(r.t, r.lab.Close()) })
}

// migrate returns the command that begins the run of a VM, or continues it.
func (r *recorded) migrate(vm string, more ...string) []string {
	return append([]string{"migrate", r.url, vm, "--to", "dir:" + r.vms(), "--password-file", filepath.Join(r.dir, "password"), "--fingerprint", r.lab.Fingerprint()}, more...)
}

// warm are the further flags of the warm run.
var warm = []string{"--warm", "--interval", "1s"}

// recordFixture records what recorded.*Continue continue.
func recordFixture(t *testing.T, release string) {
	r := newRecorded(t)
	must(t, errors.Join(os.Mkdir(r.vms(), 0o700), os.Mkdir(r.state(), 0o700), os.WriteFile(filepath.Join(r.dir, "lab.pem"), newPEM(t), 0o600)))
	r.write("password", secret+"\n")
	r.source()
	r.bind("")
	r.recordPlans()
	r.recordRuns() // last: other commands would revert the snapshot
	r.recordWorkers()
	into := filepath.Join("testdata", release)
	must(t, os.MkdirAll(into, 0o755))
	tool(t, "tar", "-C", recordedAt, "--sparse", "--sort=name", "--owner=0", "--group=0", "--numeric-owner", "-czf", filepath.Join(into, "srv.tar.gz"), ".")
}

// newPEM returns a certificate that does not expire, with its key.
func newPEM(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Date(2199, 1, 1, 0, 0, 0, 0, time.UTC)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	return append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})...)
}

// stall lets the copies of VMs wait after their first bytes, until the end of f, which kills them.
func (r *recorded) stall(f func(), vms ...string) {
	r.t.Helper()
	for _, vm := range vms {
		_, err := r.lab.Faults().Add(lab.Fault{Kind: lab.FaultStall, Path: vm + "-flat.vmdk", Method: "GET", Skip: 1, At: 64 << 10})
		must(r.t, err)
	}
	f()
	r.lab.Faults().Clear()
	r.lab.Faults().Release()
}

// reaches waits until the run of a VM has begun a step, and the source has sent data in it.
func (r *recorded) reaches(vm, step string) {
	r.t.Helper()
	sent := int64(-1)
	eventually(r.t, vm+" reaches "+step, func() bool {
		runs, err := journal.NewStore(r.state()).Runs()
		must(r.t, err)
		for _, run := range runs {
			if run.Plan.VM.Name == vm && run.Step == step && sent < 0 {
				sent = r.lab.Stats().BodyBytes
			}
		}
		return sent >= 0 && r.lab.Stats().BodyBytes > sent
	})
}

// recordRuns leaves a published VM, a run that was killed amid its copy, and one whose snapshot is not reverted.
func (r *recorded) recordRuns() {
	r.run(r.migrate("web01")...).ends(0)
	r.stall(func() {
		p := r.begin(r.migrate("web02")...)
		r.reaches("web02", "copy")
		p.kill()
	}, "web02")
	r.stall(func() {
		p := r.begin(r.migrate("warm01", warm...)...)
		r.reaches("warm01", "round")
		p.kill()
	}, "warm01")
	if records, err := filepath.Glob(filepath.Join(r.state(), "leftovers", "*")); err != nil || len(records) != 1 {
		r.t.Fatalf("the records of changes are %v, %v", records, err)
	}
}

// runsContinue checks and continues what recordRuns left.
func (r *recorded) runsContinue(t *testing.T) {
	outer := r.t
	r.t = t
	defer func() { r.t = outer }()
	r.run("runs").ends(0).says("web01-", "web02-", "warm01-", "done", "open", "snapshot")
	r.run("verify", filepath.Join(r.vms(), "web01")).ends(0)
	r.published(r.vms(), "web01", "raw", 1)
	r.run(r.migrate("web02")...).ends(0)
	r.published(r.vms(), "web02", "raw", 1)
	p := r.begin(r.migrate("warm01", append(warm, "--json")...)...)
	p.says(p.out, `"step":"wait"`)
	id, err := filepath.Glob(filepath.Join(r.state(), "runs", "warm01-*"))
	must(t, err)
	r.run("cutover", filepath.Base(id[0])).ends(0)
	p.ends(0)
	r.published(r.vms(), "warm01", "raw", 1)
	r.asFound(inventory.PoweredOff, "warm01")
	out := r.run("runs").ends(0).stdout
	if strings.Contains(out, "snapshot") {
		t.Errorf("a change is not reverted: %s", out)
	}
	for line := range strings.Lines(out) {
		if (strings.HasPrefix(line, "web") || strings.HasPrefix(line, "warm")) && !strings.Contains(line, " done ") {
			t.Errorf("a run is not done: %s", line)
		}
	}
}

// recordPlans leaves plans that have ended, wait for their hook, are paused, and run, in the state directory, and a
// token.
func (r *recorded) recordPlans() {
	to := "defaults: {to: [dir:" + r.vms() + "]}\n"
	r.write("ci.token", r.run("token", "add", "ci", "--role", "operate").ends(0).stdout)
	r.run("plan", "run", r.plan("ended", to+"vms: [{vm: vm01}]\n")).ends(0)
	hook := r.writeHook("#!/bin/sh\nexit 1\n")
	p := r.begin("plan", "run", r.plan("listing", to+"hooks: {pre: {command: ["+hook+"]}}\nvms: [{vm: vm10}]\n"))
	r.until("listing", "its hook runs", func(v view) bool { return v.plan.State == fleetdb.PlanListing })
	p.kill()
	r.stall(func() {
		p := r.begin("plan", "run", r.named("paused", to+"vms: [{vm: vm05}, {vm: vm11}]\n"), "--vms", "1")
		r.until("paused", "one is copied", func(v view) bool { return v.copied() == 1 && v.count(fleetdb.Queued) == 1 })
		r.run("pause", "paused").ends(0) // one continues, one waits
		p.kill()
	}, "vm05", "vm11")
	file := r.plan("running", to+"vms: [{vm: vm02}, {vm: vm03}, {vm: vm04}, {vm: raw01}, {vm: vm06}]\n")
	r.stall(func() {
		p := r.begin("plan", "run", file)
		r.until("running", "all are listed", func(v view) bool { return len(v.vms) == 5 })
		r.until("running", "two are done, and one is copied", func(v view) bool { return v.count(fleetdb.Done) == 2 && v.copied() > 0 })
		p.kill()
	}, "vm03", "vm06")
	r.run("cancel", "running/vm06").ends(0)
	must(r.t, r.seen.Close())
	r.seen = nil
}

// copied is the number of VMs that are being copied.
func (v view) copied() (n int) {
	for _, vm := range v.vms {
		if vm.State == fleetdb.Running && vm.Step == "copy" {
			n++
		}
	}
	return n
}

// plansContinue shows what recordPlans left, and continues it by a server with the recorded certificate and token.
func (r *recorded) plansContinue(t *testing.T) {
	outer := r.t
	r.t = t
	defer func() { r.t, r.seen = outer, nil }()
	r.run("status", "ended").ends(0).says("1 done")
	r.run("status", "listing").ends(0).says("listing")
	r.writeHook("#!/bin/sh\nexit 0\n")
	r.run("status", "paused").ends(0).says("Plan paused, paused: 2 VMs")
	r.run("status", "running").ends(0).says("5 VMs")
	s := r.serve("127.0.0.1:8470", "--offer", r.vms(), "--allow-hooks")
	s.asks("resume", "paused").ends(0)
	s.asks("retry", "listing").ends(0)
	r.run("status", "running", "--server", "https://"+s.addr, "--token-file", filepath.Join(r.dir, "ci.token"), "--server-fingerprint", s.fingerprint).ends(0)
	v := r.until("running", "ended", func(v view) bool { return v.plan.State == fleetdb.PlanEnded })
	if v.count(fleetdb.Done) != 3 || v.vms["vm06"].State != fleetdb.Canceled || v.vms["raw01"].State != fleetdb.Failed {
		t.Errorf("it ended as %s", v)
	}
	r.until("listing", "ended", func(v view) bool { return v.plan.State == fleetdb.PlanEnded && v.count(fleetdb.Done) == 1 })
	r.until("paused", "ended", func(v view) bool { return v.plan.State == fleetdb.PlanEnded && v.count(fleetdb.Done) == 2 })
	r.allPublished(r.vms(), "vm01", "vm02", "vm03", "vm04", "vm05", "vm10", "vm11")
	r.publishedOnce(v.done(), r.state())
	if code := s.stops(); code != 0 {
		t.Errorf("the server ended with %d", code)
	}
}

// done is v with only its VMs that are done.
func (v view) done() view {
	done := view{plan: v.plan, vms: map[string]fleetdb.VM{}}
	for name, vm := range v.vms {
		if vm.State == fleetdb.Done {
			done.vms[name] = vm
		}
	}
	return done
}

// recordWorkers leaves a database on PostgreSQL, with a plan whose worker was killed.
func (r *recorded) recordWorkers() {
	db := postgres.Start(r.t)
	r.db = db.URL()
	folder := filepath.Join(r.dir, "shared")
	must(r.t, os.Mkdir(folder, 0o700))
	a := r.worker("a", folder)
	r.stall(func() {
		r.submits(r.plan("shared", "defaults: {to: [dir:"+folder+"]}\nvms: [{vm: vm07}, {vm: vm08}, {vm: vm09}]\n"))
		r.until("shared", "two are done, and one is copied", func(v view) bool { return v.count(fleetdb.Done) == 2 && v.copied() > 0 })
		a.kill()
	}, "vm08")
	must(r.t, errors.Join(os.Remove(a.log), r.seen.Close()))
	r.seen = nil
	out, err := exec.Command("pg_dump", "--no-owner", "-d", db.URL()).Output()
	must(r.t, err)
	r.write("postgres.sql", string(out))
}

// workersContinue restores the database that recordWorkers left, and starts its worker again.
func (r *recorded) workersContinue(t *testing.T) {
	outer := r.t
	r.t = t
	defer func() { r.t, r.seen = outer, nil }()
	db := postgres.Start(t)
	tool(t, "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", db.URL(), "-f", filepath.Join(r.dir, "postgres.sql"))
	r.db = db.URL()
	r.run("status", "shared").ends(0).says("3 VMs")
	folder := filepath.Join(r.dir, "shared")
	a := r.worker("a", folder)
	v := r.until("shared", "ended", func(v view) bool { return v.plan.State == fleetdb.PlanEnded })
	if v.count(fleetdb.Done) != 3 {
		t.Errorf("it ended as %s", v)
	}
	r.allPublished(folder, "vm07", "vm08", "vm09")
	r.publishedOnce(v, a.state)
	if code := a.stops(); code != 0 {
		t.Errorf("the worker ended with %d", code)
	}
}
