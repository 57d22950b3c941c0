package openstack

import (
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
)

// The metadata of the record, and of the server, that the VM's tags and custom attributes are in. They are
// no tags of Nova's: those have 60 characters and are for newer clouds only (microversion 2.26), and
// volumes have none.
const (
	tagKey       = "decamp_tag_"       // with the category behind it
	attributeKey = "decamp_attribute_" // with the name behind it
)

// maxItems is how many of them there are at most: Nova and Glance have 128 for all (quotas metadata_items,
// image_property_quota), and what is ours and the hardware's takes some thirty.
const maxItems = 80

// keyWords are what both services take in keys.
var keyWords = targets.Alphabet{Upper: true, Signs: "_.", Most: 120}

// inscriptions are tags and attributes as metadata: decamp_tag_env=prod. A key has one value, so a further
// tag of a category has a number in its key. left is how many are cut, or are not in it.
func inscriptions(vm *inventory.VM) (items map[string]string, left int) {
	items = map[string]string{}
	taken := map[string]bool{}
	add := func(key, value string) {
		if len(items) == maxItems || utf8.RuneCountInString(value) > maxText {
			left++
		}
		if len(items) < maxItems {
			items[targets.Unused(key, "_", taken)] = text(value)
		}
	}
	for _, t := range vm.Tags {
		add(tagKey+keyWords.Word(t.Category, "x"), t.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(vm.Attributes)) {
		add(attributeKey+keyWords.Word(name, "x"), vm.Attributes[name])
	}
	return items, left
}

// tags warns of what is not in the metadata as it was.
func (b *builder) tags() error {
	if _, left := inscriptions(b.vm); left > 0 {
		b.warn("tags", "nothing, unless somebody needs them: vm.json of the folder it was staged in has them all",
			"%d of its tags and attributes are cut, or are not in the metadata, which have room for %d of %d characters", left, maxItems, maxText)
	}
	return nil
}
