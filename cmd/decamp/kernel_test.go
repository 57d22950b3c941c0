package main

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/planfile"
)

// decamp plan run checks the appliance kernel of a VM whose guest it changes before it copies a disk.
func TestPlanKernelIsChecked(t *testing.T) {
	c := newLabProgram(t, lab.Config{VMs: []lab.VM{smallVM("web01"), smallVM("web02")}})
	gone := filepath.Join(t.TempDir(), "vmlinuz")
	text := fmt.Sprintf("version: 1\nname: p\nsource: {url: %q, fingerprint: %q}\ndefaults: {to: [%q], applianceKernel: %s}\nvms:\n- {vm: web01, hardware: virtio}\n- {vm: web02}\n",
		c.url(), c.lab.Fingerprint(), "dir:"+c.to, gone)
	if code := c.run(t.Context(), []string{"plan", "run", writeFile(t, "plan.yaml", text), "--state", c.assembler.State}); code != 6 {
		t.Errorf("exit code %d: %s%s", code, c.out, c.stderr())
	}
	if got := assemble.Moved(c.to); len(got) != 1 || got[0].Name != "web02" {
		t.Errorf("got published VMs %+v", got)
	}
	c.out.Reset()
	_ = c.run(t.Context(), []string{"status", "p/web01", "--state", c.assembler.State})
	mustContain(t, c.out.String(), "applianceKernel: ", gone)
}

// decamp rehearse without a worker uses the appliance kernel of the run.
func TestRehearsalUsesKernelOfRun(t *testing.T) {
	r := newTestProgram(t)
	gone := filepath.Join(t.TempDir(), "vmlinuz")
	w := &assemble.Parts{To: []*assemble.Destination{{To: "dir:/srv/vm"}}}
	u, err := esx.ParseURL("esxi://root@esx1")
	if err != nil {
		t.Fatal(err)
	}
	w.URL = u
	w.Plan(&inventory.VM{Ref: "7", Name: "web01"}, assemble.Move{Options: planfile.Options{Hardware: "virtio", Mode: planfile.WarmMode, Kernel: planfile.Path(gone)}})
	p := w.To[0].Plan
	if p.Kernel != gone {
		t.Errorf("got kernel %q in the journal plan", p.Kernel)
	}
	if _, err := journal.NewStore(r.assembler.State).Create(p); err != nil {
		t.Fatal(err)
	}
	if code := r.run(t.Context(), []string{"rehearse", string(p.ID), "--state", r.assembler.State}); code == 0 {
		t.Error("the rehearsal succeeds without a kernel")
	}
	mustContain(t, r.stderr(), gone)
	w.Plan(&inventory.VM{Ref: "7", Name: "web01"}, assemble.Move{Options: planfile.Options{Hardware: "compat", Kernel: planfile.Path(gone)}})
	if k := w.To[0].Plan.Kernel; k != "" {
		t.Errorf("got kernel %q for a guest that does not change, want none", k)
	}
}

// decamp plan check only reports a missing engine on this machine, because a worker may be another machine. A dry
// run of decamp migrate fails. Neither copies a disk.
func TestMissingEngineIsReportedBeforeCopy(t *testing.T) {
	c := newLabProgram(t, lab.Config{VMs: []lab.VM{smallVM("web01"), smallVM("web02")}})
	gone := filepath.Join(t.TempDir(), "vmlinuz")
	text := fmt.Sprintf("version: 1\nname: p\nsource: {url: %q, fingerprint: %q}\ndefaults: {to: [%q]}\nvms:\n- {vm: web01, hardware: virtio, applianceKernel: %s}\n- {vm: web02, hardware: virtio, engine: virt-v2v}\n",
		c.url(), c.lab.Fingerprint(), "dir:"+c.to, gone)
	path := writeFile(t, "plan.yaml", text)
	t.Setenv("PATH", t.TempDir())
	if code := c.runArgs("plan", "check", path); code != 0 {
		t.Errorf("exit code %d: %s%s", code, c.out, c.stderr())
	}
	mustContain(t, c.out.String(), "on this machine: applianceKernel: ", gone, "on this machine: VM web02 cannot be converted by virt-v2v")
	c.out.Reset()
	dryRun := []string{"migrate", c.url(), "web02", "--to", "dir:" + c.to, "--hardware", "virtio", "--engine", "virt-v2v", "--dry-run"}
	if code := c.runArgs(dryRun...); code == 0 {
		t.Errorf("the engine is missing, but exit code 0: %s", c.out)
	}
	mustContain(t, c.stderr(), "cannot be converted by virt-v2v")
	if got := assemble.Moved(c.to); len(got) != 0 {
		t.Errorf("got published VMs %+v", got)
	}
}
