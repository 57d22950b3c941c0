package openstack

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory/inventorytest"
	"github.com/decamp/decamp/internal/targets"
)

// The metadata of hostile VMs consists of values that OpenStack can store. Short values without special characters
// are unchanged.
func TestHostileInventoryInMetadata(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	r := inventorytest.New(10)
	for range inventorytest.Runs {
		vm := inventorytest.VM(r)
		vm.RemoveInvalid()
		def := targets.Definition{VM: vm, Decamp: "v0.0.0-test"}
		m, err := machineOf(def, Options{})
		if err != nil {
			t.Fatalf("%+v: %v", vm, err)
		}
		items, _ := tagMetadata(vm)
		for _, more := range []map[string]string{sourceMetadata(vm), noteMetadata(def), m.properties, {"name": m.name, "description": volumeDescription(vm), "port": portMark(vm)}} {
			maps.Copy(items, more)
		}
		text, err := json.Marshal(items)
		if err != nil {
			t.Fatal(err)
		}
		var back map[string]string
		if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(back, items) {
			t.Fatalf("%v: %s", err, text)
		}
		for key, value := range back {
			odd := func(x rune) bool { return !unicode.IsPrint(x) || x > 0xffff }
			if !metadataKey.MatchString(key) || !utf8.ValidString(value) || utf8.RuneCountInString(value) > maxText || strings.ContainsFunc(value, odd) {
				t.Fatalf("OpenStack does not accept %q: %q", key, value)
			}
		}
		if !isMadeOf(back, vm) {
			t.Fatalf("the identity in %q is not recognized", back)
		}
		if back[refKey] != string(vm.Ref) || back[instanceKey] != vm.InstanceUUID || back[uuidKey] != vm.UUID {
			t.Fatalf("got identity %q", back)
		}
		if line := fault.Line(vm.Name); line == vm.Name && fits(vm.Name) && back[nameKey] != vm.Name {
			t.Fatalf("name %q, want %q", back[nameKey], vm.Name)
		}
		if m.name == "" || strings.TrimSpace(m.name) != m.name {
			t.Fatalf("invalid name %q", m.name)
		}
	}
}

// fits reports whether s is short and has only characters that every database supports.
func fits(s string) bool {
	return utf8.RuneCountInString(s) <= maxText && !strings.ContainsFunc(s, func(x rune) bool { return x > 0xffff })
}
