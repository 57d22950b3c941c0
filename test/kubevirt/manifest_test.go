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

// manifests are what decamp writes: its own tests prove that it writes these files.
const manifests = "../../internal/targets/kubevirt/testdata/*.yaml"

// TestManifestsFitTheSchemas holds every object that decamp writes against the schema of its kind.
func TestManifestsFitTheSchemas(t *testing.T) {
	judges := judges(t)
	files, err := filepath.Glob(manifests)
	if err != nil || len(files) < 6 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	seen := map[string]int{}
	for _, path := range files {
		for _, object := range objects(t, path) {
			kind, _ := object["kind"].(string)
			j, ok := judges[kind]
			if !ok {
				t.Fatalf("%s has a %q", path, kind)
			}
			seen[kind]++
			for _, err := range j.wrong(object) {
				t.Errorf("%s: %s: %v", path, kind, err)
			}
			for _, name := range j.unknown(object) {
				t.Errorf("%s: %s has no field %s", path, kind, name)
			}
		}
	}
	if seen["VirtualMachine"] != len(files) || seen["DataVolume"] < len(files) {
		t.Errorf("there were %v", seen)
	}
}

// A judge that lets everything pass would prove nothing: what is wrong is told by name.
func TestSchemasRefuseWhatIsWrong(t *testing.T) {
	judges := judges(t)
	path := filepath.Join(filepath.Dir(manifests), "bios.yaml")
	for _, c := range []struct {
		kind  string
		field string
		value any
		says  string // the unknown field, or what the refusal contains
	}{
		{"VirtualMachine", "spec.template.spec.domain.bogus", "x", "spec.template.spec.domain.bogus"},
		{"VirtualMachine", "spec.template.spec.domain.firmware.bootloader.bogus", "x", "spec.template.spec.domain.firmware.bootloader.bogus"},
		{"VirtualMachine", "spec.template.spec.domain.cpu.sockets", "two", "spec.template.spec.domain.cpu.sockets"},
		{"VirtualMachine", "spec.template.spec.domain.devices.disks", []any{map[string]any{"disk": map[string]any{}}}, "disks[0].name"},
		{"DataVolume", "spec.storage.bogus", "x", "spec.storage.bogus"},
		{"DataVolume", "spec.storage.resources.requests.storage", "plenty", "spec.storage.resources.requests.storage"},
		{"DataVolume", "spec.contentType", "tar", "spec.contentType"},
	} {
		told := judges[c.kind].unknown(withField(one(t, path, c.kind), c.field, c.value))
		for _, err := range judges[c.kind].wrong(withField(one(t, path, c.kind), c.field, c.value)) {
			told = append(told, err.Error())
		}
		if !slices.ContainsFunc(told, func(s string) bool { return strings.Contains(s, c.says) }) {
			t.Errorf("%s with %s %v: told %q", c.kind, c.field, c.value, told)
		}
	}
}

func objects(t *testing.T, path string) (all []map[string]any) {
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

func one(t *testing.T, path, kind string) map[string]any {
	t.Helper()
	for _, o := range objects(t, path) {
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
