package kubevirt

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// manifestFiles are golden files of the tests of internal/targets/kubevirt: the manifests that decamp writes.
const manifestFiles = "../../internal/targets/kubevirt/testdata/*.yaml"

// Each object that decamp writes is valid for the schema of its kind.
func TestManifestsMatchSchemas(t *testing.T) {
	validators := newValidators(t)
	files, err := filepath.Glob(manifestFiles)
	if err != nil || len(files) < 6 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	seen := map[string]int{}
	for _, path := range files {
		for _, object := range readObjects(t, path) {
			kind, _ := object["kind"].(string)
			j, ok := validators[kind]
			if !ok {
				t.Fatalf("%s has an object of the unknown kind %q", path, kind)
			}
			seen[kind]++
			for _, err := range j.invalidValues(object) {
				t.Errorf("%s: %s: %v", path, kind, err)
			}
			for _, name := range j.unknownFields(object) {
				t.Errorf("%s: %s has no field %s", path, kind, name)
			}
		}
	}
	if seen["VirtualMachine"] != len(files) || seen["DataVolume"] < len(files) {
		t.Errorf("got these numbers of objects: %v", seen)
	}
}

// The validators report unknown fields and invalid values with their paths.
func TestSchemasRejectMistakes(t *testing.T) {
	validators := newValidators(t)
	path := filepath.Join(filepath.Dir(manifestFiles), "bios.yaml")
	for _, c := range []struct {
		kind  string
		field string
		value any
		want  string // unknown field, or part of the error
	}{
		{"VirtualMachine", "spec.template.spec.domain.bogus", "x", "spec.template.spec.domain.bogus"},
		{"VirtualMachine", "spec.template.spec.domain.firmware.bootloader.bogus", "x", "spec.template.spec.domain.firmware.bootloader.bogus"},
		{"VirtualMachine", "spec.template.spec.domain.cpu.sockets", "two", "spec.template.spec.domain.cpu.sockets"},
		{"VirtualMachine", "spec.template.spec.domain.devices.disks", []any{map[string]any{"disk": map[string]any{}}}, "disks[0].name"},
		{"DataVolume", "spec.storage.bogus", "x", "spec.storage.bogus"},
		{"DataVolume", "spec.storage.resources.requests.storage", "plenty", "spec.storage.resources.requests.storage"},
		{"DataVolume", "spec.contentType", "tar", "spec.contentType"},
	} {
		problems := validators[c.kind].unknownFields(withField(readObject(t, path, c.kind), c.field, c.value))
		for _, err := range validators[c.kind].invalidValues(withField(readObject(t, path, c.kind), c.field, c.value)) {
			problems = append(problems, err.Error())
		}
		if !slices.ContainsFunc(problems, func(s string) bool { return strings.Contains(s, c.want) }) {
			t.Errorf("%s with %s %v: got the problems %q", c.kind, c.field, c.value, problems)
		}
	}
}

func readObjects(t *testing.T, path string) (all []map[string]any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range bytes.Split(text, []byte("\n---\n")) {
		var o map[string]any
		if err := yaml.UnmarshalStrict(document, &o); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all = append(all, o)
	}
	return all
}

func readObject(t *testing.T, path, kind string) map[string]any {
	t.Helper()
	for _, o := range readObjects(t, path) {
		if o["kind"] == kind {
			return o
		}
	}
	t.Fatalf("%s has no %s", path, kind)
	return nil
}

// withField returns object with value at a path, such as "spec.storage".
func withField(object map[string]any, path string, value any) map[string]any {
	name, rest, deeper := strings.Cut(path, ".")
	if deeper {
		next, _ := object[name].(map[string]any)
		if next == nil {
			next = map[string]any{}
		}
		value = withField(next, rest, value)
	}
	object[name] = value
	return object
}
