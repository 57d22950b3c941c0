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

// tagWords is the alphabet of tags. Proxmox accepts upper case, but compares it only if an
// administrator has configured that
// (tag-style in datacenter.cfg).
var tagWords = targets.Alphabet{Signs: "_.+", Most: 60}

// maxTagLines is the part of a description for tags and attributes, in bytes: half of it.
const maxTagLines = maxDescription / 2

// vmTags returns the VM's tags with their categories, such as env-prod. Equal results get a number. A
// tag that begins like
// decamp's gets a prefix, because decamp finds guests by its tags.
func vmTags(vm *inventory.VM) []string {
	var tags []string
	taken := map[string]bool{}
	for _, t := range vm.Tags {
		word := tagWords.Word(t.Category+" "+t.Name, "tag")
		if strings.HasPrefix(word, commonTag) {
			word = "_" + word
		}
		tags = append(tags, targets.Unused(word, "-", taken))
	}
	return tags
}

// tagList returns a guest's tags in Proxmox's syntax: decamp's and others.
func tagList(vm *inventory.VM, others []string) string {
	return strings.Join(append([]string{commonTag, ownTag(vm)}, others...), ";")
}

// tagsDenied returns the warning that the token may not set the VM's tags.
func tagsDenied(vmid int, tags string, why error) inventory.Warning {
	return inventory.Warning{
		Code: "tags",
		Text: fmt.Sprintf("guest %d does not have the VM's tags, which are in its notes: %v", vmid, why),
		Remedy: fmt.Sprintf("a user who may set registered tags can add them: qm set %d --tags %s; or remove them from registered-tags in Datacenter > Options",
			vmid, fault.Quote(tags)),
	}
}

// tagLines returns the VM's tags and custom attributes with their original names, for the description.
func tagLines(vm *inventory.VM) string {
	var text strings.Builder
	for _, name := range targets.TagNames(vm) {
		text.WriteString("\nTag: " + fault.Line(name) + "\n")
	}
	for _, name := range slices.Sorted(maps.Keys(vm.Attributes)) {
		text.WriteString("\n" + fault.Line(name) + ": " + fault.Line(vm.Attributes[name]) + "\n")
	}
	if text.Len() <= maxTagLines {
		return text.String()
	}
	return strings.ToValidUTF8(text.String()[:maxTagLines-len("…\n")], "") + "…\n"
}
