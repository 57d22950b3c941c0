package kubevirt

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
)

const (
	tagLabel       = prefix + "tag-"       // followed by the category
	tagsNote       = prefix + "tags"       // all tags with their original names, as JSON
	attributesNote = prefix + "attributes" // all custom attributes, as JSON
)

// Alphabets for labels.
var (
	// part of a label's key; a key has at most 63 characters after the prefix, and Unused may add three
	categoryWords = targets.Alphabet{Upper: true, Signs: "_.", Most: 56}
	valueWords    = targets.Alphabet{Upper: true, Signs: "_.", Most: 63} // value of a label, at most 63 characters
)

// tagLabels returns the VM's tags as labels for selectors, such as decamp.github.io/tag-env=prod. A
// label has one value,
// so the keys of further tags of a category end in a number.
func tagLabels(vm *inventory.VM) map[string]string {
	all := map[string]string{}
	taken := map[string]bool{}
	for _, t := range vm.Tags {
		key := targets.Unused(tagLabel+categoryWords.Word(t.Category, "x"), "-", taken)
		all[key] = valueWords.Word(t.Name, "x")
	}
	return all
}

// addTagNotes adds annotations with the original tags and attributes. If they do not fit, it omits some
// and adds a
// warning.
func (b *builder) addTagNotes(notes map[string]string) {
	tags, attributes := slices.Clone(b.vm.Tags), maps.Clone(b.vm.Attributes)
	for len(tags) > 0 && len(asText(tags)) > maxNotes {
		tags = tags[:len(tags)*9/10]
	}
	names := slices.Sorted(maps.Keys(attributes))
	for len(names) > 0 && len(asText(attributes)) > maxNotes {
		keep := len(names) * 9 / 10
		for _, name := range names[keep:] {
			delete(attributes, name)
		}
		names = names[:keep]
	}
	if len(tags) > 0 {
		notes[tagsNote] = asText(tags)
	}
	if len(attributes) > 0 {
		notes[attributesNote] = asText(attributes)
	}
	if left := len(b.vm.Tags) - len(tags) + len(b.vm.Attributes) - len(attributes); left > 0 {
		b.warn("tags", "no action is needed: vm.json in its staging folder contains all of them",
			"%d of its tags and attributes are not in its annotations, which can contain %d KiB of each", left, maxNotes>>10)
	}
}

// asText returns v as JSON on one line, without escapes for HTML.
func asText(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // strings and maps of strings do not fail
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}
