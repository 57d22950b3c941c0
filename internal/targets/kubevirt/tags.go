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
	tagLabel       = prefix + "tag-"       // with the category behind it
	tagsNote       = prefix + "tags"       // all of them as they were, as JSON
	attributesNote = prefix + "attributes" // custom ones, as JSON
)

// The words of labels: 63 characters on either side of the prefix, of which a number may take three.
var (
	categoryWords = targets.Alphabet{Upper: true, Signs: "_.", Most: 56}
	valueWords    = targets.Alphabet{Upper: true, Signs: "_.", Most: 63}
)

// tagLabels are the VM's tags, by which VMs are selected: decamp.github.io/tag-env=prod. A label has one
// value, so a further tag of a category has a number in its key.
func tagLabels(vm *inventory.VM) map[string]string {
	all := map[string]string{}
	taken := map[string]bool{}
	for _, t := range vm.Tags {
		key := targets.Unused(tagLabel+categoryWords.Word(t.Category, "x"), "-", taken)
		all[key] = valueWords.Word(t.Name, "x")
	}
	return all
}

// inscribe notes tags and attributes by their own words, as far as there is room.
func (b *builder) inscribe(notes map[string]string) {
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
		b.warn("tags", "nothing, unless somebody needs them: vm.json of the folder it was staged in has them all",
			"%d of its tags and attributes are not in its annotations, which have room for %d KiB of each", left, maxNotes>>10)
	}
}

// asText is JSON on one line, with signs as people write them.
func asText(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // texts do not fail
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}
