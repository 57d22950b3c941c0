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

// many is a lab with n small VMs that are off, vm01 to vm99.
func many(n int) lab.Config {
	var cfg lab.Config
	for i := range n {
		cfg.VMs = append(cfg.VMs, lab.VM{
			Name:  fmt.Sprintf("vm%02d", i+1),
			Disks: []lab.Disk{{Capacity: lab.Bytes(4+2*(i%3)) << 20, Fill: 50, Seed: uint64(i + 1)}},
		})
	}
	return cfg
}

// names are those of many.
func names(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("vm%02d", i+1))
	}
	return all
}

// running is a VM whose guest writes all the time.
func running(name string, seed uint64) lab.VM {
	return lab.VM{
		Name: name, PoweredOn: true, Disks: []lab.Disk{{Capacity: 16 << 20, Fill: 50, Seed: seed}},
		Guest: lab.Guest{Writes: lab.Writes{Seed: seed, Rate: 1 << 20, Spread: 40, AtStop: 9}},
	}
}

// A plan of cold and warm VMs, raw and qcow2, to one and to two destinations, with one VM that cannot be migrated. The
// others are migrated, the output is correct, and a retry migrates the rest.
func TestPlanIsCarriedOut(t *testing.T) {
	t.Parallel()
	cfg := many(12)
	cfg.VCenter, cfg.Locks = true, lab.LockActive
	for i := range cfg.VMs {
		cfg.VMs[i].Host = []string{"esx1.lab", "esx2.lab"}[i%2]
	}
	cfg.VMs = append(cfg.VMs, running("warm1", 101), running("warm2", 102))
	raw := &cfg.VMs[4] // vm05
	raw.Disks = append(raw.Disks, lab.Disk{Capacity: 8 << 20, RDM: "physicalMode"})
	cfg.VMs[5].PoweredOn = true // vm06: to be moved, it must be off
	r := newRig(t, cfg)
	second := filepath.Join(r.dir, "second")
	must(t, os.Mkdir(second, 0o700))
	hook := r.writeHook("#!/bin/sh\necho \"$DECAMP_WHEN ${DECAMP_VM:-plan} $DECAMP_RESULT\" >> hooked\nenv >> environ\n")
	file := r.plan("wave-1", strings.ReplaceAll(`defaults:
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
	r.write("wave-1.yaml", strings.NewReplacer("VMS", r.vms(), "TWO", second).Replace(string(text)))

	p := r.begin(append([]string{"plan", "run", file}, r.log("run")...)...)
	waited := map[string]bool{}
	r.until("wave-1", "both warm VMs have waited for the cutover and the others have ended", func(v view) bool {
		for name, vm := range v.vms {
			waited[name] = waited[name] || vm.Step == "wait"
		}
		return v.count(fleetdb.Done, fleetdb.Failed) == 12 && waited["warm1"] && waited["warm2"]
	})
	r.run("status", "wave-1").ends(0).says("wave-1, running", "14 VMs", "10 done", "2 failed", "vm05", "vm06")
	r.run("status", "wave-1/vm05").ends(0).says("failed", "Remedy")
	r.run("cutover", "wave-1/warm1").ends(0)
	r.until("wave-1", "warm1 is published", func(v view) bool { return v.vms["warm1"].State == fleetdb.Done })
	r.run("cutover", "wave-1").ends(0)
	p.ends(6).says("plan wave-1: 2 of 14 VMs failed", "Remedy: ")

	r.planIsHere(second)
	r.asFound(inventory.PoweredOff, append(names(5), "warm1", "warm2")...)
	hooked(t, r, "vm05", "vm06")

	must(t, r.lab.SetPower("vm06", false))
	r.run("retry", "wave-1/vm06").ends(0)
	r.run("plan", "run", file).ends(6).says("1 of 14 VMs failed")
	r.published(r.vms(), "vm06", "raw", 1)
	r.run("status", "wave-1", "--all").ends(0).says("13 done", "1 failed")
	r.run("watch", "wave-1").ends(6)
}

// planIsHere checks what TestPlanIsCarriedOut wrote.
func (r *rig) planIsHere(second string) {
	r.t.Helper()
	both := []string{"vm01", "warm2"}
	here := []string{"vm02", "vm04", "vm07", "vm08", "vm09", "vm10", "vm11", "vm12", "warm1"}
	for _, vm := range both {
		r.published(r.vms(), vm, "qcow2", 1)
	}
	r.allPublished(r.vms(), here...)
	r.published(second, "vm02", "raw", 1)
	r.published(second, "vm03", "qcow2", 1)
	r.onlyPublished(r.vms(), append(here, both...)...)
	r.onlyPublished(second, "vm02", "vm03")
}

// hooked checks that each hook ran once, the plan's around all others, with what it is to know.
func hooked(t *testing.T, r *rig, failed ...string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(r.dir, "hooked"))
	must(t, err)
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if lines[0] != "pre plan " || lines[len(lines)-1] != "post plan " {
		t.Errorf("the plan's hooks are not the first and the last: %q", lines)
	}
	seen := map[string]int{}
	for _, line := range lines {
		seen[line]++
	}
	for _, vm := range append(names(12), "warm1", "warm2", "plan") {
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
			t.Errorf("hooks of %s: before it %d times, after it (%q) %d times; all: %q", vm, seen["pre "+vm+" "], end, seen["post "+vm+" "+end], lines)
		}
	}
	environ, err := os.ReadFile(filepath.Join(r.dir, "environ"))
	must(t, err)
	if strings.Contains(string(environ), secret) || !strings.Contains(string(environ), "DECAMP_PLAN=wave-1") {
		t.Errorf("a hook's environment: %s", environ)
	}
}
