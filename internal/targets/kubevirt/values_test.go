package kubevirt

import (
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/lab/kube"
)

// The completion of an address offers storage classes, networks and namespaces of the cluster.
func TestListValues(t *testing.T) {
	denied := map[string]bool{"list storageclasses": true}
	for _, tt := range []struct {
		config          kube.Config
		parameter, want string
	}{
		{kube.Config{Classes: []string{"fast", "slow"}}, "storageClass", "fast slow"},
		{kube.Config{}, "namespace", "vms"},
		{kube.Config{}, "network", "multus:other/dmz multus:vms/lan pod"},
		{kube.Config{NoMultus: true}, "network", "pod"},
		{kube.Config{}, "volumeMode", ""},
		{kube.Config{Classes: []string{"fast"}, Denied: denied}, "storageClass", "error"},
	} {
		lab, c := startCluster(t, tt.config)
		lab.Put("network-attachment-definitions", "vms", "lan", map[string]any{})
		lab.Put("network-attachment-definitions", "other", "dmz", map[string]any{})
		names, err := c.ListValues(t.Context(), tt.parameter)
		if err != nil {
			names = append(names, "error")
		}
		if slices.Sort(names); strings.Join(names, " ") != tt.want {
			t.Errorf("%s: %q, %v", tt.parameter, names, err)
		}
	}
}

// An account with rights in one namespace gets the networks of that namespace.
func TestListValuesOfOneNamespace(t *testing.T) {
	lab, c := startCluster(t, kube.Config{OwnNetworks: true}, func(a *address) { a.Namespace = "vms" })
	lab.Put("network-attachment-definitions", "vms", "lan", map[string]any{})
	lab.Put("network-attachment-definitions", "other", "dmz", map[string]any{})
	if names, err := c.ListValues(t.Context(), "network"); err != nil || strings.Join(names, " ") != "multus:vms/lan pod" {
		t.Errorf("%q, %v", names, err)
	}
}
