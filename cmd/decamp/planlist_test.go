package main

import (
	"fmt"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/dir"
)

// Hosts of several sources that call themselves the same are told apart.
func TestHostsAreNamedAsInTheirPlans(t *testing.T) {
	vm := &inventory.VM{HostName: "localhost.localdomain", VMX: inventory.Path{Datastore: "datastore1"}}
	for source, want := range map[string][2]string{
		"esxi://root@esx1":           {"esx1", "datastore1@esx1"},
		"esxi://root@esx1:443":       {"esx1", "datastore1@esx1"},
		"esxi://root@esx1:8443":      {"esx1:8443", "datastore1@esx1:8443"},
		"esxi://root@[fd00::1]":      {"[fd00::1]", "datastore1@[fd00::1]"},
		"vcenter://decamp@vc1.local": {vm.HostName, "datastore1"},
	} {
		u, err := url.Parse(source)
		if err != nil {
			t.Fatal(err)
		}
		if got := [2]string{hostOf(u, vm), datastoreOf(u, vm)}; got != want {
			t.Errorf("%s: %q, want %q", source, got, want)
		}
	}
}

// Entries of a plan may share a line: a plan may be JSON.
func TestEntriesOnOneLine(t *testing.T) {
	c := newClinic(t, lab.Config{VMs: []lab.VM{small("web01"), small("web02")}})
	text := fmt.Sprintf("version: 1\nname: p\nsource: {url: %q, fingerprint: %q}\ndefaults: {to: [%q]}\nvms: [{vm: web01, format: qcow2}, {vm: gone1}, {vm: web02, format: raw}, {vm: gone2}]\n",
		c.url(), c.lab.Fingerprint(), "dir:"+c.to)
	if code := c.run(t.Context(), []string{"plan", "run", writeFile(t, "plan.yaml", text), "--state", c.state}); code == 0 {
		t.Errorf("VMs are missing: %s", c.out)
	}
	for name, want := range map[string]targets.Format{"web01": targets.QCOW2, "web02": targets.Raw} {
		r, err := dir.ReadRecord(filepath.Join(c.to, name))
		if err != nil || r.Images[0].Format != want {
			t.Errorf("%s is %+v, %v", name, r.Images, err)
		}
	}
	c.out.Reset()
	_ = c.run(t.Context(), []string{"status", "p", "--state", c.state})
	mustContain(t, c.out.String(), "gone1", "gone2")
}
