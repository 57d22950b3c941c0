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

// secret is the lab's password; no file but the password file may hold it.
const secret = "hush-77b0c3-do-not-tell"

// rig is a lab, folders for VMs, a plan's folder, and a state directory.
type rig struct {
	t     *testing.T
	lab   *lab.Lab
	dir   string
	url   string   // of the source
	db    string   // where processes meet; the file in the state directory else
	flags []string // of every command

	environ []string // added to the environment of every command

	// Of commands that use db:
	insecure bool // it is not verified
	keyless  bool // they have no --fleet-key
	hookless bool // they have no --allow-hooks

	seen *fleetdb.Database
}

func newRig(t *testing.T, cfg lab.Config) *rig {
	t.Helper()
	cfg.Password = secret
	l, err := lab.Start(context.Background(), cfg)
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	r := &rig{t: t, lab: l, dir: t.TempDir(), url: "esxi://root@" + l.Addr()}
	if cfg.VCenter {
		r.url = "vcenter://administrator@vsphere.local@" + l.Addr()
	}
	r.write("password", secret+"\n")
	for _, name := range []string{"vms", "state"} {
		must(t, os.Mkdir(filepath.Join(r.dir, name), 0o700))
	}
	return r
}

func (r *rig) vms() string   { return filepath.Join(r.dir, "vms") }
func (r *rig) state() string { return filepath.Join(r.dir, "state") }

func (r *rig) write(name, content string) string {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	must(r.t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// writeHook writes the program of a plan's hook.
func (r *rig) writeHook(text string) string {
	r.t.Helper()
	path := filepath.Join(r.dir, "hook")
	executable.Write(r.t, path, text)
	return path
}

// plan writes a plan of the rig's source: rest is what comes after the source.
func (r *rig) plan(name, rest string) string {
	r.t.Helper()
	head := fmt.Sprintf("version: 1\nname: %s\nsource:\n  url: %s\n  fingerprint: %q\n  credentials: {file: %s}\n",
		name, r.url, r.lab.Fingerprint(), filepath.Join(r.dir, "password"))
	return r.write(name+".yaml", head+rest)
}

// all is a plan of all VMs of the lab.
func (r *rig) all(name string) string {
	r.t.Helper()
	return r.plan(name, "defaults: {to: [dir:"+r.vms()+"]}\nselect: name ~ *\n")
}

// published checks that a VM's images are the lab's disks and pass decamp verify.
func (r *rig) published(folder, vm, format string, disks int) {
	r.t.Helper()
	r.sameAsSource(folder, vm, format, disks)
	r.run("verify", filepath.Join(folder, vm)).ends(0)
}

// allPublished checks the raw images of VMs with one disk, and runs decamp verify for the first one.
func (r *rig) allPublished(folder string, vms ...string) {
	r.t.Helper()
	r.published(folder, vms[0], "raw", 1)
	for _, vm := range vms[1:] {
		r.sameAsSource(folder, vm, "raw", 1)
	}
}

// sameAsSource checks that a VM's images are the lab's disks.
func (r *rig) sameAsSource(folder, vm, format string, disks int) {
	r.t.Helper()
	for n := range disks {
		want, err := r.lab.Disk(vm, n)
		must(r.t, err)
		program.SameDisk(r.t, filepath.Join(folder, vm, fmt.Sprintf("%s-disk%d.%s", vm, n, format)), want)
	}
}

// onlyPublished checks that a folder holds these VMs, and nothing else that people see.
func (r *rig) onlyPublished(folder string, vms ...string) {
	r.t.Helper()
	entries, err := os.ReadDir(folder)
	must(r.t, err)
	want := map[string]bool{}
	for _, vm := range vms {
		want[vm] = true
	}
	for _, e := range entries {
		if !want[e.Name()] && !strings.HasPrefix(e.Name(), ".decamp") {
			r.t.Errorf("%s holds %s", folder, e.Name())
		}
		delete(want, e.Name())
	}
	for vm := range want {
		r.t.Errorf("%s lacks %s", folder, vm)
	}
}

// asFound checks that nothing of ours is left of these VMs on the source.
func (r *rig) asFound(power inventory.Power, vms ...string) {
	r.t.Helper()
	s := r.session()
	for _, name := range vms {
		vm, err := s.VM(r.t.Context(), name)
		must(r.t, err)
		if vm.Snapshots > 0 || vm.ConsolidationNeeded || vm.ChangeTracking || vm.Power != power {
			r.t.Errorf("VM %s has %d snapshots, consolidation needed %v, tracking %v, is %s; want none, and %s",
				name, vm.Snapshots, vm.ConsolidationNeeded, vm.ChangeTracking, vm.Power, power)
		}
	}
	if left := r.lab.Mounts(); len(left) > 0 {
		r.t.Errorf("a host still has %v", left)
	}
}

// session opens a separate session with the source.
func (r *rig) session() *esx.Session {
	r.t.Helper()
	u, err := esx.ParseURL(r.url)
	must(r.t, err)
	s, err := esx.Dial(r.t.Context(), esx.Config{
		URL: u, Fingerprint: r.lab.Fingerprint(),
		Password: func(context.Context) (esx.Secret, error) { return secret, nil },
	})
	must(r.t, err)
	r.t.Cleanup(func() { _ = s.Close() }) // the lab may be gone
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
