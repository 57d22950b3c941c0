package vsphere

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestLoadConfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lab.json")
	text := `{
		"limits": {"connRate": "55MiB", "latency": "20ms"},
		"sessions": {"idle": "2m"},
		"vms": [{"name": "web01", "guest": {"shutdownDelay": "3s"}, "disks": [{"capacity": "8GiB", "fill": 30, "unit": 2}]}],
		"faults": [{"kind": "status", "count": 3}]
	}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := LoadConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	vm := cfg.VMs[0]
	if cfg.Limits.ConnRate != 55<<20 || cfg.Limits.Latency != Duration(20*time.Millisecond) || vm.Disks[0].Capacity != 8<<30 ||
		*vm.Disks[0].Unit != 2 || vm.Guest.ShutdownDelay != Duration(3*time.Second) || cfg.Sessions.Idle != Duration(2*time.Minute) || cfg.Faults[0].Count != 3 {
		t.Errorf("%+v", cfg)
	}
	data, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := parseConfig(data); err != nil || !reflect.DeepEqual(again, cfg) {
		t.Errorf("after the round trip: %+v %v", again, err)
	}
}

func TestConfigErrors(t *testing.T) {
	for text, want := range map[string]string{
		`{"vm": []}`:                                                                     `unknown field "vm"`,
		`{"limits": {"connRate": "5 apples"}}`:                                           `"5 apples"`,
		`{"limits": {"latency": "soon"}}`:                                                "soon",
		`{"vms": [{}]}`:                                                                  "without a name",
		`{"vms": [{"name": "a"}, {"name": "a"}]}`:                                        "named twice",
		`{"vms": [{"name": "a", "disks": [{}]}]}`:                                        "want a capacity or a file",
		`{"vms": [{"name": "a", "disks": [{"capacity": 100}]}]}`:                         "multiple of 512",
		`{"vms": [{"name": "a", "disks": [{"capacity": 512, "fill": 101}]}]}`:            "percentage",
		`{"vms": [{"name": "a", "disks": [{"capacity": 512, "controller": "floppy"}]}]}`: `controller "floppy"`,
		`{"vms": [{"name": "a", "disks": [{"capacity": 512, "datastore": "gone"}]}]}`:    `no datastore "gone"`,
		`{"vms": [{"name": "a", "disks": [{"capacity": 512, "name": "../x.vmdk"}]}]}`:    "file name",
		`{"vms": [{"name": "a", "nics": [{"model": "ne2000"}]}]}`:                        `model "ne2000"`,
		`{"vms": [{"name": "a", "firmware": "coreboot"}]}`:                               `firmware "coreboot"`,
		`{"vms": [{"name": "a", "folder": "../.."}]}`:                                    "one path element",
		`{"vcenter": true, "vms": [{"name": "a", "host": "esx9"}]}`:                      `no host "esx9"`,
		`{"nfc": {"order": "upside-down"}}`:                                              `order "upside-down"`,
		`{"nfc": {"fragments": [0]}}`:                                                    "fragment of 0",
		`{"nfc": {"network": "esx1"}}`:                                                   "want an IP",
		`{"nfc": {"memory": -2}}`:                                                        "nothing negative",
		`{"vms": [{"name": "a", "guest": {"writes": {"spread": 101}}}]}`:                 "spread",
		`{"datastores": [{"name": "[x]"}]}`:                                              "datastore",
		`{"datastores": [{"name": "x", "type": "tape"}]}`:                                `type "tape"`,
		`{"limits": {"connRate": -1}}`:                                                   "negative",
		`{"sessions": {"max": -1}}`:                                                      "negative",
		`{"cbt": {"granularity": 1000}}`:                                                 "multiple of 512",
		`{"datastores": [{"name": "x", "map": "treasure"}]}`:                             `map "treasure"`,
		`{"locks": "none"}`:                                                              "locks",
		`{"faults": [{"kind": "fire"}]}`:                                                 "unknown kind",
	} {
		if _, err := parseConfig([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add(`{"vms": [{"name": "a", "disks": [{"capacity": "8GiB", "fill": 3}], "nics": [{}]}]}`)
	f.Add(`{"vcenter": true, "datacenters": [{"name": "x", "hosts": []}], "limits": {"connRate": "9999999TiB"}}`)
	f.Add(`{"datacenters": [], "sessions": {"idle": "-1h"}, "cbt": {"granularity": 0}}`)
	f.Fuzz(func(t *testing.T, text string) {
		cfg, err := parseConfig([]byte(text))
		if err != nil {
			return
		}
		if err := cfg.withDefaults().validate(); err != nil {
			t.Errorf("accepted by parseConfig, but refused by validate: %v", err)
		}
	})
}

func FuzzParseRange(f *testing.F) {
	for _, s := range []string{"", "bytes=0-0", "bytes=5-", "bytes=-5", "bytes=9-3", "bytes=0-1,2-3", "bytes=99999999999999999999-", "bytes=--1"} {
		f.Add(s, int64(4096))
	}
	f.Fuzz(func(t *testing.T, header string, size int64) {
		size = max(0, size)
		first, length, partial, ok := parseRange(header, size)
		switch {
		case !ok && (first != 0 || length != 0):
			t.Errorf("refused, but got range %d+%d", first, length)
		case ok && !partial && (first != 0 || length != size):
			t.Errorf("got range %d+%d for the whole file of %d bytes", first, length, size)
		case partial && (first < 0 || length <= 0 || first > size-length):
			t.Errorf("%q: %d+%d of %d", header, first, length, size)
		}
	})
}

func FuzzParseTicketURL(f *testing.F) {
	f.Add("httpGet", "https://esx1/folder/a%20b/c.vmdk?dsName=x")
	f.Add("httpPut", "::")
	f.Fuzz(func(t *testing.T, method, raw string) {
		ticket, err := parseTicketURL(method, raw)
		if err == nil && ticket.method != strings.ToUpper(ticket.method) {
			t.Errorf("method %q", ticket.method)
		}
	})
}

// The lab starts with the example in docs/lab.md.
func TestManualExample(t *testing.T) {
	data, err := os.ReadFile("../../../docs/lab.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), "```json\n")
	text, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("docs/lab.md has no JSON example")
	}
	cfg, err := parseConfig([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Addr = ""
	if l := startLab(t, cfg); len(l.machines) != 2 {
		t.Errorf("%d VMs", len(l.machines))
	}
}
