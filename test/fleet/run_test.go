package fleet

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab"
)

// labOf returns a lab with n small VMs that are powered off, vm01 to vm99.
func labOf(n int) lab.Config {
	var cfg lab.Config
	for i := range n {
		cfg.VMs = append(cfg.VMs, lab.VM{
			Name:  fmt.Sprintf("vm%02d", i+1),
			Disks: []lab.Disk{{Capacity: lab.Bytes(4+2*(i%3)) << 20, Fill: 50, Seed: uint64(i + 1)}},
		})
	}
	return cfg
}

// vmNames returns the names of the VMs of labOf.
func vmNames(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("vm%02d", i+1))
	}
	return all
}

// runningVM returns a VM whose guest writes all the time.
func runningVM(name string, seed uint64) lab.VM {
	return lab.VM{
		Name: name, PoweredOn: true, Disks: []lab.Disk{{Capacity: 16 << 20, Fill: 50, Seed: seed}},
		Guest: lab.Guest{Writes: lab.Writes{Seed: seed, Rate: 1 << 20, Spread: 40, AtStop: 9}},
	}
}

// A plan has cold and warm VMs, raw and qcow2 images, one and two destinations, and VMs that cannot be migrated. The
// others are migrated, the output is correct, and a retry migrates a VM after its repair.
func TestPlanIsExecuted(t *testing.T) {
	t.Parallel()
	cfg := labOf(12)
	cfg.VCenter, cfg.Locks = true, lab.LockActive
	for i := range cfg.VMs {
		cfg.VMs[i].Host = []string{"esx1.lab", "esx2.lab"}[i%2]
	}
	cfg.VMs = append(cfg.VMs, runningVM("warm1", 101), runningVM("warm2", 102))
	raw := &cfg.VMs[4] // vm05
	raw.Disks = append(raw.Disks, lab.Disk{Capacity: 8 << 20, RDM: "physicalMode"})
	cfg.VMs[5].PoweredOn = true // vm06, which is not moved while it is powered on
	r := newTestEnv(t, cfg)
	second := filepath.Join(r.dir, "second")
	must(t, os.Mkdir(second, 0o700))
	hook := r.writeHook("#!/bin/sh\necho \"$DECAMP_WHEN ${DECAMP_VM:-plan} $DECAMP_RESULT\" >> hooked\nenv >> environ\n")
	file := r.writePlan("wave-1", strings.ReplaceAll(`defaults:
  to: [dir:VMS]
  hooks: {pre: {command: [HOOK]}, post: {command: [HOOK]}}
hooks: {pre: {command: [HOOK]}, post: {command: [HOOK]}}
select: name ~ *
vms:
  - {vm: vm01, format: qcow2}
  - {vm: vm02, to: [dir:VMS, dir:TWO]}
  - {vm: vm03, to: [dir:TWO], format: qcow2}
  - {vm: warm1, mode: warm, warm: {interval: 10m}}
  - {vm: warm2, mode: warm, warm: {interval: 10m}, format: qcow2}
`, "HOOK", hook))
	text, err := os.ReadFile(file)
	must(t, err)
	r.writeFile("wave-1.yaml", strings.NewReplacer("VMS", r.vmFolder(), "TWO", second).Replace(string(text)))

	p := r.startCommand(append([]string{"plan", "run", file}, r.logFlags("run")...)...)
	waited := map[string]bool{}
	r.waitFor("wave-1", "both warm VMs have waited for the cutover and the others have ended", func(v view) bool {
		for name, vm := range v.vms {
			waited[name] = waited[name] || vm.Step == "wait"
		}
		return v.count(fleetdb.Done, fleetdb.Failed) == 12 && waited["warm1"] && waited["warm2"]
	})
	r.run("status", "wave-1").wantExit(0).wantOutput("wave-1, running", "14 VMs", "10 done", "2 failed", "vm05", "vm06")
	r.run("status", "wave-1/vm05").wantExit(0).wantOutput("failed", "Remedy")
	r.run("cutover", "wave-1/warm1").wantExit(0)
	r.waitFor("wave-1", "warm1 is published", func(v view) bool { return v.vms["warm1"].State == fleetdb.Done })
	r.run("cutover", "wave-1").wantExit(0)
	p.wantExit(6).wantOutput("plan wave-1: 2 of 14 VMs failed", "Remedy: ")

	r.checkPlanMoved(second)
	r.checkSourceClean(inventory.PoweredOff, append(vmNames(5), "warm1", "warm2")...)
	checkHooks(t, r, "vm05", "vm06")

	must(t, r.lab.SetPower("vm06", false))
	r.run("retry", "wave-1/vm06").wantExit(0)
	r.run("plan", "run", file).wantExit(6).wantOutput("1 of 14 VMs failed")
	r.checkPublished(r.vmFolder(), "vm06", "raw", 1)
	r.run("status", "wave-1", "--all").wantExit(0).wantOutput("13 done", "1 failed")
	r.run("watch", "wave-1").wantExit(6)
}

// checkPlanMoved checks the images of TestPlanIsExecuted.
func (r *testEnv) checkPlanMoved(second string) {
	r.t.Helper()
	both := []string{"vm01", "warm2"}
	here := []string{"vm02", "vm04", "vm07", "vm08", "vm09", "vm10", "vm11", "vm12", "warm1"}
	for _, vm := range both {
		r.checkPublished(r.vmFolder(), vm, "qcow2", 1)
	}
	r.checkAllPublished(r.vmFolder(), here...)
	r.checkPublished(second, "vm02", "raw", 1)
	r.checkPublished(second, "vm03", "qcow2", 1)
	r.checkOnlyPublished(r.vmFolder(), append(here, both...)...)
	r.checkOnlyPublished(second, "vm02", "vm03")
}

// checkHooks checks that each hook ran once with its environment, and that the hooks of the plan ran first and last.
func checkHooks(t *testing.T, r *testEnv, failed ...string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(r.dir, "hooked"))
	must(t, err)
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if lines[0] != "pre plan " || lines[len(lines)-1] != "post plan " {
		t.Errorf("the hooks of the plan are not the first and the last: %q", lines)
	}
	seen := map[string]int{}
	for _, line := range lines {
		seen[line]++
	}
	for _, vm := range append(vmNames(12), "warm1", "warm2", "plan") {
		end := "done"
		switch {
		case vm == "plan":
			end = ""
		case slices.Contains(failed, vm):
			end = ""
			for line := range seen {
				if rest, ok := strings.CutPrefix(line, "post "+vm+" "); ok && rest != "done" {
					end = rest
				}
			}
		}
		if seen["pre "+vm+" "] != 1 || seen["post "+vm+" "+end] != 1 {
			t.Errorf("pre hook of %s ran %d times, post hook (%q) %d times, want 1 each; all hooks: %q", vm, seen["pre "+vm+" "], end, seen["post "+vm+" "+end], lines)
		}
	}
	environ, err := os.ReadFile(filepath.Join(r.dir, "environ"))
	must(t, err)
	if strings.Contains(string(environ), secret) || !strings.Contains(string(environ), "DECAMP_PLAN=wave-1") {
		t.Errorf("the environment of a hook is %s", environ)
	}
}
