package selector

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/inventory"
)

// testVMs contains the VMs to which the tests apply expressions.
var testVMs = []inventory.VM{
	{
		Ref: "vm-1", Name: "web01", UUID: "4220aaaa-0000-0000-0000-000000000001", Folder: "prod/web", Datacenter: "DC1", Cluster: "blue",
		HostName: "esx1", Power: inventory.PoweredOn, CPUs: 2, MemoryMiB: 4096, Provisioned: 40 << 30, Used: 10 << 30, GuestName: "Debian GNU/Linux 12 (64-bit)",
		GuestID: "debian12_64Guest", Firmware: inventory.EFI, ChangeTracking: true, ToolsRunning: true, VMX: inventory.Path{Datastore: "ssd"},
		Disks: []inventory.Disk{{Path: inventory.Path{Datastore: "ssd"}}, {Path: inventory.Path{Datastore: "hdd"}}},
		NICs:  []inventory.NIC{{Network: "VM Network"}, {Network: "backup"}}, Warnings: []inventory.Warning{{Code: "running", Blocks: true}},
	},
	{Ref: "vm-2", Name: "db01", Folder: "production", Power: inventory.PoweredOff, CPUs: 8, MemoryMiB: 65536, Provisioned: 2 << 40, Snapshots: 2, Disks: []inventory.Disk{{}}, Firmware: inventory.BIOS},
	{Ref: "vm-3", Name: "old *?", Folder: "", Power: inventory.Suspended, Template: true},
}

func matchNames(t *testing.T, expression string) string {
	t.Helper()
	e, err := Parse(expression)
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	var names []string
	for _, vm := range matchVMs(e, testVMs) {
		names = append(names, vm.Name)
	}
	return strings.Join(names, " ")
}

func TestExpressions(t *testing.T) {
	for expression, want := range map[string]string{
		"folder=prod":                          "web01", // also matches subfolders, but not other folders with the prefix
		"folder = PROD/web":                    "web01",
		`folder=""`:                            "old *?",
		"folder ~ prod*":                       "web01 db01",
		"poweredOn":                            "web01",
		"!poweredOn":                           "db01 old *?",
		"poweredOn=false":                      "db01 old *?",
		"poweredOn != true":                    "db01 old *?",
		"POWEREDON":                            "web01",
		"power=suspended":                      "old *?",
		"!!template":                           "old *?",
		"name=web01 || name=db01":              "web01 db01",
		"name ~ *01 && !(cpus >= 8)":           "web01",
		"name=web01 || name=db01 && poweredOn": "web01", // && binds tighter
		"(name=web01 || name=db01) && cpus>2":  "db01",
		`name ~ "web??"`:                       "web01",
		`name ~ '* *'`:                         "old *?",
		`name = "old *?"`:                      "old *?",
		`name="OLD *?"`:                        "old *?",
		"cpus<2":                               "old *?",
		"cpus<=2":                              "web01 old *?",
		"cpus!=8":                              "web01 old *?",
		"memory=4GiB":                          "web01",
		"memory = 4096M":                       "web01",
		"size > 100GiB":                        "db01",
		"used>0":                               "web01",
		"disks=2":                              "web01",
		"snapshots>0":                          "db01",
		"datastore=HDD":                        "web01",
		"datastore!=hdd":                       "db01 old *?",
		`network="VM Network" && network = backup`: "web01",
		"os ~ debian*":        "web01",
		"os=debian12_64Guest": "web01",
		"warning=running":     "web01",
		"cluster=blue && host=esx1 && datacenter=dc1 && ref=vm-1 && uuid ~ 4220* && firmware=efi && cbt && tools": "web01",
		"firmware=bios":  "db01",
		`name="\"quo\\"`: "",
	} {
		if got := matchNames(t, expression); got != want {
			t.Errorf("%s: got VMs %q, want %q", expression, got, want)
		}
	}
}

// Facts returns the properties that an expression needs. Some expressions need the complete description of a VM.
func TestFacts(t *testing.T) {
	for expression, want := range map[string]string{
		"!template":                               "roll",
		"folder=prod && !poweredOn":               "roll power",
		"(os ~ win* || !(os ~ deb*)) && !tools":   "guest tools",
		"cpus > 2 && memory > 1G || firmware=efi": "hardware firmware",
		"cbt && disks=1 && power=on":              "tracking roll power",
		"poweredOn && !(size > 1T)":               "description",
		"network=a":                               "description",
		"datastore=a || name=b":                   "description",
	} {
		e, err := Parse(expression)
		if err != nil {
			t.Fatal(err)
		}
		facts, enough := e.Facts()
		got := strings.Trim(strings.ReplaceAll(fmt.Sprint(facts), "  ", " "), "[]")
		if !enough {
			got = "description"
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", expression, got, want)
		}
	}
	if facts, enough := (Expr{}).Facts(); len(facts) > 0 || !enough {
		t.Errorf("the empty expression: got %v, %v", facts, enough)
	}
}

func TestMistakesHaveColumns(t *testing.T) {
	for _, c := range []struct {
		expression string
		column     int
		message    string
		remedy     string
	}{
		{"", 1, "the expression is empty", "folder=prod"},
		{"  ", 1, "the expression is empty", "folder=prod"},
		{"poweredon && fodler=prod", 14, `"fodler" is not a field`, "did you mean folder?"},
		{"tag=gold", 1, `"tag" is not a field`, "the fields are: name"},
		{"name==web", 5, "== is not an operator", "write ="},
		{"name=~web", 5, "=~ is not an operator", "write ~"},
		{"name ~ a & cbt", 10, "& is not an operator", "write &&"},
		{"name=a and cbt", 8, `"and" is not an operator`, "write &&"},
		{"name=a or cbt", 8, `"or" is not an operator`, "write ||"},
		{"name=my vm", 9, `unexpected "vm"`, "quotes"},
		{"name", 1, "not a boolean field", "name ~"},
		{"name=", 6, "a value is missing", "name ~"},
		{"name=web*", 6, "is a pattern", "name ~ web*"},
		{"name<b", 5, "cannot be compared by <", "name ~"},
		{"cpus ~ 4", 6, "cannot be compared by ~", "cpus >= 8"},
		{"cpus=four", 6, "not a whole number", "cpus >= 8"},
		{"memory=4", 8, "not a size with a unit", "100GiB"},
		{"memory>4GB", 8, "not a size with a unit", "100GiB"},
		{"cbt=yes", 5, "true or false", "cbt"},
		{"(cbt", 5, "a ) is missing", ""},
		{"cbt)", 4, "without a (", ""},
		{"cbt &&", 7, "ends too early", ""},
		{"!", 2, "ends too early", ""},
		{"&& cbt", 1, "unexpected &&", ""},
		{"(cbt (", 6, "unexpected (", ""},
		{`"web01"`, 1, "a field is wanted", "name=web01"},
		{`name="web01`, 6, "not closed", `another "`},
		{"näme=ä && cbt=1", 1, "not a field", "name"},
		{"name=ä && cbt=1", 15, "true or false", ""}, // columns are characters
		{"name=a;b", 7, `unexpected ';'`, "quotes"},
		{strings.Repeat("(", 200) + "cbt", 102, "more than 100 levels", ""},
		{strings.Repeat("!", 200) + "cbt", 102, "more than 100 levels", ""},
		{strings.Repeat("cbt||", 2000) + "cbt", 1, "longer than 4096 bytes", ""},
	} {
		_, err := Parse(c.expression)
		e, ok := errors.AsType[*Error](err)
		if !ok || e.Column != c.column || !strings.Contains(e.Text, c.message) || !strings.Contains(RemedyOf(err), c.remedy) {
			t.Errorf("%.60s: got error %v, remedy %q; want column %d, %q, remedy %q", c.expression, err, RemedyOf(err), c.column, c.message, c.remedy)
		}
	}
}

func TestEmptyExpressionMatchesNothing(t *testing.T) {
	var e Expr
	if !e.IsZero() || e.String() != "" || matchVMs(e, testVMs) != nil {
		t.Errorf("the empty expression: got text %q and %d VMs", e, len(matchVMs(e, testVMs)))
	}
}

// Each field has a description for the help, and a valid example.
func TestExamplesOfFields(t *testing.T) {
	for _, f := range Fields() {
		if _, err := Parse(f.Example); err != nil || f.Means == "" || !strings.Contains(f.Example, f.Name) {
			t.Errorf("field %s (%s), example %q: %v", f.Name, f.Means, f.Example, err)
		}
	}
}

func TestGlob(t *testing.T) {
	for _, c := range []struct {
		pattern, s string
		want       bool
	}{
		{"", "", true}, {"*", "", true}, {"?", "", false}, {"a*b*c", "aXXbYYc", true}, {"a*b*c", "aXXcYYb", false},
		{"*a", "aaab", false}, {"*ab", "aaab", true}, {"??", "äö", true}, {"a**", "a", true}, {"[a]", "a", false},
	} {
		if got := matchGlob(c.pattern, c.s); got != c.want {
			t.Errorf("matchGlob(%q, %q) = %v", c.pattern, c.s, got)
		}
	}
	if matchGlob(strings.Repeat("*a", 500), strings.Repeat("a", 2000)+"b") { // exponential time in a matcher that tries all positions
		t.Error("a pattern matches a text with another end")
	}
}

// The text of an expression parses to the same expression. The column of an error is within the text.
func FuzzParse(f *testing.F) {
	for _, field := range Fields() {
		f.Add(field.Example)
	}
	for _, s := range []string{"folder=prod && !poweredOn", `!(a="b\\" || cbt) && !!tools`, "name='\xff'", "(((", "!(", `name ~ "*\"?"`, "cpus=-1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e, err := Parse(s)
		if err != nil {
			at, ok := errors.AsType[*Error](err)
			if !ok || at.Column < 1 || at.Column > len([]rune(s))+1 || at.Text == "" {
				t.Fatalf("%q: got error %#v", s, err)
			}
			return
		}
		again, err := Parse(e.String())
		if len(e.String()) <= maxBytes && (err != nil || again.String() != e.String()) {
			t.Fatalf("%q: text %q parses to %q, %v", s, e, again, err)
		}
		if err == nil && !slices.Equal(matchVMs(again, testVMs), matchVMs(e, testVMs)) {
			t.Fatalf("%q and %q match different VMs", s, e)
		}
	})
}

// matchVMs returns the VMs that match the expression, in their order.
func matchVMs(e Expr, vms []inventory.VM) []*inventory.VM {
	var chosen []*inventory.VM
	for i := range vms {
		if e.Match(&vms[i]) {
			chosen = append(chosen, &vms[i])
		}
	}
	return chosen
}
