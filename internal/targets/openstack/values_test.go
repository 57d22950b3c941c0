package openstack

import (
	"slices"
	"strings"
	"testing"

	lab "github.com/decamp/decamp/internal/lab/openstack"
)

// The completion of an address offers networks, types and zones of the project.
func TestListValues(t *testing.T) {
	p := newPlatform(t, startCloud(t, lab.Config{}), "lab")
	for parameter, want := range map[string]string{"network": "dmz lan", "volumeType": "fast slow", "availabilityZone": "nova", "boot": ""} {
		names, err := p.ListValues(t.Context(), parameter)
		if slices.Sort(names); err != nil || strings.Join(names, " ") != want {
			t.Errorf("%s: %q, %v", parameter, names, err)
		}
	}
}
