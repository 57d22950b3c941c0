package mover

import (
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/planfile"
)

const operatorPlan = "version: 1\nname: p\nsource: {url: esxi://root@esx1}\ndefaults: {to: [dir:/srv/vm]}\nselect: poweredOn\n"

func TestPlanExecutionRole(t *testing.T) {
	for _, v := range []struct {
		recorded        string
		command, worker planfile.Role
	}{
		{"admin", planfile.Local, planfile.Admin}, {"operate", planfile.Operate, planfile.Operate}, {"view", "", ""}, {"", "", ""}, {"local", "", ""},
	} {
		p := fleetdb.Plan{Role: v.recorded}
		if got := (&Mover{database: &fleetdb.Database{}, Command: true}).roleOf(p); got != v.command {
			t.Errorf("%q in a command: %q, want %q", v.recorded, got, v.command)
		}
		if got := (&Mover{database: &fleetdb.Database{}}).roleOf(p); got != v.worker {
			t.Errorf("%q in a worker: %q, want %q", v.recorded, got, v.worker)
		}
	}
}

// A worker checks a plan with its own access file before it connects to the source.
func TestWorkerChecksAPlanAgain(t *testing.T) {
	m, _, _ := newWorker(t)
	named := strings.Replace(operatorPlan, "esx1}", "esx1, credentials: {name: esx1}}", 1)
	for name, v := range map[string]struct{ role, text string }{
		"a command":             {"operate", named + "hooks: {pre: {command: [/bin/true]}}\n"},
		"an address":            {"operate", strings.Replace(named, "dir:/srv/vm", "\"libvirt:qemu:///system?staging=/srv/vm\"", 1)},
		"no credentials":        {"admin", operatorPlan},
		"another host":          {"admin", strings.Replace(named, "root@esx1", "root@esx2", 1)},
		"an unknown credential": {"admin", strings.Replace(named, "name: esx1", "name: esx2", 1)},
		"an unknown place":      {"admin", strings.Replace(named, "dir:/srv/vm", "\"place:kvm?staging=/srv/vm\"", 1)},
		"no role":               {"", named},
	} {
		s, err := m.newPlanSource(fleetdb.Plan{Name: "p", Text: v.text, Role: v.role})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.acquire(t.Context()); !fault.Is(err, fault.Denied) || fault.HintOf(err) == "" {
			t.Errorf("%s: got %v, want Denied", name, err)
		}
	}
}

// A worker migrates a VM of an operator's plan only to a folder that it offers.
func TestWorkerRefusesFoldersNotOffered(t *testing.T) {
	m := New(&assemble.Assembler{})
	m.offers = map[string]string{"/srv/vm": "id"}
	for to, ok := range map[string]bool{
		"dir:/srv/vm": true, "dir:/srv/vm/a": true, "place:rack1?staging=/srv/vm": true,
		"dir:/srv/vms": false, "dir:/etc": false, "place:rack1?staging=/etc": false,
	} {
		s := &planSource{m: m, SourceParts: &assemble.SourceParts{Assembler: m.a, Role: planfile.Operate}}
		if err := s.checkOffered(fleetdb.VM{To: []string{to}}); (err == nil) != ok || !ok && !fault.Is(err, fault.Denied) {
			t.Errorf("destination %s: got %v", to, err)
		}
	}
}
