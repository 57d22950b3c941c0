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

// recordEnv is the environment variable that names a release. Its fixture is recorded before all fixtures are read (see
// testdata/README.md).
const recordEnv = "FLEET_RECORD"

const (
	recordedAt   = "/srv"           // folder of all files of a fixture, which plans and run IDs contain
	recordedHost = "127.0.0.1:4443" // address of the source, which they contain as well
)

// A fixture contains the files of a release after a kill -9: two state directories, published VMs, interrupted
// runs, and a PostgreSQL database. The current decamp shows and continues all of them.
func TestStateOfEveryReleaseContinues(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
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
			runTool(t, "tar", "-C", recordedAt, "-xzf", filepath.Join(fixture, "srv.tar.gz"))
			r.startSource()
			t.Run("runs", r.runsContinue)
			t.Run("plans", r.plansContinue)
			t.Run("workers", r.workersContinue)
		})
	}
}

// A recorded is a testEnv with the paths and addresses of a fixture.
type recorded struct{ *testEnv }

// newRecorded mounts an empty folder at recordedAt.
func newRecorded(t *testing.T) *recorded {
	t.Helper()
	must(t, unix.Mount(t.TempDir(), recordedAt, "", unix.MS_BIND, ""))
	t.Cleanup(func() { must(t, unix.Unmount(recordedAt, unix.MNT_DETACH)) })
	return &recorded{testEnv: &testEnv{t: t, dir: recordedAt, url: "esxi://root@" + recordedHost}}
}

// startSource starts the emulated host with the certificate of the fixture.
func (r *recorded) startSource() {
	r.t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(r.dir, "lab.pem"), filepath.Join(r.dir, "lab.pem"))
	must(r.t, err)
	cfg := lab.Config{Addr: recordedHost, Password: secret, Certificate: &pair, Locks: lab.LockActive}
	for i, name := range []string{"web01", "web02", "warm01", "vm01", "vm02", "vm03", "vm04", "vm05", "vm06", "vm07", "vm08", "vm09", "vm10", "vm11"} {
		capacity := lab.Bytes(2 << 20)
		if slices.Contains([]string{"web02", "warm01", "vm03", "vm05", "vm06", "vm08", "vm11"}, name) {
			capacity = 6 << 20 // killed during its copy
		}
		cfg.VMs = append(cfg.VMs, lab.VM{Name: name, PoweredOn: name == "warm01", Disks: []lab.Disk{{Capacity: capacity, Fill: 4, Seed: uint64(i + 1)}}})
	}
	cfg.VMs = append(cfg.VMs, lab.VM{Name: "raw01", Disks: []lab.Disk{{Capacity: 4 << 20, RDM: "physicalMode"}}})
	r.lab, err = lab.Start(context.Background(), cfg)
	must(r.t, err)
	r.t.Cleanup(func() { must(r.t, r.lab.Close()) })
}

// migrateArgs returns the arguments of the command that begins or continues the run of a VM.
func (r *recorded) migrateArgs(vm string, more ...string) []string {
	return append([]string{"migrate", r.url, vm, "--to", "dir:" + r.vmFolder(), "--password-file", filepath.Join(r.dir, "password"), "--fingerprint", r.lab.Fingerprint()}, more...)
}

// warmFlags are further flags of the warm run.
var warmFlags = []string{"--warm", "--interval", "1s"}

// recordFixture records the fixture of a release.
func recordFixture(t *testing.T, release string) {
	r := newRecorded(t)
	must(t, errors.Join(os.Mkdir(r.vmFolder(), 0o700), os.Mkdir(r.stateDir(), 0o700), os.WriteFile(filepath.Join(r.dir, "lab.pem"), newPEM(t), 0o600)))
	r.writeFile("password", secret+"\n")
	r.startSource()
	r.writeAccess("")
	r.recordPlans()
	r.recordRuns() // the last of the three, because other commands would revert the snapshot
	r.recordWorkers()
	into := filepath.Join("testdata", release)
	must(t, os.MkdirAll(into, 0o755))
	runTool(t, "tar", "-C", recordedAt, "--sparse", "--sort=name", "--owner=0", "--group=0", "--numeric-owner", "-czf", filepath.Join(into, "srv.tar.gz"), ".")
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

// stall calls f, which kills the process. The copies of the VMs stop after their first bytes until f returns.
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

// waitForStep waits until the run of a VM has begun a step, and the source has sent data in it.
func (r *recorded) waitForStep(vm, step string) {
	r.t.Helper()
	sent := int64(-1)
	eventually(r.t, vm+" reaches "+step, func() bool {
		runs, err := journal.NewStore(r.stateDir()).Runs()
		must(r.t, err)
		for _, run := range runs {
			if run.Plan.VM.Name == vm && run.Step == step && sent < 0 {
				sent = r.lab.Stats().BodyBytes
			}
		}
		return sent >= 0 && r.lab.Stats().BodyBytes > sent
	})
}

// recordRuns leaves a published VM, a run that was killed during its copy, and one whose snapshot is not reverted.
func (r *recorded) recordRuns() {
	r.run(r.migrateArgs("web01")...).wantExit(0)
	r.stall(func() {
		p := r.startCommand(r.migrateArgs("web02")...)
		r.waitForStep("web02", "copy")
		p.kill()
	}, "web02")
	r.stall(func() {
		p := r.startCommand(r.migrateArgs("warm01", warmFlags...)...)
		r.waitForStep("warm01", "round")
		p.kill()
	}, "warm01")
	if records, err := filepath.Glob(filepath.Join(r.stateDir(), "leftovers", "*")); err != nil || len(records) != 1 {
		r.t.Fatalf("records of changes are %v, %v; want one", records, err)
	}
}

// runsContinue checks and continues the runs of recordRuns.
func (r *recorded) runsContinue(t *testing.T) {
	outer := r.t
	r.t = t
	defer func() { r.t = outer }()
	r.run("runs").wantExit(0).wantOutput("web01-", "web02-", "warm01-", "done", "open", "snapshot")
	r.run("verify", filepath.Join(r.vmFolder(), "web01")).wantExit(0)
	r.checkPublished(r.vmFolder(), "web01", "raw", 1)
	r.run(r.migrateArgs("web02")...).wantExit(0)
	r.checkPublished(r.vmFolder(), "web02", "raw", 1)
	p := r.startCommand(r.migrateArgs("warm01", append(warmFlags, "--json")...)...)
	p.waitForOutput(p.out, `"step":"wait"`)
	id, err := filepath.Glob(filepath.Join(r.stateDir(), "runs", "warm01-*"))
	must(t, err)
	r.run("cutover", filepath.Base(id[0])).wantExit(0)
	p.wantExit(0)
	r.checkPublished(r.vmFolder(), "warm01", "raw", 1)
	r.checkSourceClean(inventory.PoweredOff, "warm01")
	out := r.run("runs").wantExit(0).stdout
	if strings.Contains(out, "snapshot") {
		t.Errorf("a change is not reverted: %s", out)
	}
	for line := range strings.Lines(out) {
		if (strings.HasPrefix(line, "web") || strings.HasPrefix(line, "warm")) && !strings.Contains(line, " done ") {
			t.Errorf("a run is not done: %s", line)
		}
	}
}

// recordPlans leaves a token and four plans in the state directory: an ended one, one that waits for its hook, a paused
// one and a running one.
func (r *recorded) recordPlans() {
	to := "defaults: {to: [dir:" + r.vmFolder() + "]}\n"
	r.writeFile("ci.token", r.run("token", "add", "ci", "--role", "operate").wantExit(0).stdout)
	r.run("plan", "run", r.writePlan("ended", to+"vms: [{vm: vm01}]\n")).wantExit(0)
	hook := r.writeHook("#!/bin/sh\nexit 1\n")
	p := r.startCommand("plan", "run", r.writePlan("listing", to+"hooks: {pre: {command: ["+hook+"]}}\nvms: [{vm: vm10}]\n"))
	r.waitFor("listing", "its hook runs", func(v view) bool { return v.plan.State == fleetdb.PlanListing })
	p.kill()
	r.stall(func() {
		p := r.startCommand("plan", "run", r.writeNamedPlan("paused", to+"vms: [{vm: vm05}, {vm: vm11}]\n"), "--vms", "1")
		r.waitFor("paused", "one is copied", func(v view) bool { return v.countCopying() == 1 && v.count(fleetdb.Queued) == 1 })
		r.run("pause", "paused").wantExit(0) // one continues, one waits
		p.kill()
	}, "vm05", "vm11")
	file := r.writePlan("running", to+"vms: [{vm: vm02}, {vm: vm03}, {vm: vm04}, {vm: raw01}, {vm: vm06}]\n")
	r.stall(func() {
		p := r.startCommand("plan", "run", file)
		r.waitFor("running", "all are listed", func(v view) bool { return len(v.vms) == 5 })
		r.waitFor("running", "two are done, and one is copied", func(v view) bool { return v.count(fleetdb.Done) == 2 && v.countCopying() > 0 })
		p.kill()
	}, "vm03", "vm06")
	r.run("cancel", "running/vm06").wantExit(0)
	must(r.t, r.seen.Close())
	r.seen = nil
}

// countCopying returns the number of VMs that are being copied.
func (v view) countCopying() (n int) {
	for _, vm := range v.vms {
		if vm.State == fleetdb.Running && vm.Step == "copy" {
			n++
		}
	}
	return n
}

// plansContinue shows the plans of recordPlans, and continues them by a server with the recorded certificate and token.
func (r *recorded) plansContinue(t *testing.T) {
	outer := r.t
	r.t = t
	defer func() { r.t, r.seen = outer, nil }()
	r.run("status", "ended").wantExit(0).wantOutput("1 done")
	r.run("status", "listing").wantExit(0).wantOutput("listing")
	r.writeHook("#!/bin/sh\nexit 0\n")
	r.run("status", "paused").wantExit(0).wantOutput("Plan paused, paused: 2 VMs")
	r.run("status", "running").wantExit(0).wantOutput("5 VMs")
	s := r.startServer("127.0.0.1:8470", "--offer", r.vmFolder(), "--allow-hooks")
	s.runClient("resume", "paused").wantExit(0)
	s.runClient("retry", "listing").wantExit(0)
	r.run("status", "running", "--server", "https://"+s.addr, "--token-file", filepath.Join(r.dir, "ci.token"), "--server-fingerprint", s.fingerprint).wantExit(0)
	v := r.waitFor("running", "ended", func(v view) bool { return v.plan.State == fleetdb.PlanEnded })
	if v.count(fleetdb.Done) != 3 || v.vms["vm06"].State != fleetdb.Canceled || v.vms["raw01"].State != fleetdb.Failed {
		t.Errorf("the plan ended as %s", v)
	}
	r.waitFor("listing", "ended", func(v view) bool { return v.plan.State == fleetdb.PlanEnded && v.count(fleetdb.Done) == 1 })
	r.waitFor("paused", "ended", func(v view) bool { return v.plan.State == fleetdb.PlanEnded && v.count(fleetdb.Done) == 2 })
	r.checkAllPublished(r.vmFolder(), "vm01", "vm02", "vm03", "vm04", "vm05", "vm10", "vm11")
	r.checkPublishedOnce(v.onlyDone(), r.stateDir())
	if code := s.stop(); code != 0 {
		t.Errorf("the server ended with %d", code)
	}
}

// onlyDone returns v with only those VMs that are done.
func (v view) onlyDone() view {
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
	a := r.startWorker("a", folder)
	r.stall(func() {
		r.submitPlan(r.writePlan("shared", "defaults: {to: [dir:"+folder+"]}\nvms: [{vm: vm07}, {vm: vm08}, {vm: vm09}]\n"))
		r.waitFor("shared", "two are done, and one is copied", func(v view) bool { return v.count(fleetdb.Done) == 2 && v.countCopying() > 0 })
		a.kill()
	}, "vm08")
	must(r.t, errors.Join(os.Remove(a.log), r.seen.Close()))
	r.seen = nil
	out, err := exec.Command("pg_dump", "--no-owner", "-d", db.URL()).Output()
	must(r.t, err)
	r.writeFile("postgres.sql", string(out))
}

// workersContinue restores the database of recordWorkers, and starts its worker again.
func (r *recorded) workersContinue(t *testing.T) {
	outer := r.t
	r.t = t
	defer func() { r.t, r.seen = outer, nil }()
	db := postgres.Start(t)
	runTool(t, "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", db.URL(), "-f", filepath.Join(r.dir, "postgres.sql"))
	r.db = db.URL()
	r.run("status", "shared").wantExit(0).wantOutput("3 VMs")
	folder := filepath.Join(r.dir, "shared")
	a := r.startWorker("a", folder)
	v := r.waitFor("shared", "ended", func(v view) bool { return v.plan.State == fleetdb.PlanEnded })
	if v.count(fleetdb.Done) != 3 {
		t.Errorf("the plan ended as %s", v)
	}
	r.checkAllPublished(folder, "vm07", "vm08", "vm09")
	r.checkPublishedOnce(v, a.state)
	if code := a.stop(); code != 0 {
		t.Errorf("the worker ended with %d", code)
	}
}
