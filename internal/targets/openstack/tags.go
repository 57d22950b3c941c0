package openstack

import (
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
)

// Prefixes of the keys for the VM's tags and custom attributes, in the metadata of the record and of the server.
// Nova's tags are not used: they have at most 60 characters and require microversion 2.26, and volumes
// have none.
const (
	tagKey       = "decamp_tag_"       // followed by the category
	attributeKey = "decamp_attribute_" // followed by the attribute's name
)

// maxItems is the maximum number of metadata items for tags and attributes. Nova and Glance allow 128
// items in total
// (quotas metadata_items, image_property_quota); marks and hardware use about thirty.
const maxItems = 80

// keyWords is the alphabet of keys that both services accept.
var keyWords = targets.Alphabet{Upper: true, Signs: "_.", Most: 120}

// tagMetadata returns the tags and attributes as metadata, such as decamp_tag_env=prod. A key has one
// value, so the keys
// of further tags of a category end in a number. left counts the items that are cut or omitted.
func tagMetadata(vm *inventory.VM) (items map[string]string, left int) {
	items = map[string]string{}
	taken := map[string]bool{}
	add := func(key, value string) {
		if len(items) == maxItems || utf8.RuneCountInString(value) > maxText {
			left++
		}
		if len(items) < maxItems {
			items[targets.Unused(key, "_", taken)] = toText(value)
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

// warnLostTags adds a warning if the metadata cannot contain all tags and attributes.
func (b *builder) warnLostTags() error {
	if _, left := tagMetadata(b.vm); left > 0 {
		b.warn("tags", "no action is needed: vm.json in its staging folder contains all of them",
			"%d of its tags and attributes are cut, or are not in the metadata, which can contain %d of %d characters", left, maxItems, maxText)
	}
	return nil
}
