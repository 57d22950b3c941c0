package planfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// compileSchema compiles the schema with a JSON Schema library.
func compileSchema(t testing.TB) *jsonschema.Schema {
	t.Helper()
	text, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource(SchemaID, doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile(SchemaID) // also validates the schema against the meta-schema of 2020-12
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// plainValue converts a YAML node as a YAML 1.2 parser of an editor does: without timestamps.
func plainValue(t testing.TB, n *yaml.Node) any {
	t.Helper()
	switch n.Kind {
	case yaml.MappingNode:
		m := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			m[n.Content[i].Value] = plainValue(t, n.Content[i+1])
		}
		return m
	case yaml.SequenceNode:
		list := []any{}
		for _, item := range n.Content {
			list = append(list, plainValue(t, item))
		}
		return list
	}
	switch n.ShortTag() {
	case "!!int", "!!float":
		return json.Number(n.Value)
	case "!!bool":
		b, _ := strconv.ParseBool(n.Value)
		return b
	case "!!null":
		return nil
	}
	return n.Value
}

// validateText validates a plan against the schema.
func validateText(t testing.TB, s *jsonschema.Schema, text string) error {
	t.Helper()
	root, err := readDocument([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(plainValue(t, root))
}

// The schema accepts every plan that decamp accepts.
func TestSchemaAcceptsValidPlans(t *testing.T) {
	s := compileSchema(t)
	files, _ := filepath.Glob("testdata/v*/*.yaml")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := validateText(t, s, string(text)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	plans := documentedPlans(t)
	if len(files) < 3 || len(plans) < 1 {
		t.Errorf("found %d plans in testdata, %d in the documentation", len(files), len(plans))
	}
	for place, text := range plans {
		if err := validateText(t, s, text); err != nil {
			t.Errorf("%s: %v", place, err)
		}
		mustParse(t, text)
		if err := validateText(t, s, text+"\nbogus: 1\n"); err == nil {
			t.Errorf("%s: the schema accepts an unknown key", place)
		}
	}
}

// documentedPlans returns the plans in the YAML blocks of the documentation: those with a source and VMs.
func documentedPlans(t *testing.T) map[string]string {
	t.Helper()
	plans := map[string]string{}
	err := fs.WalkDir(os.DirFS("../.."), "docs", func(path string, e fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".md") {
			return err
		}
		page, err := os.ReadFile("../../" + path)
		for i, m := range yamlBlock.FindAllStringSubmatch(string(page), -1) {
			if text := m[1]; isPlan.MatchString(text) && strings.Contains(text, "\nsource:") {
				plans[fmt.Sprintf("%s, block %d", path, i+1)] = text
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return plans
}

var (
	yamlBlock = regexp.MustCompile("(?s)\n```yaml\n(.*?)```")
	isPlan    = regexp.MustCompile(`(?m)^(select|vms):`)
)

// excludedKeys contains the keys that exclude other keys of the plan that sets every key.
var excludedKeys = []string{"source.credentials.name", "source.ssh.credentials.file"}

// The plan in testdata sets every key, so that the other tests cover all keys.
func TestFullPlanSetsEveryKey(t *testing.T) {
	text, err := os.ReadFile("testdata/v1/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	f := mustParse(t, string(text))
	for _, path := range allKeys(reflect.TypeFor[File](), "") {
		if _, ok := f.positions[path]; !ok && !slices.Contains(excludedKeys, path) && !strings.HasPrefix(path, "vms[0].") { // the defaults have the keys of a VM
			t.Errorf("testdata/v1/full.yaml does not set %s", path)
		}
	}
}

// allKeys lists the paths of all keys below a type.
func allKeys(t reflect.Type, path string) []string {
	var paths []string
	if t.Kind() == reflect.Slice {
		return allKeys(t.Elem(), path+"[0]")
	}
	if _, ok := reflect.New(t).Interface().(scalar); ok || t.Kind() != reflect.Struct {
		return nil
	}
	for _, k := range keysOf(t) {
		each := joinPath(path, k.name)
		paths = append(append(paths, each), allKeys(k.typ, each)...)
	}
	return paths
}

// decamp and the schema refuse the same plans: at each key, a value of another type, no value, and an unknown key.
func TestSchemaRefusesInvalidPlans(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	s := compileSchema(t)
	text, err := os.ReadFile("testdata/v1/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	tried := 0
	var each func(n *yaml.Node)
	each = func(n *yaml.Node) {
		original := *n
		for _, broken := range brokenNodes(&original) {
			*n = *broken
			mutated, err := yaml.Marshal(&doc)
			if err != nil {
				t.Fatal(err)
			}
			_, found := decodeFile(mutated)
			if err := validateText(t, s, string(mutated)); (err == nil) != (len(found) == 0) && !beyondSchema(found) {
				t.Errorf("line %d, %q: decamp returns %v, the schema %v", original.Line, broken.Value, found, err)
			}
			tried++
		}
		*n = original
		for i, child := range n.Content {
			if n.Kind != yaml.MappingNode || i%2 == 1 {
				each(child)
			}
		}
	}
	each(doc.Content[0])
	if tried < 300 {
		t.Errorf("tried %d plans, want at least 300", tried)
	}
}

// beyondSchema reports whether a finding is about time zones or selections, which a schema cannot check.
func beyondSchema(found Findings) bool {
	return len(found) == 1 && (strings.Contains(found[0].Text, "time zone") || strings.Contains(found[0].Text, "not a field of VMs"))
}

// brokenNodes returns nodes to replace n. Most are invalid there. Both decamp and the schema must accept the others.
func brokenNodes(n *yaml.Node) []*yaml.Node {
	scalar := func(tag, value string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value} }
	broken := []*yaml.Node{
		scalar("!!null", "null"), scalar("!!bool", "true"), scalar("!!int", "-7"), scalar("!!int", "3"), scalar("!!int", "70000"), scalar("!!float", "1.5"),
		scalar("!!str", ""), scalar("!!str", "no such word"), scalar("!!str", "100M"),
		{Kind: yaml.SequenceNode}, {Kind: yaml.MappingNode}, {Kind: yaml.SequenceNode, Content: []*yaml.Node{scalar("!!int", "1")}},
	}
	if n.Kind == yaml.MappingNode {
		more := *n
		more.Content = append(append([]*yaml.Node{}, n.Content...), scalar("!!str", "bogus"), scalar("!!int", "1"))
		broken = append(broken, &more)
		for i := 0; i < len(n.Content); i += 2 { // the mapping without one key
			less := *n
			less.Content = append(append([]*yaml.Node{}, n.Content[:i]...), n.Content[i+2:]...)
			broken = append(broken, &less)
		}
	}
	return broken
}

// The example in the documentation is a valid plan.
func TestDocumentedPlanIsValid(t *testing.T) {
	text, err := os.ReadFile("../../docs/plan-files.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "```yaml\n")
	example, _, ok := strings.Cut(after, "```")
	if !ok {
		t.Fatal("docs/plan-files.md has no example")
	}
	if f := mustParse(t, example); len(f.VMs) != 3 {
		t.Errorf("the example has %d VMs", len(f.VMs))
	}
}

// The documentation names every key.
func TestEveryKeyIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/plan-files.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range allKeys(reflect.TypeFor[File](), "") {
		name := path[strings.LastIndexByte(path, '.')+1:]
		if !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("docs/plan-files.md does not explain %s", path)
		}
	}
}

func TestShortTime(t *testing.T) {
	for in, want := range map[string]string{"1h": "1h", "90m": "1h30m", "5m": "5m", "30s": "30s", "1m30s": "1m30s", "10m": "10m", "1h0m1s": "1h0m1s", "100ms": "100ms"} {
		var d Duration
		if err := d.parseText(in); err != nil {
			t.Fatal(err)
		}
		if got := formatDefault(reflect.ValueOf(d)); got != want {
			t.Errorf("formatDefault(%s) = %s, want %s", in, got, want)
		}
	}
}
