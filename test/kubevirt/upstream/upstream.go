// Package upstream reads the resources that KubeVirt and CDI install in a cluster from their source
// code.
package upstream

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// VirtualMachine returns KubeVirt's definition of the resource: the generated schema, in the frame that
// the operator adds (NewVirtualMachineCrd in its crds.go).
func VirtualMachine() (*v1.CustomResourceDefinition, error) {
	var schema v1.CustomResourceValidation
	if err := kubeVirt.readDefinition("virtualmachine", &schema); err != nil {
		return nil, err
	}
	crd := &v1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: "virtualmachines.kubevirt.io"},
		Spec: v1.CustomResourceDefinitionSpec{
			Group: "kubevirt.io", Scope: v1.NamespaceScoped,
			Names: v1.CustomResourceDefinitionNames{Plural: "virtualmachines", Singular: "virtualmachine", Kind: "VirtualMachine"},
		},
	}
	for _, name := range []string{"v1", "v1alpha3"} {
		crd.Spec.Versions = append(crd.Spec.Versions, v1.CustomResourceDefinitionVersion{
			Name: name, Served: true, Storage: name == "v1", Schema: &schema,
			Subresources: &v1.CustomResourceSubresources{Status: &v1.CustomResourceSubresourceStatus{}},
		})
	}
	return crd, nil
}

// CDI returns CDI's definition of a resource, such as datavolume.
func CDI(kind string) (*v1.CustomResourceDefinition, error) {
	var crd v1.CustomResourceDefinition
	if err := cdi.readDefinition(kind, &crd); err != nil {
		return nil, err
	}
	crd.Status = v1.CustomResourceDefinitionStatus{} // the cluster sets the status
	return &crd, nil
}

// A module is the Go module in which a project keeps its schemas. It is read, not compiled.
type module struct {
	path, sum string // path with version, and checksum in the format of go.sum
	file      string // file with the schemas
}

var (
	// schema of KubeVirt
	kubeVirt = module{
		"kubevirt.io/kubevirt@v1.8.4", "h1:TXpT+U1SBIlsNI62qOev2aNkYVnGgyZ21gvmakIARrg=",
		"pkg/virt-operator/resource/generate/components/validations_generated.go",
	}
	// resources of CDI
	cdi = module{
		"kubevirt.io/containerized-data-importer@v1.64.0", "h1:e7GkbDL3/Jyya9WDWRAMpL+SEvS1QvMQIQOHilF20Vg=",
		"pkg/operator/resources/crds_generated.go",
	}
)

// readDefinition decodes into out the YAML that the module's file contains for key in a map of strings.
func (m module) readDefinition(key string, out any) error {
	dir, err := m.fetchModule()
	if err != nil {
		return err
	}
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, m.file), nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	found := ""
	ast.Inspect(file, func(n ast.Node) bool {
		pair, ok := n.(*ast.KeyValueExpr)
		if ok && stringValue(pair.Key) == key {
			found = stringValue(pair.Value)
		}
		return found == "" // stop after the first match
	})
	if found == "" {
		return fmt.Errorf("%s has no %q", m.file, key)
	}
	return yaml.Unmarshal([]byte(found), out)
}

// stringValue returns the value of a string constant, which may be a concatenation; empty for other
// expressions.
func stringValue(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		value, _ := strconv.Unquote(e.Value) // a value that is no string is not a key
		return value
	case *ast.BinaryExpr:
		return stringValue(e.X) + stringValue(e.Y)
	}
	return ""
}

// fetchModule returns the folder of the module, which it downloads if necessary. The checksum database
// does not contain all modules; the checksums here replace it.
func (m module) fetchModule() (string, error) {
	cmd := exec.Command("go", "mod", "download", "-json", m.path)
	cmd.Dir, cmd.Stderr = os.TempDir(), os.Stderr // a folder without a go.mod
	cmd.Env = append(os.Environ(), "GONOSUMDB=kubevirt.io", "GOFLAGS=", "GOWORK=off", "GO111MODULE=on")
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("download %s: %w: %s", m.path, err, out)
	}
	var got struct{ Dir, Sum string }
	if err := json.Unmarshal(out, &got); err != nil {
		return "", err
	}
	if got.Sum != m.sum { // the proxy served other content
		return "", fmt.Errorf("%s has the sum %s", m.path, got.Sum)
	}
	return got.Dir, nil
}
