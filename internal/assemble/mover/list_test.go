package mover

import (
	"net/url"
	"testing"

	"github.com/decamp/decamp/internal/inventory"
)

// Hosts and datastores with the same name in several sources get different names.
func TestHostNamesAreUniqueAcrossSources(t *testing.T) {
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
