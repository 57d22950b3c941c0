package migrate_test

import (
	"slices"
	"testing"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/migrate"
)

// A run reads the tags and attributes of a VM once, and not between rounds or in the outage. The published VM has
// them.
func TestTagsAreReadOnce(t *testing.T) {
	t.Parallel()
	for _, warm := range []bool{false, true} {
		b := newWarmTestBed(t, 1)
		b.tagged = inventory.VM{
			Tags: []inventory.Tag{{Category: "env", Name: "prod"}}, Attributes: map[string]string{"owner": "ops"},
			Warnings: []inventory.Warning{{Code: inventory.WarnTags, Text: "some"}, {Code: "other"}},
		}
		var err error
		if warm {
			_, err = b.migrateWarm(3)
		} else {
			_, err = b.migrate(migrate.Permit{PowerOff: true, Start: true})
		}
		if err != nil {
			t.Fatal(err)
		}
		vm := b.published.VM
		if !slices.Equal(vm.Tags, b.tagged.Tags) || vm.Attributes["owner"] != "ops" || len(vm.Warnings) != 1 {
			t.Errorf("warm %v: %v, %v, %v", warm, vm.Tags, vm.Attributes, vm.Warnings)
		}
		if n := b.tagReads.Load(); n != 1 {
			t.Errorf("warm %v: tags read %d times, want once", warm, n)
		}
	}
}
