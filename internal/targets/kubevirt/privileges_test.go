package kubevirt

import (
	"fmt"
	"maps"
	"slices"
	"testing"
)

const privilegesFile = "../../../packaging/privileges/kubernetes.yaml"

// objectList returns the objects of a YAML sequence, or none if v is not a sequence.
func objectList(v any) (objects []map[string]any) {
	all, _ := v.([]any)
	for _, each := range all {
		objects = append(objects, each.(map[string]any))
	}
	return objects
}

// The published role has the verbs that Check requires and the verb that starts VMs, and no others.
func TestPublishedRoleHasTheRequiredVerbs(t *testing.T) {
	want := map[string]bool{"patch virtualmachines.kubevirt.io": true}
	for _, need := range rights {
		for _, verb := range need.verbs {
			want[fmt.Sprintf("%s %s.%s", verb, need.Plural, need.Group)] = true
		}
	}
	got := map[string]bool{}
	for _, o := range readDocuments(t, privilegesFile) {
		if o["kind"] != "Role" {
			continue
		}
		for _, rule := range objectList(o["rules"]) {
			for _, verb := range rule["verbs"].([]any) {
				got[fmt.Sprintf("%s %s.%s", verb, rule["resources"].([]any)[0], rule["apiGroups"].([]any)[0])] = true
			}
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("the role has %q, want %q", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
}
