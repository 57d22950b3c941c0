package proxmox

import (
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/lab/pve"
)

// The completion of an address offers the storages and networks that fit each parameter.
func TestListValues(t *testing.T) {
	t.Parallel()
	s := startServer(t, pve.Config{Networks: []pve.Network{{Name: "vmbr0"}, {Name: "vnet1", Zone: "zone1"}}})
	for parameter, want := range map[string]string{"storage": "local local-lvm", "import": "local", "bridge": "vmbr0 vnet1", "cpu": ""} {
		names, err := newPlatform(t, s, Options{}).ListValues(t.Context(), parameter)
		if slices.Sort(names); err != nil || strings.Join(names, " ") != want {
			t.Errorf("%s: %q, %v", parameter, names, err)
		}
	}
	wrong := newPlatform(t, s, Options{Token: "root@pam!decamp=99999999-2222-3333-4444-555555555555"})
	if names, err := wrong.ListValues(t.Context(), "storage"); names != nil || err == nil {
		t.Errorf("a wrong token: %q, %v", names, err)
	}
}
