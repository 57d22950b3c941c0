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

// compiled is the schema as another program reads it: one that knows nothing of our types.
func compiled(t testing.TB) *jsonschema.Schema {
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
	s, err := c.Compile(SchemaID) // which holds it against the meta-schema of 2020-12
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// plain is a document as an editor's YAML 1.2 parser has it: without timestamps.
func plain(t testing.TB, n *yaml.Node) any {
	t.Helper()
	switch n.Kind {
	case yaml.MappingNode:
		m := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			m[n.Content[i].Value] = plain(t, n.Content[i+1])
		}
		return m
	case yaml.SequenceNode:
		list := []any{}
		for _, item := range n.Content {
			list = append(list, plain(t, item))
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

func accepts(t testing.TB, s *jsonschema.Schema, text string) error {
	t.Helper()
	root, err := readDocument([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(plain(t, root))
}

// The schema takes every plan that decamp takes.
func TestSchemaTakesWhatIsTaken(t *testing.T) {
	s := compiled(t)
	files, _ := filepath.Glob("testdata/v*/*.yaml")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := accepts(t, s, string(text)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	plans := documentedPlans(t)
	if len(files) < 3 || len(plans) < 1 {
		t.Errorf("%d plans in testdata, %d in the documentation", len(files), len(plans))
	}
	for place, text := range plans {
		if err := accepts(t, s, text); err != nil {
			t.Errorf("%s: %v", place, err)
		}
		mustParse(t, text)
		if err := accepts(t, s, text+"\nbogus: 1\n"); err == nil {
			t.Errorf("%s: a key that does not exist is accepted", place)
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

// elsewhere are keys that cannot stand beside others of the plan that says all: they are two
// ways to say one thing, and it says each of them once.
var elsewhere = []string{"source.credentials.name", "source.ssh.credentials.file"}

// Every key is in the plan that is kept, so that the tests around are about all of it.
func TestOnePlanSaysEveryKey(t *testing.T) {
	text, err := os.ReadFile("testdata/v1/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	f := mustParse(t, string(text))
	for _, path := range allKeys(reflect.TypeFor[File](), "") {
		if _, ok := f.positions[path]; !ok && !slices.Contains(elsewhere, path) && !strings.HasPrefix(path, "vms[0].") { // a VM's are those of the defaults
			t.Errorf("%s is in no plan", path)
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

// What is wrong in one value, decamp and the schema both refuse: at every key there is, a
// value of another type, nothing, and a key that does not exist.
func TestSchemaRefusesWhatIsRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	s := compiled(t)
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
		was := *n
		for _, broken := range breakages(&was) {
			*n = *broken
			mutated, err := yaml.Marshal(&doc)
			if err != nil {
				t.Fatal(err)
			}
			_, found := decodeFile(mutated)
			if err := accepts(t, s, string(mutated)); (err == nil) != (len(found) == 0) && !beyond(found) {
				t.Errorf("line %d, %q: decamp says %v, the schema says %v", was.Line, broken.Value, found, err)
			}
			tried++
		}
		*n = was
		for i, child := range n.Content {
			if n.Kind != yaml.MappingNode || i%2 == 1 {
				each(child)
			}
		}
	}
	each(doc.Content[0])
	if tried < 300 {
		t.Errorf("only %d were tried", tried)
	}
}

// beyond reports what no schema can tell: the names of zones, and the language of selections.
func beyond(found Findings) bool {
	return len(found) == 1 && (strings.Contains(found[0].Text, "time zone") || strings.Contains(found[0].Text, "not a field of VMs"))
}

// breakages are nodes that may not stand where n stands. Some may: then both must take them.
func breakages(n *yaml.Node) []*yaml.Node {
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
		for i := 0; i < len(n.Content); i += 2 { // without one of its keys
			less := *n
			less.Content = append(append([]*yaml.Node{}, n.Content[:i]...), n.Content[i+2:]...)
			broken = append(broken, &less)
		}
	}
	return broken
}

// The example in the documentation is a plan.
func TestTheDocumentedPlanIsOne(t *testing.T) {
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
			t.Errorf("%s is written %s, want %s", in, got, want)
		}
	}
}
