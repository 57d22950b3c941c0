package planfile_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/namemap"
	"github.com/decamp/decamp/internal/planfile"
)

const someMap = `version: 1
networks:
  VM Network: vmbr0
  backup: {to: vmbr1, vlan: 20, model: virtio}
  "dv-*": multus:vms/*
storages: {ssd1: fast, "*": slow}
names:
  db01: database
  "prod-*": "*"
`

var someMapping = namemap.Map{
	Networks: map[string]namemap.Network{"VM Network": {To: "vmbr0"}, "backup": {To: "vmbr1", VLAN: 20, Model: "virtio"}, "dv-*": {To: "multus:vms/*"}},
	Storages: map[string]string{"ssd1": "fast", "*": "slow"},
	Names:    map[string]string{"db01": "database", "prod-*": "*"},
}

// A file for --map and the maps of a plan have the same format.
func TestMapInFileAndPlan(t *testing.T) {
	path := filepath.Join(t.TempDir(), "map.yaml")
	if err := os.WriteFile(path, []byte(someMap), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := planfile.LoadMap(path)
	if err != nil || !reflect.DeepEqual(got, someMapping) {
		t.Errorf("got map %+v, %v", got, err)
	}
	plan := "version: 1\nname: p\nsource: {url: esxi://root@h}\ndefaults: {to: [dir:/x]}\nvms: [{vm: a}]\nmaps:\n"
	for line := range strings.Lines(strings.TrimPrefix(someMap, "version: 1\n")) {
		plan += "  " + line
	}
	f, found := planfile.Parse([]byte(plan))
	if len(found) > 0 || !reflect.DeepEqual(f.Maps.Value(), someMapping) {
		t.Errorf("got findings %v, plan %+v", found, f)
	}
}

func TestMapErrorsHaveLineNumbers(t *testing.T) {
	for text, want := range map[string]string{
		"":                                            "the map is empty",
		"# nothing\n":                                 "empty",
		"networks: {a: }":                             "1: networks.a: the value is missing",
		"networks:\n  a: {vlan: 5}":                   "2: networks.a: to is missing",
		"networks:\n  a: {to: x, vlan: 4095}":         "2: networks.a.vlan: 4095 is not between 1 and 4094",
		"networks:\n  a: {to: x, model: vmxnet}":      "did you mean vmxnet3?",
		"networks:\n  a: {to: x, tag: 4}":             `2: networks.a: unknown key "tag"`,
		"networks:\n  a: x\n  a: y":                   "duplicate key",
		"networks: [a, b]":                            "want keys with values, not a list",
		"storages:\n  \"a*b*\": x":                    "2: storages.a*b*: a name may have only one *",
		"names:\n  web: \"x-*\"":                      "2: names.web: the new name has a *",
		"names:\n  web: \"\"":                         "2: names.web: want a printable name",
		"names:\n  web: \"a\\nb\"":                    "2: names.web: want a printable name",
		"names:\n  web: " + strings.Repeat("x", 241):  "240 bytes",
		"datastores: {ssd: dir:/x}":                   `unknown key "datastores"`,
		"version: 2":                                  "version 2 is not supported",
		"networks: &a {x: y}":                         "anchors and aliases are not supported",
		"networks: {\"*\": a}\n---\nnetworks: {b: c}": "a second document begins",
	} {
		_, found := planfile.ParseMap([]byte(text))
		if len(found) == 0 {
			t.Errorf("%q is accepted", text)
			continue
		}
		if got := fmt.Sprintf("%d: %s %s", found[0].Line, found[0].Text, found[0].Remedy); !strings.Contains(got, want) {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}

func TestUnreadableMapFiles(t *testing.T) {
	dir := t.TempDir()
	if _, err := planfile.LoadMap(filepath.Join(dir, "none.yaml")); !fault.Is(err, fault.NotFound) {
		t.Errorf("no file: %v", err)
	}
	path := filepath.Join(dir, "map.yaml")
	if err := os.WriteFile(path, []byte("networks:\n  a: {vlan: 5}\n  b: {vlan: 6}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := planfile.LoadMap(path)
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "map.yaml:2: ") || !strings.Contains(err.Error(), "1 more mistake") {
		t.Errorf("a map with two mistakes: %v", err)
	}
	huge := filepath.Join(dir, "huge.yaml")
	f, err := os.Create(huge)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(1 << 40); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if _, err := planfile.LoadMap(huge); !fault.Is(err, fault.Invalid) {
		t.Errorf("a file of 1 TiB: %v", err)
	}
}

func FuzzParseMap(f *testing.F) {
	f.Add([]byte(someMap), "prod-web")
	f.Add([]byte("networks: {a: {to: b, vlan: 4094}}\nnames: {\"*\": \"x-*\"}\n"), "a")
	f.Fuzz(func(t *testing.T, text []byte, name string) {
		file, found := planfile.ParseMap(text)
		if len(found) > 0 {
			return
		}
		m := file.Value()
		if m.Name(name) == "" && name != "" && !namemap.Has(m.Names, name) {
			t.Errorf("%q: got an empty name by %q", name, text)
		}
		for from, n := range m.Networks {
			if n.To == "" || n.VLAN < 0 || n.VLAN > 4094 || from == "" {
				t.Errorf("network %q: %+v", from, n)
			}
		}
		m.Network(name)
		m.Storage(name)
	})
}
