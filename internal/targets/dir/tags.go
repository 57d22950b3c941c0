package dir

import (
	"maps"
	"slices"

	"github.com/decamp/decamp/internal/inventory"
)

// sourceTag is a tag in the domain's metadata.
type sourceTag struct {
	Category string `xml:"category,attr"` // vSphere category
	Name     string `xml:"name,attr"`     // name within the category
}

// sourceAttribute is a custom attribute in the domain's metadata.
type sourceAttribute struct {
	Name  string `xml:"name,attr"` // name that vCenter's administrator defined
	Value string `xml:",chardata"` // value as text
}

// sourceTags returns vm's tags and attributes for the domain's metadata. The XML encoder replaces
// characters that
// XML cannot contain, such as NUL, by U+FFFD; vm.json contains the originals.
func sourceTags(vm *inventory.VM) (tags []sourceTag, attributes []sourceAttribute) {
	for _, t := range vm.Tags {
		tags = append(tags, sourceTag(t))
	}
	for _, name := range slices.Sorted(maps.Keys(vm.Attributes)) {
		attributes = append(attributes, sourceAttribute{name, vm.Attributes[name]})
	}
	return tags, attributes
}
