package platform

import (
	"slices"
	"testing"

	"github.com/decamp/decamp/internal/namemap"
)

func TestPlaceholderVM(t *testing.T) {
	for _, test := range []struct {
		m               namemap.Map
		disks, networks []string
	}{
		{namemap.Map{}, []string{""}, []string{""}},
		{namemap.Map{
			Storages: map[string]string{"b": "x", "a": "y", "c*": "z", "*": "slow"},
			Networks: map[string]namemap.Network{"lan": {To: "br0"}, "dv-*": {To: "*"}},
		}, []string{"", "a", "b"}, []string{"", "lan"}},
		// The destination of other names is unknown until there is a VM.
		{namemap.Map{Storages: map[string]string{"*": "pool-*"}, Networks: map[string]namemap.Network{"*": {To: "br-*"}, "lan": {To: "br0"}}}, nil, []string{"lan"}},
	} {
		vm := PlaceholderVM(test.m)
		var disks, networks []string
		for _, d := range vm.Disks {
			disks = append(disks, namemap.Datastore(d))
		}
		for _, n := range vm.NICs {
			networks = append(networks, n.Network)
		}
		if !slices.Equal(disks, test.disks) || !slices.Equal(networks, test.networks) {
			t.Errorf("%+v: got datastores %q and networks %q", test.m, disks, networks)
		}
	}
}
