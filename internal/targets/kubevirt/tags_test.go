package kubevirt

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/inventory"
)

// Formats that Kubernetes accepts for the name in a label's key and for its value.
var (
	labelName  = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
	labelValue = regexp.MustCompile(`^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$`)
)

func TestTagLabels(t *testing.T) {
	vm := changedVM(biosVM(), func(vm *inventory.VM) {
		vm.Tags = []inventory.Tag{{Category: "App", Name: "db"}, {Category: "App", Name: "web 1.2_b"}, {Category: "app", Name: "x"}, {Category: "Kunde", Name: "Müller & Söhne"}}
	})
	want := map[string]string{tagLabel + "App": "db", tagLabel + "App-2": "web-1.2_b", tagLabel + "app-3": "x", tagLabel + "Kunde": "Muller-Sohne"}
	if got := tagLabels(vm); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func FuzzTagLabels(f *testing.F) {
	for _, seed := range []string{"", "prod", "日本", "\xff\xfe", "source", "/", "a/b=c,d", strings.Repeat("é", 300), "\u202ereversed", "-", ".a.", "tag-x", "\x00"} {
		f.Add(seed, seed)
	}
	f.Fuzz(func(t *testing.T, category, name string) {
		vm := changedVM(biosVM(), func(vm *inventory.VM) {
			for _, c := range []string{category, strings.ToUpper(category), name, category} {
				vm.Tags = append(vm.Tags, inventory.Tag{Category: c, Name: name})
			}
		})
		all := tagLabels(vm)
		if len(all) != len(vm.Tags) {
			t.Errorf("%d labels for %d tags: %q", len(all), len(vm.Tags), all)
		}
		for key, value := range all {
			word, ours := strings.CutPrefix(key, prefix)
			if !ours || !labelName.MatchString(word) || !labelValue.MatchString(value) || key == sourceLabel {
				t.Errorf("%q: %q", key, value)
			}
		}
	})
}

// The annotations contain the tags and attributes unchanged, as JSON. If they are too large, the rest is left out
// with a warning.
func TestAnnotationsHaveTagsAndAttributes(t *testing.T) {
	vm := changedVM(bigVM(), func(vm *inventory.VM) { vm.Attributes["Owner"] = "<R&D>\x00" })
	check := func(omitted int) {
		t.Helper()
		o, err := newObjects(newDefinition(vm), bigOptions())
		if err != nil {
			t.Fatal(err)
		}
		notes := o.vm.Metadata.Annotations
		var tags []inventory.Tag
		var attributes map[string]string
		if json.Unmarshal([]byte(notes[tagsNote]), &tags) != nil || json.Unmarshal([]byte(notes[attributesNote]), &attributes) != nil {
			t.Fatalf("%.200q and %.200q are not JSON", notes[tagsNote], notes[attributesNote])
		}
		if !slices.Equal(tags, vm.Tags[:len(tags)]) || attributes["Owner"] != vm.Attributes["Owner"] {
			t.Errorf("got tags %.200q and attributes %.200q", tags, attributes)
		}
		size := 0
		for key, value := range notes {
			size += len(key) + len(value)
		}
		warned := slices.ContainsFunc(o.warnings, func(w inventory.Warning) bool { return w.Code == "tags" && w.Remedy != "" })
		if got := len(vm.Tags) - len(tags) + len(vm.Attributes) - len(attributes); (got > 0) != (omitted > 0) || warned != (omitted > 0) || size > 256<<10 {
			t.Errorf("%d left out, warning %v, %d bytes", got, warned, size)
		}
	}
	check(0)
	vm.Annotation = strings.Repeat("é", 100<<10)
	for i := range 500 {
		vm.Tags = append(vm.Tags, inventory.Tag{Category: fmt.Sprint(i), Name: strings.Repeat("é", 300)})
		vm.Attributes[fmt.Sprint("z", i)] = strings.Repeat("<", 300)
	}
	check(1)
}

// The outline contains the labels in order.
func TestOutlineHasTheLabels(t *testing.T) {
	o, err := newOutline(newDefinition(bigVM()), bigOptions(), "somewhere")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{tagLabel + "App=db", tagLabel + "App-2=web-more", tagLabel + "Env=Prod"}
	if len(o.Tags) != 1+len(bigVM().Tags) || !slices.Equal(o.Tags[1:4], want) || o.Attributes["Cost centre"] == "" {
		t.Errorf("got tags %q and attributes %q", o.Tags, o.Attributes)
	}
}
