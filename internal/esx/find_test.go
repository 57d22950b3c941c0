package esx

import (
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

var testVMs = []inventory.VM{
	{Ref: "vm-1", Name: "web01", UUID: "11111111-0000-0000-0000-000000000000", Datacenter: "F/DC0", Folder: "prod"},
	{Ref: "vm-2", Name: "web01", UUID: "22222222-0000-0000-0000-000000000000", Datacenter: "DC1"},
	{Ref: "vm-3", Name: "a/b", InstanceUUID: "33333333-0000-0000-0000-00000000000a", Datacenter: "DC1", Folder: "x/y"},
	{Ref: "vm-4", Name: "db", Datacenter: "DC1"},
	{Ref: "vm-5", Name: "vm-4", Datacenter: "DC1"},
	{Ref: "vm-6", Name: "Webserver", Datacenter: "DC1"},
}

func TestFind(t *testing.T) {
	for what, want := range map[string]inventory.MoRef{
		"vm-1":                                 "vm-1",
		"22222222-0000-0000-0000-000000000000": "vm-2",
		"33333333-0000-0000-0000-00000000000A": "vm-3",
		"a/b":                                  "vm-3",
		"/DC1/vm/x/y/a%2fb":                    "vm-3",
		"y/a%2fb":                              "vm-3",
		"/F/DC0/vm/prod/web01":                 "vm-1",
		"prod/web01":                           "vm-1",
		"DC1/vm/web01":                         "vm-2",
		"db":                                   "vm-4",
		"Webserver":                            "vm-6",
	} {
		v, err := findVM(testVMs, what)
		if err != nil || v.Ref != want {
			t.Errorf("%q: %+v, %v, want %s", what, v, err, want)
		}
	}
}

func TestFindAmbiguous(t *testing.T) {
	for what, listed := range map[string][]string{
		"web01": {"vm-1", "vm-2", "/F/DC0/vm/prod/web01", "/DC1/vm/web01", "11111111-", "22222222-"},
		"vm-4":  {"vm-4", "vm-5"}, // reference of one VM, name of another
	} {
		_, err := findVM(testVMs, what)
		if !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
			t.Errorf("%q: %v", what, err)
			continue
		}
		for _, s := range listed {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%q: %v does not list %s", what, err, s)
			}
		}
	}
}

func TestFindSuggestsSimilarNames(t *testing.T) {
	for what, near := range map[string]string{
		"wbe01":    "near: web01",
		"webserv":  "near: Webserver",
		"WEB01":    "near: web01",
		"mail":     "decamp ls",
		"":         "decamp ls",
		"01":       "near: web01",
		"x/web01/": "decamp ls",
	} {
		_, err := findVM(testVMs, what)
		if !fault.Is(err, fault.NotFound) || !strings.Contains(fault.HintOf(err), near) {
			t.Errorf("%q: %v; hint %q, want %q", what, err, fault.HintOf(err), near)
		}
	}
}
