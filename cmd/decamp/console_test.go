package main

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/server"
	"github.com/decamp/decamp/internal/server/servertest"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/dir"
)

// addRun creates a run of vm, and the record of the published VM if it is not nil.
func (r *testProgram) addRun(vm *inventory.VM, to string, record *dir.Record) journal.ID {
	r.t.Helper()
	p, err := journal.NewStore(r.assembler.State).Create(journal.New(&url.URL{Scheme: "esxi", Host: "esx1"}, vm, to, "raw", "https", time.Now()))
	if err != nil {
		r.t.Fatal(err)
	}
	if record == nil {
		return p.ID
	}
	folder := filepath.Join(planfile.Destination(to).Folder(), vm.Name)
	text, err := json.Marshal(record)
	if err == nil {
		err = os.MkdirAll(folder, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, "vm.json"), text, 0o644)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return p.ID
}

// decamp console prints the reason and a remedy if it cannot attach.
func TestConsoleIsRefused(t *testing.T) {
	vm := &inventory.VM{Ref: "7", Name: "web01", UUID: "564d0000-0000-0000-0000-000000000001"}
	other := *vm
	other.Ref = "8"
	delivered := &targets.Receipt{Platform: "libvirt", ID: "x", Name: "web01"}
	for name, c := range map[string]struct {
		to       string
		record   *dir.Record
		kind     fault.Kind
		messages []string
	}{
		"not published": {"dir:STAGE", nil, fault.NotFound, []string{"web01 is not published", "decamp runs"}},
		"other VM":      {"dir:STAGE", &dir.Record{Version: 1, Source: &other}, fault.Conflict, []string{"has another VM"}},
		"a folder":      {"dir:STAGE", &dir.Record{Version: 1, Source: vm}, fault.Unsupported, []string{"virsh console web01"}},
		"no libvirt": {"libvirt:qemu:///system?socket=/no/such/socket&staging=STAGE", &dir.Record{Version: 1, Source: vm, Delivered: delivered},
			fault.Unreachable, []string{"systemctl start libvirtd"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newTestProgram(t)
			id := r.addRun(vm, strings.ReplaceAll(c.to, "STAGE", t.TempDir()), c.record)
			if code := r.run(t.Context(), []string{"console", string(id), "--state", r.assembler.State}); code != fault.ExitCode(fault.New(c.kind, "")) {
				t.Errorf("exit code %d, want that of %v", code, c.kind)
			}
			mustContain(t, r.stderr(), append(c.messages, "Remedy: ")...)
		})
	}
	for args, want := range map[string]string{"web09-000000": "list runs with decamp runs", "x --json": "run: decamp console --help", "no-plan/web01": "Remedy: "} {
		r := newTestProgram(t)
		if code := r.run(t.Context(), append([]string{"console", "--state", r.assembler.State}, strings.Fields(args)...)); code == 0 {
			t.Errorf("%s: exit code 0", args)
		}
		mustContain(t, r.stderr()+r.out.String(), want)
	}
}

// For a platform without console support, the remedy contains the command of the platform.
func TestConsoleOfOtherPlatforms(t *testing.T) {
	for _, c := range []struct {
		to, id, want string
	}{
		{"proxmox:https://pve1:8006/pve1", "103", "qm terminal 103"},
		{"kubevirt:/srv/stage?kubeconfig=/k", "vms/web01", "virtctl -n vms console web01"},
		{"kubevirt:/srv/stage", "/srv/stage/web01/vm.yaml", "virtctl console web01"},
		{"openstack:cloud", "1f", "openstack console url show web01"},
	} {
		p := &dir.Published{Record: &dir.Record{Source: &inventory.VM{Name: "web01"}, Delivered: &targets.Receipt{ID: c.id, Name: "web01"}}}
		if err := noConsole(p, planfile.Destination(c.to)); !fault.Is(err, fault.Unsupported) || !strings.Contains(fault.HintOf(err), c.want) {
			t.Errorf("%s: got %v (%s)", c.to, err, fault.HintOf(err))
		}
	}
}

// decamp console accepts a VM of a plan and uses the run of that VM.
func TestConsoleOfAPlansVM(t *testing.T) {
	two := servertest.VM("vm-2", "db1")
	two.Runs = []string{"db1-1f", "db1-2e"}
	none := servertest.VM("vm-3", "new1")
	none.Runs = nil
	c := newWave(t, servertest.VM("vm-1", "web1"), two, none)
	for name, want := range map[string]fault.Kind{"wave/web1": 0, "web1-1f": 0, "wave": fault.Invalid, "wave/db1": fault.Conflict, "wave/new1": fault.NotFound, "wave/x": fault.NotFound} {
		id, err := server.ResolveRun(t.Context(), c, name)
		if want == 0 && (err != nil || id != "web1-1f") || want != 0 && (!fault.Is(err, want) || fault.HintOf(err) == "") {
			t.Errorf("%s: got run %q, %v (%s)", name, id, err, fault.HintOf(err))
		}
	}
}
