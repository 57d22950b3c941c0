package kubevirt

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// A module is where a project keeps its schemas. It is read and not compiled.
type module struct {
	path, sum string // the sum is of go.sum's kind
	file      string
}

var (
	kubeVirt = module{
		"kubevirt.io/kubevirt@v1.8.4", "h1:TXpT+U1SBIlsNI62qOev2aNkYVnGgyZ21gvmakIARrg=",
		"pkg/virt-operator/resource/generate/components/validations_generated.go",
	}
	cdi = module{
		"kubevirt.io/containerized-data-importer@v1.64.0", "h1:e7GkbDL3/Jyya9WDWRAMpL+SEvS1QvMQIQOHilF20Vg=",
		"pkg/operator/resources/crds_generated.go",
	}
)

// text returns the value that the module's file has for key in a map of strings.
func (m module) text(t *testing.T, key string) []byte {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(m.fetch(t), m.file), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	found := ""
	ast.Inspect(file, func(n ast.Node) bool {
		pair, ok := n.(*ast.KeyValueExpr)
		if ok && constant(pair.Key) == key {
			found = constant(pair.Value)
		}
		return found == ""
	})
	if found == "" {
		t.Fatalf("%s has no %q", m.file, key)
	}
	return []byte(found)
}

// constant is the value of a string that may be put together of several.
func constant(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		value, _ := strconv.Unquote(e.Value) // what is no string is no key
		return value
	case *ast.BinaryExpr:
		return constant(e.X) + constant(e.Y)
	}
	return ""
}

// fetch returns the folder of the module, which it downloads unless it is there. The checksum database
// does not know all of them; the sums here take its place.
func (m module) fetch(t *testing.T) string {
	t.Helper()
	cmd := exec.Command("go", "mod", "download", "-json", m.path)
	cmd.Dir, cmd.Stderr = t.TempDir(), os.Stderr
	cmd.Env = append(os.Environ(), "GONOSUMDB=kubevirt.io", "GOFLAGS=", "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("download %s: %v: %s", m.path, err, out)
	}
	var got struct{ Dir, Sum string }
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	if got.Sum != m.sum {
		t.Fatalf("%s has the sum %s", m.path, got.Sum)
	}
	return got.Dir
}

// A judge holds objects against a schema.
type judge struct {
	structure *schema.Structural
	validator validation.SchemaValidator
}

func newJudge(t *testing.T, props *v1.JSONSchemaProps) judge {
	t.Helper()
	var internal apiextensions.JSONSchemaProps
	if err := v1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(props, &internal, nil); err != nil {
		t.Fatal(err)
	}
	structure, err := schema.NewStructural(&internal)
	if err != nil {
		t.Fatal(err)
	}
	validator, _, err := validation.NewSchemaValidator(&internal)
	if err != nil {
		t.Fatal(err)
	}
	return judge{structure, validator}
}

// judges returns one for each kind of object.
func judges(t *testing.T) map[string]judge {
	t.Helper()
	var machine v1.CustomResourceValidation
	if err := yaml.Unmarshal(kubeVirt.text(t, "virtualmachine"), &machine); err != nil {
		t.Fatal(err)
	}
	var volume v1.CustomResourceDefinition
	if err := yaml.Unmarshal(cdi.text(t, "datavolume"), &volume); err != nil {
		t.Fatal(err)
	}
	if got := volume.Spec.Versions[0]; got.Name != "v1beta1" || volume.Spec.Names.Kind != "DataVolume" {
		t.Fatalf("CDI's schema is of %s %s", got.Name, volume.Spec.Names.Kind)
	}
	return map[string]judge{
		"VirtualMachine": newJudge(t, machine.OpenAPIV3Schema),
		"DataVolume":     newJudge(t, volume.Spec.Versions[0].Schema.OpenAPIV3Schema),
	}
}

// unknown returns the paths of fields that the schema does not have.
func (j judge) unknown(object map[string]any) []string {
	return pruning.PruneWithOptions(object, j.structure, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
}

// wrong returns what does not fit the schema otherwise.
func (j judge) wrong(object map[string]any) field.ErrorList {
	return validation.ValidateCustomResource(nil, object, j.validator)
}
