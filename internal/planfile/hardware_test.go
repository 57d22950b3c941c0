package planfile_test

import (
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/planfile"
)

const someHardware = `version: 1
hosts: {"*": 300M, esx1: 1.5G}
datastores: {slow: 100M}
link: 2G
vm: 120M
disk: 60M
contention: 0.1%
startDelay: 30s
uncertainty: 15%
perHost: {vms: 10}
vms: [{count: 3, hosts: 2, disks: 2, allocated: 8G}, {count: 1, allocated: 1T}]
`

func TestHardwareIsRead(t *testing.T) {
	h, found := planfile.ParseHardware([]byte(someHardware))
	if len(found) > 0 {
		t.Fatal(found)
	}
	want := map[string]int64{
		"host:*/rate": 300e6, "host:esx1/rate": 1500e6, "datastore:slow/rate": 100e6,
		"link:all/rate": 2e9, "vm:*/rate": 120e6, "disk:*/rate": 60e6,
	}
	got := h.Rates(1)
	for name, rate := range want {
		if got[name] != rate {
			t.Errorf("%s: got rate %d, want %d", name, got[name], rate)
		}
	}
	if len(got) != len(want) || h.Rates(0.5)["vm:*/rate"] != 60e6 || h.Crowd != 0.001 || h.VMs[0].Hosts != 2 || h.VMs[1].Disks != 1 {
		t.Errorf("got rates %v of %+v", got, h)
	}
}

func TestHardwareIsReadStrictly(t *testing.T) {
	for text, message := range map[string]string{
		"":                             "empty",
		"version: 2":                   "version 2 is not supported",
		"hosts: {}":                    "version is missing",
		"version: 1\nhost: {}":         "did you mean hosts?",
		"version: 1\ncontention: 5":    "want text",
		"version: 1\ncontention: 100%": "below 100%",
		"version: 1\nlink: fast":       "rate",
		"version: 1\nvms: []":          "the list is empty",
		"version: 1\nvms: [{count: 0, allocated: 1G}]": "not between 1 and",
		"version: 1\nhosts: &a {esx1: 1M}":             "anchors",
		"version: 1\n---\nversion: 1":                  "second document",
		"version: 1\nhosts: {esx1: 1M, *a}":            "unknown anchor",
	} {
		h, found := planfile.ParseHardware([]byte(text))
		if len(found) == 0 {
			t.Errorf("%q: got %+v, want an error", text, h)
			continue
		}
		if got := found[0].Text + " " + found[0].Remedy; !strings.Contains(got, message) {
			t.Errorf("%q: got %s, want %s", text, got, message)
		}
	}
}

func FuzzParseHardware(f *testing.F) {
	f.Add([]byte(someHardware))
	f.Fuzz(func(t *testing.T, text []byte) {
		h, found := planfile.ParseHardware(text)
		if len(found) > 0 {
			return
		}
		for name, rate := range h.Rates(1) {
			if rate <= 0 {
				t.Errorf("rate %s: got %d of %q", name, rate, text)
			}
		}
	})
}
