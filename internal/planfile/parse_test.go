package planfile

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// head is the beginning of a valid plan.
const head = "version: 1\nname: p\nsource: {url: esxi://root@esx1}\n"

// minimal is the shortest valid plan.
const minimal = head + "defaults: {to: [dir:/srv/vm]}\nvms: [{vm: web01}]\n"

func mustParse(t *testing.T, text string) *File {
	t.Helper()
	f, found := Parse([]byte(text))
	if len(found) > 0 {
		t.Fatalf("got findings %v in:\n%s", found, text)
	}
	return f
}

// Plans of all earlier releases load. The files in testdata never change.
func TestPlansOfAllReleasesLoad(t *testing.T) {
	files, err := filepath.Glob("testdata/v*/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("got %d files, %v", len(files), err)
	}
	for _, file := range files {
		if f, found, err := Load(file); err != nil || len(found) > 0 || f.Name == "" {
			t.Errorf("%s: got findings %v, %v", file, found, err)
		}
	}
}

func TestDefaultsOfMinimalPlan(t *testing.T) {
	f := mustParse(t, minimal)
	o := f.VMs[0].Options
	if o.Format != "raw" || o.Transport != "https" || o.Connections != 8 || o.Mode != Cold || o.PowerOff != NeverOff ||
		o.ShutdownWait != Duration(5*time.Minute) || o.Landing.Memory != 1<<30 || o.NFC.Handles != 4 || o.Warm.Interval != Duration(time.Hour) {
		t.Errorf("got default options %+v", o)
	}
	if f.VMs[0].Pos != (Pos{5, 7}) {
		t.Errorf("got position %+v of the VM", f.VMs[0].Pos)
	}
}

func TestVMOverridesDefaults(t *testing.T) {
	f := mustParse(t, head+`vms:
  - vm: a
    warm: {paranoid: false, cutover: 2026-12-01T02:00Z}
    nfc: {handles: 2}
    priority: 0
  - vm: b
defaults:        # also where they stand behind the VMs
  to: [dir:/srv/vm/]
  transport: nfc
  priority: 7
  nfc: {buffer: 2M}
  warm: {interval: 10m, paranoid: true}
  hooks: {pre: {command: [/bin/x]}}
`)
	a, b := f.VMs[0].Options, f.VMs[1].Options
	if a.Warm.Paranoid || !b.Warm.Paranoid || a.Warm.Interval != Duration(10*time.Minute) || a.Warm.Cutover.At.Hour() != 2 || !b.Warm.Cutover.At.IsZero() {
		t.Errorf("got warm options %+v and %+v", a.Warm, b.Warm)
	}
	if a.NFC != (NFC{Handles: 2, Buffer: 2 << 20, Buffers: 4}) || b.NFC.Handles != 4 || a.Priority != 0 || b.Priority != 7 || a.Transport != "nfc" {
		t.Errorf("got options %+v and %+v", a, b)
	}
	if f.Defaults.To[0] != "dir:/srv/vm" || len(a.Hooks.Pre.Command) != 1 || a.Hooks.Pre.Timeout != Duration(10*time.Minute) {
		t.Errorf("got defaults %+v, hooks %+v", f.Defaults.To, a.Hooks)
	}
}

// mistakes contains plans with one mistake each, and its position, message and remedy.
var mistakes = []struct {
	name, text      string
	line, column    int
	message, remedy string
}{
	{"empty", "", 0, 0, "the plan is empty", "plan init"},
	{"comments only", "# nothing\n", 0, 0, "the plan is empty", "plan init"},
	{"a list", "- a\n", 1, 1, "want keys with values, not a list", ""},
	{"invalid YAML", "version: 1\n\tname: x\n", 2, 0, "found a tab character", "indent with spaces"},
	{"two documents", minimal + "---\nversion: 1\n", 6, 0, "a second document", "one document"},
	{"another version", strings.Replace(minimal, "version: 1", "version: 2\nnmae: x", 1), 1, 10, "version 2 is not supported", "newer decamp"},
	{"no version", strings.Replace(minimal, "version: 1\n", "", 1), 1, 1, "version is missing", ""},
	{"no source", "version: 1\nname: p\ndefaults: {to: [dir:/x]}\nvms: [{vm: a}]\n", 1, 1, "source is missing", "ESXi host or vCenter"},
	{"no VM", head, 0, 0, "migrates no VM", "select"},
	{"unknown key", minimal + "slect: name=x\n", 6, 1, `unknown key "slect"`, "did you mean select?"},
	{"unknown key deep", minimal + "limits:\n  host: {vm: 3}\n", 7, 10, `limits.host: unknown key "vm"`, "did you mean vms?"},
	{"key of another section", minimal + "landing: {}\n", 6, 1, `unknown key "landing"`, "valid keys: version"},
	{"key twice", minimal + "name: q\n", 6, 1, `duplicate key "name", first in line 2`, "keep one"},
	{"network twice", minimal + "maps: {networks: {a: x, a: y}}\n", 6, 25, `duplicate key "a"`, "keep one"},
	{"empty list", head + "  \nvms: []\n", 5, 6, "the list is empty", ""},
	{"a password", strings.Replace(minimal, "esxi://root@esx1}", "esxi://root@esx1, password: hunter2}", 1), 3, 33, `unknown key "password"`, "contains no secrets"},
	{"a password in the URL", strings.Replace(minimal, "root@", "root:hunter2@", 1), 3, 15, "contains a password", "--password-file"},
	{"a password for credentials", strings.Replace(minimal, "esxi://root@esx1}", "esxi://root@esx1, credentials: hunter2}", 1), 3, 46, "want keys with values, not one value", ""},
	{"key in place of its file", strings.Replace(minimal, "esxi://root@esx1}", `esxi://root@esx1, ssh: {key: "-----BEGIN hunter2"}}`, 1), 3, 44, "must be the name of a file", "contains no secrets"},
	{"two credentials", strings.Replace(minimal, "esxi://root@esx1}", "esxi://root@esx1, credentials: {file: a, name: b}}", 1), 3, 33, "exclude each other", "keep one"},
	{"no such scheme", strings.Replace(minimal, "esxi:", "ssh:", 1), 3, 15, "neither esxi nor vcenter", "esxi://root@HOST"},
	{"direct ESXi", strings.Replace(minimal, "esx1}", "esx1, direct: true}", 1), 3, 33, "only a vCenter", "remove it"},
	{"number for text", head + "defaults: {to: [dir:/x]}\nvms: [{vm: 007}]\n", 5, 12, "want text, not a number", "in quotes"},
	{"boolean for text", head + "defaults: {to: [dir:/x]}\nvms: [{vm: true}]\n", 5, 12, "want text, not a truth value", "in quotes"},
	{"no value for text", head + "defaults: {to: [dir:/x]}\nvms: [{vm: }]\n", 5, 12, "the value is missing", "remove the key"},
	{"one value for a list of structures", minimal + "limits: {bandwidth: 100M}\n", 6, 21, "limits.bandwidth: want a list, not one value", ""},
	{"yes", strings.Replace(minimal, "defaults: {", "defaults: {sourceHash: yes, ", 1), 4, 24, "want true or false", ""},
	{"text for a number", strings.Replace(minimal, "defaults: {", `defaults: {priority: "7", `, 1), 4, 22, "want a whole number", ""},
	{"hexadecimal", strings.Replace(minimal, "defaults: {", `defaults: {priority: 0x7, `, 1), 4, 22, "want a whole number", ""},
	{"number above the maximum", strings.Replace(minimal, "defaults: {", `defaults: {connections: 13, `, 1), 4, 25, "13 is not between 1 and 12", ""},
	{"unknown word", strings.Replace(minimal, "defaults: {", `defaults: {transport: http, `, 1), 4, 23, `"http" is not one of https, nfc, landing`, "did you mean https?"},
	{"relative folder", head + "defaults: {to: [\"dir:vm\"]}\nvms: [{vm: a}]\n", 4, 17, "is not an absolute path", "dir:/FOLDER"},
	{"no folder", head + "defaults: {to: [/srv/vm]}\nvms: [{vm: a}]\n", 4, 17, "is not a destination", "dir:/FOLDER"},
	{"same folder twice", head + "defaults: {to: [dir:/x, dir:/x/]}\nvms: [{vm: a}]\n", 4, 25, "occurs twice", "keep one"},
	{"no destination", head + "vms: [{vm: a}]\n", 4, 7, "the destination of the VM is missing", "defaults: {to:"},
	{"selection without destination", head + "select: cbt\n", 4, 1, "the destination of the VMs is missing", "defaults: {to:"},
	{"same VM twice", strings.Replace(minimal, "{vm: web01}", "{vm: web01}, {vm: web01}", 1), 5, 21, "web01 occurs twice, first in line 5", "keep one"},
	{"size", strings.Replace(minimal, "defaults: {", `defaults: {landing: {memory: 1.5G}, `, 1), 4, 30, "want a whole number with K, M, G or T", ""},
	{"rate in bits", minimal + "limits: {bandwidth: [{rate: 10Gbit}]}\n", 6, 29, "want bytes a second", "1250M"},
	{"time", strings.Replace(minimal, "defaults: {", `defaults: {shutdownWait: 5, `, 1), 4, 26, "want text, not a number", ""},
	{"time without a unit", strings.Replace(minimal, "defaults: {", `defaults: {shutdownWait: "5", `, 1), 4, 26, "want a time such as 30s", ""},
	{"negative time", strings.Replace(minimal, "defaults: {", `defaults: {shutdownWait: -5m, `, 1), 4, 26, "want a time such as 30s", ""},
	{"no interval", strings.Replace(minimal, "defaults: {", `defaults: {warm: {interval: 0s}, `, 1), 4, 19, "want a duration above 0", ""},
	{"cutover without a zone", strings.Replace(minimal, "defaults: {", `defaults: {warm: {cutover: 2026-12-01T02:00}, `, 1), 4, 28, "a time with its zone", ""},
	{"cutover without window", strings.Replace(minimal, "defaults: {", `defaults: {warm: {cutover: window}, `, 1), 4, 19, "the window is missing", "window: {from"},
	{"window without cutover", strings.Replace(minimal, "defaults: {", `defaults: {warm: {window: {days: [sat]}}, `, 1), 4, 19, "cutover is not window", "cutover: window"},
	{"incomplete window", strings.Replace(minimal, "defaults: {", `defaults: {warm: {cutover: window, window: {from: "22:00"}}, `, 1), 4, 36, "belong together", "both or none"},
	{"empty window", minimal + `limits: {bandwidth: [{rate: 1M, from: "08:00", to: "08:00"}]}`, 6, 48, "from and to are equal", "remove both"},
	{"clock", minimal + `limits: {bandwidth: [{rate: 1M, from: "8:00", to: "24:00"}]}`, 6, 39, "want a time of day", ""},
	{"zone", minimal + `limits: {bandwidth: [{rate: 1M, days: [mon], zone: Europe/Berln}]}`, 6, 52, "time zone", "Europe/Berlin"},
	{"zone of this machine", minimal + `limits: {bandwidth: [{rate: 1M, days: [mon], zone: Local}]}`, 6, 52, "time zone", "Europe/Berlin"},
	{"zone without times", minimal + `limits: {bandwidth: [{rate: 1M, zone: UTC}]}`, 6, 33, "requires from and to", ""},
	{"day", minimal + `limits: {bandwidth: [{rate: 1M, days: [monday]}]}`, 6, 40, `"monday" is not one of`, "did you mean mon?"},
	{"day twice", minimal + `limits: {bandwidth: [{rate: 1M, days: [mon, mon]}]}`, 6, 45, "mon occurs twice", "keep one"},
	{"never in force", minimal + `limits: {bandwidth: [{rate: 1M}, {rate: 2M}]}`, 6, 34, "never in force", "to the end"},
	{"hook for a shell", minimal + "hooks: {pre: {command: rm -rf /tmp/x}}\n", 6, 24, "want a list, not one value", ""},
	{"hook without a command", minimal + "hooks: {pre: {timeout: 1m}}\n", 6, 9, "the command is missing", "command: ["},
	{"hook without time", minimal + "hooks: {pre: {command: [a], timeout: 0s}}\n", 6, 29, "want a duration above 0", ""},
	{"buffer", strings.Replace(minimal, "defaults: {", `defaults: {nfc: {buffer: 100K}, `, 1), 4, 18, "multiple of 64K", ""},
	{"buffers", strings.Replace(minimal, "defaults: {", `defaults: {nfc: {buffer: 2M, buffers: 9}, `, 1), 4, 30, "at most 16M", ""},
	{"warm to several", head + "defaults: {to: [dir:/a, dir:/b]}\nvms: [{vm: a, mode: warm}]\n", 5, 7, "one destination, not 2", "mode: cold"},
	{"trial of a warm migration", strings.Replace(minimal, "defaults: {", `defaults: {trial: true, mode: warm, `, 1), 4, 12, "exclude each other", "decamp rehearse PLAN/VM"},
	{"start in a folder", strings.Replace(minimal, "{vm: web01}", "{vm: web01, start: true}", 1), 5, 19, "a folder cannot start VMs", "libvirt"},
	{"start at two destinations", strings.Replace(minimal, "{vm: web01}", "{vm: web01, start: true, to: [\"libvirt:a?staging=/a\", \"libvirt:b?staging=/b\"]}", 1), 5, 19, "one destination, not 2", "one destination"},
	{"expect without trial", strings.Replace(minimal, "{vm: web01}", "{vm: web01, expect: up}", 1), 5, 19, "trial is not set", "trial: true"},
	{"hardware", strings.Replace(minimal, "defaults: {", `defaults: {hardware: virtoi, `, 1), 4, 22, `"virtoi" is not one of compat, virtio, auto`, "did you mean virtio?"},
	{"guest agent without virtio", strings.Replace(minimal, "{vm: web01}", "{vm: web01, guestAgent: true}", 1), 5, 19, "hardware compat does not permit that", "hardware: virtio"},
	{"selection", head + "defaults: {to: [dir:/x]}\nselect: fodler=prod\n", 5, 9, `select: column 1: "fodler" is not a field`, "did you mean folder?"},
	{"UUID", strings.Replace(minimal, "{vm: web01}", "{vm: web01, uuid: xyz}", 1), 5, 25, "want text such as", ""},
	{"IP", strings.Replace(minimal, "defaults: {", `defaults: {landing: {advertise: esx1}, `, 1), 4, 33, "want an IP address", ""},
	{"fingerprint", strings.Replace(minimal, "esx1}", `esx1, fingerprint: "AB:CD"}`, 1), 3, 46, "want a SHA-256", ""},
	{"name", strings.Replace(minimal, "name: p", "name: my plan", 1), 2, 7, "want a name of letters", ""},
	{"anchor", strings.Replace(minimal, "{to:", "&d {to:", 1), 4, 11, "anchors and aliases are not supported", "defaults"},
	{"alias", minimal + "hooks: *d\n", 0, 0, "unknown anchor", ""},
	{"merge key", strings.Replace(minimal, "{vm: web01}", "{vm: web01, <<: {priority: 1}}", 1), 5, 19, "a key must be text", ""},
	{"tag", strings.Replace(minimal, "vm: web01", "vm: !!str web01", 1), 5, 12, "tags (!!str) are not supported", "without a tag"},
	{"key is not text", minimal + "maps: {networks: {12: br0}}\n", 6, 19, "a key must be text", "in quotes"},
}

func TestMistakesHavePositionAndRemedy(t *testing.T) {
	for _, c := range mistakes {
		t.Run(c.name, func(t *testing.T) {
			_, found := Parse([]byte(c.text))
			if len(found) == 0 {
				t.Fatalf("got no findings in:\n%s", c.text)
			}
			f := found[0]
			if !slices.ContainsFunc(found, func(f Finding) bool {
				return f.Line == c.line && f.Column == c.column && strings.Contains(f.Text, c.message) && strings.Contains(f.Remedy, c.remedy)
			}) {
				t.Errorf("got %v, remedy %q; want %d:%d %q, remedy %q", found, f.Remedy, c.line, c.column, c.message, c.remedy)
			}
			if fault.KindOf(found.Err()) != fault.Invalid {
				t.Errorf("got kind %v, want Invalid", fault.KindOf(found.Err()))
			}
			for _, f := range found {
				if strings.Contains(f.Text+f.Remedy, "hunter2") {
					t.Errorf("the finding contains a secret: %v %s", f, f.Remedy)
				}
			}
		})
	}
}

// A VM may be only its name, and a list with one element may be the element.
func TestShortForms(t *testing.T) {
	const long = head + "defaults: {to: [dir:/x], mode: warm}\nvms: [{vm: web01}, {vm: web02}]\nlimits: {bandwidth: [{rate: 1M, days: [mon]}]}\n"
	for name, c := range map[string]struct{ old, short string }{
		"a VM is its name":   {"[{vm: web01}, {vm: web02}]", "[web01, {vm: web02}]"},
		"one destination":    {"[dir:/x]", "dir:/x"},
		"one day":            {"[mon]", "mon"},
		"all VMs by name":    {"[{vm: web01}, {vm: web02}]", "\n- web01\n- web02"},
		"one VM and no list": {"[{vm: web01}, {vm: web02}]", "web01"},
	} {
		want := long
		if name == "one VM and no list" {
			want = strings.Replace(long, ", {vm: web02}", "", 1)
		}
		short := strings.Replace(long, c.old, c.short, 1)
		f, found := Parse([]byte(short))
		w, wantFound := Parse([]byte(want))
		if len(found)+len(wantFound) > 0 {
			t.Errorf("%s: got findings %v and %v", name, found, wantFound)
			continue
		}
		for i := range f.VMs {
			if f.VMs[i].Pos.Line == 0 {
				t.Errorf("%s: VM %d has no position", name, i)
			}
			f.VMs[i].Pos = w.VMs[i].Pos
		}
		if f.positions, w.positions = nil, nil; !reflect.DeepEqual(f, w) {
			t.Errorf("%s: got %+v, want %+v", name, f, w)
		}
		if err := validateText(t, compileSchema(t), short); err != nil {
			t.Errorf("%s: the schema refuses it: %v", name, err)
		}
	}
}

func TestAllMistakesAreReported(t *testing.T) {
	_, found := Parse([]byte("version: 1\nname: a b\nsource: {url: x, bogus: 1}\nlimits: {host: {vms: 0}}\nvms: [{vm: 1}, {}, {vm: ok, spot: {first: x}}]\n"))
	want := []string{"2:7: name: ", "3:15: source.url: ", `3:18: source: unknown key "bogus"`, "4:22: limits.host.vms: ", "5:12: vms[0].vm: ", "5:16: vms[1]: vm is missing", "5:43: vms[2].spot.first: "}
	if len(found) != len(want) {
		t.Fatalf("got %d findings, want %d: %v", len(found), len(want), found)
	}
	for i, w := range want {
		if !strings.HasPrefix(found[i].String(), w) {
			t.Errorf("finding %d is %q, want %q…", i, found[i], w)
		}
	}
}

// A plan may be JSON, which is a subset of YAML.
func TestPlanInJSON(t *testing.T) {
	mustParse(t, `{"version": 1, "name": "p", "source": {"url": "esxi://root@h"}, "defaults": {"to": ["dir:/x"], "spot": {"first": 1024}}, "vms": [{"vm": "a"}]}`)
}

// Hostile texts are refused quickly, with few and short findings.
func TestBombs(t *testing.T) {
	lol := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for i := 'b'; i <= 'z'; i++ {
		lol += string(i) + ": &" + string(i) + " [" + strings.Repeat("*"+string(i-1)+",", 8) + "*" + string(i-1) + "]\n"
	}
	for name, text := range map[string]string{
		"a billion laughs": minimal + lol,
		"deep lists":       minimal + "x: " + strings.Repeat("[", 100_000),
		"deep keys":        minimal + "x: " + strings.Repeat("{a: ", 100_000),
		"deep dashes":      strings.Repeat("- ", 100_000),
		"large":            minimal + "# " + strings.Repeat("x", maxBytes),
		"many values":      minimal + "x: [" + strings.Repeat("1,", maxNodes) + "1]",
		"many keys":        minimal + strings.Repeat("vms: []\n", 40_000),
		"one long word":    minimal + "x: " + strings.Repeat("a", 1<<20),
		"one long key":     minimal + strings.Repeat("a", 1000) + ": 1",
		"one long value":   strings.Replace(minimal, "{to", "{format: "+strings.Repeat("ä", 1<<20)+", to", 1),
		"many mistakes":    minimal + "x: 1\n" + strings.Repeat("y: 1\n", 100_000),
	} {
		began := time.Now()
		_, found := Parse([]byte(text))
		if len(found) == 0 || found.Err() == nil || len(found) > maxMistakes+1 {
			t.Errorf("%s: got %d findings", name, len(found))
		}
		for _, f := range found {
			if len(f.Text)+len(f.Remedy) > 4*maxQuoteBytes {
				t.Errorf("%s: got a finding of %d bytes", name, len(f.Text)+len(f.Remedy))
			}
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("%s: Parse took %v", name, took)
		}
	}
}

// Parse returns a valid plan or findings with a position in the text.
func FuzzParse(f *testing.F) {
	for _, c := range mistakes {
		f.Add([]byte(c.text))
	}
	files, _ := filepath.Glob("testdata/v*/*.yaml")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		file, found := Parse(text)
		lines := strings.Count(string(text), "\n") + strings.Count(string(text), "\r") + 2
		for _, each := range found {
			if each.Text == "" || !each.Blocks || each.Line < 0 || each.Line > lines && !strings.ContainsAny(string(text), "\u0085\u2028\u2029") {
				t.Fatalf("finding %+v in %d lines", each, lines)
			}
		}
		if len(found) == 0 && (file == nil || file.Version != Version || file.Name == "" || file.Source.URL == "" || file.Select.IsZero() && len(file.VMs) == 0) {
			t.Fatalf("got a plan without a required key: %+v", file)
		}
	})
}

// Parse returns equal plans for equal texts. A change to one of them does not change the others.
func TestRepeatedParseReturnsIndependentPlans(t *testing.T) {
	text := func(vm string) []byte {
		return []byte("version: 1\nname: p\nsource: {url: esxi://root@h, credentials: {file: a}}\ndefaults: {to: [dir:/x]}\nvms: [{vm: " + vm + "}]\n")
	}
	first, found := Parse(text("a"))
	if len(found) > 0 {
		t.Fatal(found)
	}
	again, found := Parse(text("a"))
	if len(found) > 0 || again == first || !reflect.DeepEqual(again, first) {
		t.Errorf("second parse: got %+v, %v; want %+v", again, found, first)
	}
	again.Source.Credentials = Credentials{}
	if third, _ := Parse(text("a")); third.Source.Credentials.File != "a" || first.Source.Credentials.File != "a" {
		t.Errorf("a change to one plan changed another: %+v", third.Source.Credentials)
	}
	if other, _ := Parse(text("b")); other.VMs[0].VM != "b" {
		t.Errorf("another text: got the plan of the text before: %+v", other.VMs)
	}
	if _, found := Parse(text("]")); len(found) == 0 {
		t.Error("an invalid text: got no findings")
	}
}
