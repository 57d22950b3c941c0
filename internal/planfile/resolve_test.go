package planfile

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

const uuid1 = "42200b7e-5d1c-4c1f-9a55-0d4f6d1c9a01"

// testVMs contains two VMs with the same name, and a VM whose name is the reference of another.
var testVMs = []inventory.VM{
	{Ref: "vm-1", Name: "web01", UUID: uuid1, Datacenter: "DC1", Folder: "prod", VMX: inventory.Path{Datastore: "ssd"}, Power: inventory.PoweredOff},
	{Ref: "vm-2", Name: "twin", Datacenter: "DC1", VMX: inventory.Path{Datastore: "hdd"}},
	{Ref: "vm-3", Name: "twin", Datacenter: "DC2", VMX: inventory.Path{Datastore: "hdd"}},
	{Ref: "vm-4", Name: "vm-5", VMX: inventory.Path{Datastore: "ssd"}},
	{Ref: "vm-5", Name: "db: 01\n#", VMX: inventory.Path{Datastore: "ssd"}, Warnings: []inventory.Warning{{Code: "vtpm"}}, GuestName: "a\x1b[31mb"},
}

func resolvePlan(t *testing.T, text string) (string, Findings) {
	t.Helper()
	moves, found := mustParse(t, text).Resolve(testVMs, esx.NewIndex(testVMs))
	var out []string
	for _, m := range moves {
		out = append(out, fmt.Sprintf("%s %v %d", m.VM.Ref, m.Options.To, m.Pos.Line))
	}
	return strings.Join(out, "; "), found
}

func TestResolve(t *testing.T) {
	for _, c := range []struct{ name, rest, want string }{
		{"by name", "defaults: {to: [dir:/d]}\nvms: [{vm: web01}, {vm: vm-3}, {vm: DC1/vm/twin, to: [dir:/own]}]", "vm-1 [dir:/d] 5; vm-3 [dir:/d] 5; vm-2 [dir:/own] 5"},
		{"by selection", "defaults: {to: [dir:/d]}\nselect: name=twin", "vm-2 [dir:/d] 5; vm-3 [dir:/d] 5"},
		{"both", "defaults: {to: [dir:/d]}\nselect: name=twin\nvms: [{vm: vm-3, to: [dir:/own]}]", "vm-3 [dir:/own] 6; vm-2 [dir:/d] 5"},
		{"by datastore", "defaults: {to: [dir:/d]}\nmaps: {datastores: {ssd: dir:/s}}\nvms: [{vm: web01}, {vm: vm-2}, {vm: vm-3, to: [dir:/own]}]", "vm-1 [dir:/s] 6; vm-2 [dir:/d] 6; vm-3 [dir:/own] 6"},
		{"by UUID", "defaults: {to: [dir:/d]}\nvms: [{vm: " + strings.ToUpper(uuid1) + ", uuid: " + uuid1 + "}]", "vm-1 [dir:/d] 5"},
	} {
		if got, found := resolvePlan(t, head+c.rest); got != c.want || len(found) > 0 {
			t.Errorf("%s: got %s, %v; want %s", c.name, got, found, c.want)
		}
	}
}

func TestResolveReportsMissingVMs(t *testing.T) {
	for _, c := range []struct {
		name, rest, code string
		kind             fault.Kind
		message          string
	}{
		{"missing", "vms: [{vm: web02, to: [dir:/d]}]", "vm", fault.NotFound, `4:7: no VM is called "web02"`},
		{"ambiguous", "vms: [{vm: twin, to: [dir:/d]}]", "vm", fault.Conflict, "fits 2 VMs"},
		{"like a reference", "vms: [{vm: vm-5, to: [dir:/d]}]", "vm", fault.Conflict, "fits 2 VMs"},
		{"name of another VM now", "vms: [{vm: web01, to: [dir:/d], uuid: 00000000-5d1c-4c1f-9a55-0d4f6d1c9a01}]", "other-vm", fault.Conflict, "now belongs to another VM"},
		{"two entries", "vms: [{vm: web01, to: [dir:/d]}, {vm: vm-1, to: [dir:/d]}]", "twice", fault.Conflict, "the first in line 4"},
		{"empty selection", "defaults: {to: [dir:/d]}\nselect: name=nobody", "select", fault.NotFound, "the selection matches no VM: name = nobody"},
		{"no destination", "maps: {datastores: {ssd: dir:/s}}\nvms: [{vm: vm-2}]", "no-destination", fault.Conflict, "datastore hdd is not in maps"},
	} {
		_, found := resolvePlan(t, head+c.rest)
		if len(found) != 1 || found[0].Code != c.code || found[0].Remedy == "" || fault.KindOf(found.Err()) != c.kind || !strings.Contains(found[0].String(), c.message) {
			t.Errorf("%s: got %+v, want %s %q", c.name, found, c.code, c.message)
		}
	}
}

// A VM whose name resolves, but that is not in the inventory list, is a finding. It may have been removed in between.
func TestMissingVMIsAFinding(t *testing.T) {
	f := mustParse(t, head+"defaults: {to: [dir:/d]}\nvms: [{vm: web01}, {vm: vm-2}]")
	r := f.Resolver(esx.NewIndex(testVMs))
	if _, moved := r.Move(&testVMs[1]); !moved {
		t.Error("Move does not return vm-2")
	}
	found := r.End()
	if len(found) != 1 || found[0].VM != "web01" || found[0].Kind != fault.NotFound.String() || found[0].Line != 5 {
		t.Errorf("got findings %+v", found)
	}
}

// A draft is a valid plan of the VMs that can be migrated, with any names.
func TestDraftIsAValidPlan(t *testing.T) {
	names := esx.NewIndex(testVMs)
	d := &Draft{Name: "esx1", URL: "vcenter://a@b.local@vc1", To: []string{"dir:/srv/my vm"}, Mode: Cold, PowerOff: NeverOff, Select: "name ~ *"}
	for i := range testVMs {
		d.VMs = append(d.VMs, Candidate{VM: &testVMs[i]})
	}
	d.VMs[2].Obstacles = []inventory.Warning{{Code: "rdm", Text: "a\nname: x", Remedy: "do\nwithout"}}
	var b strings.Builder
	if err := d.Write(&b, names); err != nil {
		t.Fatal(err)
	}
	f := mustParse(t, b.String())
	moves, found := f.Resolve(testVMs, names)
	var refs []string
	for _, m := range moves {
		refs = append(refs, string(m.VM.Ref))
	}
	if !slices.Equal(refs, []string{"vm-1", "vm-2", "vm-4", "vm-5"}) || len(found) > 0 || f.Defaults.To[0] != "dir:/srv/my vm" {
		t.Errorf("got VMs %q, findings %v from:\n%s", refs, found, b.String())
	}
	for _, text := range []string{"4 VMs that can be migrated", "1 VM that cannot be migrated", "# rdm: a?name: x", "Remedy: do?without", "# - vm: vm-3", "vtpm", "a?[31mb"} {
		if !strings.Contains(b.String(), text) {
			t.Errorf("%q is missing in the draft:\n%s", text, b.String())
		}
	}
}

func TestDraftWithoutVMs(t *testing.T) {
	var b strings.Builder
	d := &Draft{Name: "p", URL: "esxi://root@h", Mode: WarmMode, PowerOff: GuestOff}
	if err := d.Write(&b, esx.NewIndex(nil)); err != nil {
		t.Fatal(err)
	}
	if _, found := decodeFile([]byte(b.String())); len(found) > 0 {
		t.Errorf("got findings %v in:\n%s", found, b.String())
	}
}

// A draft of a warm migration sets transport nfc, because https cannot read running VMs.
func TestDraftOfWarmMigration(t *testing.T) {
	names := esx.NewIndex(testVMs)
	d := &Draft{Name: "p", URL: "esxi://root@h", To: []string{"dir:/x"}, Mode: WarmMode, PowerOff: NeverOff, VMs: []Candidate{{VM: &testVMs[0]}}}
	var b strings.Builder
	if err := d.Write(&b, names); err != nil {
		t.Fatal(err)
	}
	plan, _ := d.JSON(names)
	text, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{b.String(), string(text)} {
		if f := mustParse(t, s); f.Defaults.Transport != "nfc" || f.Defaults.Mode != WarmMode {
			t.Errorf("got mode %s, transport %s from:\n%s", f.Defaults.Mode, f.Defaults.Transport, s)
		}
	}
}

func TestWord(t *testing.T) {
	for in, want := range map[string]string{"web01": "web01", "": `""`, "yes": `"yes"`, "Null": `"Null"`, "007": `"007"`, "a b": `"a b"`, "a: b": `"a: b"`, "ä\n": `"ä\n"`, "dir:/x": "dir:/x", "R&D": `"R&D"`, uuid1: uuid1} {
		if got := quoteWord(in); got != want {
			t.Errorf("quoteWord(%q) = %s, want %s", in, got, want)
		}
	}
}

// The error of findings has their kind if all blocking findings have the same kind. Otherwise it is Conflict.
func TestKindOfFindings(t *testing.T) {
	gone, full := ErrorFinding("a", Pos{}, "x", fault.New(fault.NotFound, "gone")), ErrorFinding("b", Pos{3, 2}, "y", fault.New(fault.Full, "full").WithHint("room"))
	note := NoteFinding("c", Pos{}, "", "", "by the way")
	for _, c := range []struct {
		found Findings
		kind  fault.Kind
		text  string
	}{{Findings{full, note}, fault.Full, "3:2: y: full"}, {Findings{gone, gone}, fault.NotFound, "2 problems"}, {Findings{gone, note, full}, fault.Conflict, "2 problems"}} {
		if err := c.found.Err(); fault.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.text) {
			t.Errorf("findings %v: got kind %v, error %v", c.found, fault.KindOf(err), err)
		}
	}
	if err := (Findings{note}).Err(); err != nil {
		t.Errorf("a note is an error: %v", err)
	}
}
