package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/preflight"
	"github.com/decamp/decamp/test/lane"
)

// kindsOfVM contains the changes that make the VMs of TestPlanCheckMatchesPlanRun, by the name of the kind.
var kindsOfVM = map[string]func(*lab.VM){
	"off":         func(*lab.VM) {},
	"on":          func(vm *lab.VM) { vm.PoweredOn = true },
	"snapshots":   func(vm *lab.VM) { vm.Snapshots = []string{"before"} },
	"independent": func(vm *lab.VM) { vm.PoweredOn, vm.Disks[0].Mode = true, "independent_persistent" },
	"shared":      func(vm *lab.VM) { vm.Disks[0].Sharing = "sharingMultiWriter" },
	"rdm":         func(vm *lab.VM) { vm.Disks[0].RDM = "physicalMode" },
	"pci":         func(vm *lab.VM) { vm.PoweredOn, vm.Devices = true, []string{"pci"} },
	"encrypted":   func(vm *lab.VM) { vm.KeyID = "key" },
	"diskless":    func(vm *lab.VM) { vm.Disks = nil },
}

// randomOptions returns the keys of one VM, some of them with values.
func randomOptions(r *rand.Rand) string {
	var keys []string
	maybe := func(key string, values ...string) {
		if i := r.IntN(len(values) + 1); i < len(values) {
			keys = append(keys, key+": "+values[i])
		}
	}
	maybe("transport", "https", "nfc", "nfc") // warm migrations use NFC
	maybe("powerOff", "never", "guest", "force")
	maybe("mode", "cold", "warm", "warm")
	maybe("format", "raw", "qcow2")
	maybe("hardware", "compat", "auto")
	maybe("connections", "1", "3", "12")
	maybe("spot", "{off: true}", "{first: 2M, ranges: 3}")
	maybe("nfc", "{handles: 2}", "{buffer: 128K, buffers: 2}")
	keys = append(keys, "warm: {cutover: 2026-01-01T00:00Z}") // in the past: cut over at once
	return strings.Join(keys, ", ")
}

// decamp plan check blocks a VM if and only if decamp plan run does not publish it, with any options.
func TestPlanCheckMatchesPlanRun(t *testing.T) {
	t.Parallel()
	kinds := make([]string, 0, len(kindsOfVM))
	for kind := range kindsOfVM {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	blocked, published := 0, 0
	seeds := map[bool]int{false: 1, true: 3}[lane.Slow]
	for seed := range uint64(seeds) {
		r := rand.New(rand.NewPCG(seed, 18))
		var cfg lab.Config
		var entries strings.Builder
		for i := range 2 * len(kinds) {
			kind := kinds[i/2]
			vm := smallVM(fmt.Sprintf("%s-%d", kind, i%2))
			kindsOfVM[kind](&vm)
			cfg.VMs = append(cfg.VMs, vm)
			fmt.Fprintf(&entries, "- {vm: %s, %s}\n", vm.Name, randomOptions(r))
		}
		c := newLabProgram(t, cfg)
		plan := writeFile(t, "plan.yaml", fmt.Sprintf("version: 1\nname: p\nsource: {url: %q, fingerprint: %q}\ndefaults: {to: [%q]}\nvms:\n%s",
			c.url(), c.lab.Fingerprint(), "dir:"+c.to, &entries))
		_ = c.run(t.Context(), []string{"plan", "check", plan, "--json", "--state", c.assembler.State}) // the test compares the findings
		var report preflight.Report
		if err := json.NewDecoder(strings.NewReader(c.out.String())).Decode(&report); err != nil {
			t.Fatalf("%v: %s%s", err, c.out, c.stderr())
		}
		blocks := map[string]string{}
		for _, f := range report.Findings {
			if f.Blocks {
				blocks[f.VM] += f.Code + " "
			}
		}
		_ = c.run(t.Context(), []string{"plan", "run", plan, "--state", c.assembler.State}) // some VMs fail
		moved := map[string]bool{}
		for _, vm := range assemble.Moved(c.to) {
			moved[vm.Name] = true
		}
		for _, vm := range cfg.VMs {
			if moved[vm.Name] == (blocks[vm.Name]+blocks[""] != "") {
				t.Errorf("seed %d: VM %s: published %v, blocking findings %q:\n%s", seed, vm.Name, moved[vm.Name], blocks[vm.Name], &entries)
			}
		}
		blocked, published = blocked+len(blocks), published+len(moved)
	}
	if blocked < 2*seeds || published < 2*seeds {
		t.Errorf("%d VMs are blocked and %d are published: too few to compare", blocked, published)
	}
}
