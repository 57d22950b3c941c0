package targettest

import (
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
)

// keepsNotes verifies that notes, tags and attributes of the source VM are stored with the delivered
// VM.
func keepsNotes(t *testing.T, h Harness) {
	site := h.New(t)
	before := site.Objects(t)
	vm := changeVM(newVM(), func(vm *inventory.VM) {
		vm.Annotation = "bill to department 4711"
		vm.Tags = []inventory.Tag{{Category: "env", Name: "prod"}, {Category: "app", Name: "db"}, {Category: "app", Name: "web"}}
		vm.Attributes = map[string]string{"Owner": "anna", "Backup": "nightly"}
	})
	d := stageVM(t, vm, targets.Raw)
	mustDeliver(t, site, d)
	metadata := verifyVM(t, site, d).Metadata
	for _, word := range []string{"bill to department 4711", "env", "prod", "app", "db", "web", "Owner", "anna", "Backup", "nightly"} {
		if !strings.Contains(metadata, word) {
			t.Errorf("%q is missing in the metadata: %q", word, metadata)
		}
	}
	mustDeliver(t, site, d)
	mustWithdraw(t, site, vm)
	assertUnchanged(t, site, before, "Withdraw")
}

// keepsOddNotes delivers and withdraws a VM whose tags, attributes and notes contain texts that are
// hard to
// quote or not valid at the platform.
func keepsOddNotes(t *testing.T, h Harness) {
	site := h.New(t)
	before := site.Objects(t)
	vm := changeVM(newVM(), func(vm *inventory.VM) {
		vm.Attributes = map[string]string{}
		for _, word := range []string{
			"", " ", "decamp", "a/b", "näme größe 机器", `"quoted" 'twice'`, "two\nlines\r\n", "tab\there", "<disk/> & ]]> <!--", "$(reboot)`id`;",
			"%2f%00%s", "a,b=c:d;e|f", "\u202ereversed", "\x00\x01\x1b[31m", string([]byte{'b', 'a', 'd', 0xff, 0xfe}), strings.Repeat("é", 300),
			"🏷", "Env", "env", "-rf", "..", "+", "_",
		} {
			vm.Tags = append(vm.Tags, inventory.Tag{Category: word, Name: word}, inventory.Tag{Category: "same", Name: word}, inventory.Tag{Category: word, Name: "same"})
			vm.Attributes[word] = word
			vm.Annotation += word + "\n"
		}
	})
	d := stageVM(t, vm, targets.Raw)
	mustDeliver(t, site, d)
	mustDeliver(t, site, d)
	mustWithdraw(t, site, vm)
	assertUnchanged(t, site, before, "Withdraw")
}
