package migrate_test

import (
	"slices"
	"testing"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/migrate"
)

// What people put on a VM is read once in a run, not between rounds and in the outage, and gets to where
// it is published.
func TestTagsAreReadOnce(t *testing.T) {
	t.Parallel()
	for _, warm := range []bool{false, true} {
		b := warmBench(t, 1)
		b.worn = inventory.VM{
			Tags: []inventory.Tag{{Category: "env", Name: "prod"}}, Attributes: map[string]string{"owner": "ops"},
			Warnings: []inventory.Warning{{Code: inventory.WarnTags, Text: "some"}, {Code: "other"}},
		}
		var err error
		if warm {
			_, err = b.warm(3)
		} else {
			_, err = b.migrate(migrate.Permit{PowerOff: true, Start: true})
		}
		if err != nil {
			t.Fatal(err)
		}
		vm := b.published.VM
		if !slices.Equal(vm.Tags, b.worn.Tags) || vm.Attributes["owner"] != "ops" || len(vm.Warnings) != 1 {
			t.Errorf("warm %v: %v, %v, %v", warm, vm.Tags, vm.Attributes, vm.Warnings)
		}
		if n := b.adorned.Load(); n != 1 {
			t.Errorf("warm %v: read %d times", warm, n)
		}
	}
}
