package proxmox

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
)

// tagWords are what the tags of a VM become here. Proxmox takes capitals, too, but tells tags apart by
// them only where an administrator says so (tag-style in datacenter.cfg).
var tagWords = targets.Alphabet{Signs: "_.+", Most: 60}

// maxInscriptions is how much of a description is for tags and attributes, in bytes: half of it.
const maxInscriptions = maxDescription / 2

// vmTags are the VM's tags, each with its category: env-prod. Two that come to the same here are told
// apart by a number. None looks like one of ours, by which guests are found.
func vmTags(vm *inventory.VM) []string {
	var tags []string
	taken := map[string]bool{}
	for _, t := range vm.Tags {
		word := tagWords.Word(t.Category+" "+t.Name, "tag")
		if strings.HasPrefix(word, tag) {
			word = "_" + word
		}
		tags = append(tags, targets.Unused(word, "-", taken))
	}
	return tags
}

// tagList is a guest's tags as Proxmox takes them: ours and others.
func tagList(vm *inventory.VM, others []string) string {
	return strings.Join(append([]string{tag, ownTag(vm)}, others...), ";")
}

// tagsDenied warns that the guest has not got the VM's tags.
func tagsDenied(vmid int, tags string, why error) inventory.Warning {
	return inventory.Warning{
		Code: "tags",
		Text: fmt.Sprintf("guest %d has not got the VM's tags, which are in its notes: %v", vmid, why),
		Remedy: fmt.Sprintf("who may give registered tags does it: qm set %d --tags %s; or takes them off registered-tags in Datacenter > Options",
			vmid, fault.Quote(tags)),
	}
}

// inscriptions are the VM's tags and custom attributes by their own words, for its notes.
func inscriptions(vm *inventory.VM) string {
	var text strings.Builder
	for _, name := range targets.TagNames(vm) {
		text.WriteString("\nTag: " + fault.Line(name) + "\n")
	}
	for _, name := range slices.Sorted(maps.Keys(vm.Attributes)) {
		text.WriteString("\n" + fault.Line(name) + ": " + fault.Line(vm.Attributes[name]) + "\n")
	}
	if text.Len() <= maxInscriptions {
		return text.String()
	}
	return strings.ToValidUTF8(text.String()[:maxInscriptions-len("…\n")], "") + "…\n"
}
