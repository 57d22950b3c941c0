package dir

import (
	"maps"
	"slices"

	"github.com/decamp/decamp/internal/inventory"
)

// A sourceTag is a tag in the metadata of a domain.
type sourceTag struct {
	Category string `xml:"category,attr"`
	Name     string `xml:"name,attr"`
}

// A sourceAttribute is a custom attribute there.
type sourceAttribute struct {
	Name  string `xml:"name,attr"`
	Value string `xml:",chardata"`
}

// sourceTags are what people put on the VM, as it was: what XML cannot hold, such as NUL, it writes as
// U+FFFD. vm.json has even that.
func sourceTags(vm *inventory.VM) (tags []sourceTag, attributes []sourceAttribute) {
	for _, t := range vm.Tags {
		tags = append(tags, sourceTag(t))
	}
	for _, name := range slices.Sorted(maps.Keys(vm.Attributes)) {
		attributes = append(attributes, sourceAttribute{name, vm.Attributes[name]})
	}
	return tags, attributes
}
