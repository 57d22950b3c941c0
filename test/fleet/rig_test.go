package fleet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/lab/executable"
	"github.com/decamp/decamp/test/program"
)

// secret is the lab's password. Only the password file may contain it.
const secret = "hush-77b0c3-do-not-tell"

// A testEnv is a lab, a folder for VMs, a folder for plans, and a state directory.
type testEnv struct {
	t     *testing.T
	lab   *lab.Lab
	dir   string
	url   string   // URL of the source
	db    string   // URL of the common database; if empty, the file in the state directory is used
	flags []string // flags of every command

	environ []string // added to the environment of every command

	// Flags of commands that use db.
	insecure bool // pass --insecure-database
	keyless  bool // pass no --fleet-key
	hookless bool // pass no --allow-hooks

	seen *fleetdb.Database // opened by database
}

func newTestEnv(t *testing.T, cfg lab.Config) *testEnv {
	t.Helper()
	cfg.Password = secret
	l, err := lab.Start(context.Background(), cfg)
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	r := &testEnv{t: t, lab: l, dir: t.TempDir(), url: "esxi://root@" + l.Addr()}
	if cfg.VCenter {
		r.url = "vcenter://administrator@vsphere.local@" + l.Addr()
	}
	r.writeFile("password", secret+"\n")
	for _, name := range []string{"vms", "state"} {
		must(t, os.Mkdir(filepath.Join(r.dir, name), 0o700))
	}
	return r
}

func (r *testEnv) vmFolder() string { return filepath.Join(r.dir, "vms") }
func (r *testEnv) stateDir() string { return filepath.Join(r.dir, "state") }

// writeFile writes a file in the folder of the plans, and returns its path.
func (r *testEnv) writeFile(name, content string) string {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	must(r.t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// writeHook writes the program of a plan's hook, and returns its path.
func (r *testEnv) writeHook(text string) string {
	r.t.Helper()
	path := filepath.Join(r.dir, "hook")
	executable.Write(r.t, path, text)
	return path
}

// writePlan writes a plan of the lab's VMs. rest is the text after the source.
func (r *testEnv) writePlan(name, rest string) string {
	r.t.Helper()
	head := fmt.Sprintf("version: 1\nname: %s\nsource:\n  url: %s\n  fingerprint: %q\n  credentials: {file: %s}\n",
		name, r.url, r.lab.Fingerprint(), filepath.Join(r.dir, "password"))
	return r.writeFile(name+".yaml", head+rest)
}

// writePlanOfAll writes a plan of all VMs of the lab.
func (r *testEnv) writePlanOfAll(name string) string {
	r.t.Helper()
	return r.writePlan(name, "defaults: {to: [dir:"+r.vmFolder()+"]}\nselect: name ~ *\n")
}

// checkPublished checks that a VM's images equal the lab's disks and pass decamp verify.
func (r *testEnv) checkPublished(folder, vm, format string, disks int) {
	r.t.Helper()
	r.checkImages(folder, vm, format, disks)
	r.run("verify", filepath.Join(folder, vm)).wantExit(0)
}

// checkAllPublished checks the raw images of VMs with one disk, and runs decamp verify for the first one.
func (r *testEnv) checkAllPublished(folder string, vms ...string) {
	r.t.Helper()
	r.checkPublished(folder, vms[0], "raw", 1)
	for _, vm := range vms[1:] {
		r.checkImages(folder, vm, "raw", 1)
	}
}

// checkImages checks that a VM's images equal the lab's disks.
func (r *testEnv) checkImages(folder, vm, format string, disks int) {
	r.t.Helper()
	for n := range disks {
		want, err := r.lab.Disk(vm, n)
		must(r.t, err)
		program.SameDisk(r.t, filepath.Join(folder, vm, fmt.Sprintf("%s-disk%d.%s", vm, n, format)), want)
	}
}

// checkOnlyPublished checks that a folder contains these VMs, and besides only hidden files of decamp.
func (r *testEnv) checkOnlyPublished(folder string, vms ...string) {
	r.t.Helper()
	entries, err := os.ReadDir(folder)
	must(r.t, err)
	want := map[string]bool{}
	for _, vm := range vms {
		want[vm] = true
	}
	for _, e := range entries {
		if !want[e.Name()] && !strings.HasPrefix(e.Name(), ".decamp") {
			r.t.Errorf("%s contains %s", folder, e.Name())
		}
		delete(want, e.Name())
	}
	for vm := range want {
		r.t.Errorf("%s does not contain %s", folder, vm)
	}
}

// checkSourceClean checks that the VMs are in this power state, and that decamp left nothing at the source.
func (r *testEnv) checkSourceClean(power inventory.Power, vms ...string) {
	r.t.Helper()
	s := r.newSession()
	for _, name := range vms {
		vm, err := s.VM(r.t.Context(), name)
		must(r.t, err)
		if vm.Snapshots > 0 || vm.ConsolidationNeeded || vm.ChangeTracking || vm.Power != power {
			r.t.Errorf("VM %s has %d snapshots, consolidation needed %v, tracking %v, is %s; want none, and %s",
				name, vm.Snapshots, vm.ConsolidationNeeded, vm.ChangeTracking, vm.Power, power)
		}
	}
	if left := r.lab.Mounts(); len(left) > 0 {
		r.t.Errorf("hosts still have the datastores %v", left)
	}
}

// newSession opens a separate session with the source.
func (r *testEnv) newSession() *esx.Session {
	r.t.Helper()
	u, err := esx.ParseURL(r.url)
	must(r.t, err)
	s, err := esx.Dial(r.t.Context(), esx.Config{
		URL: u, Fingerprint: r.lab.Fingerprint(),
		Password: func(context.Context) (esx.Secret, error) { return secret, nil },
	})
	must(r.t, err)
	r.t.Cleanup(func() { _ = s.Close() }) // an error if the lab is closed
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
