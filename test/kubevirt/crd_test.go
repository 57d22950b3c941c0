package kubevirt

import (
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/decamp/decamp/test/kubevirt/upstream"
)

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
	machine, err := upstream.VirtualMachine()
	if err != nil {
		t.Fatal(err)
	}
	volume, err := upstream.CDI("datavolume")
	if err != nil {
		t.Fatal(err)
	}
	if got := volume.Spec.Versions[0]; got.Name != "v1beta1" || volume.Spec.Names.Kind != "DataVolume" {
		t.Fatalf("CDI's schema is of %s %s", got.Name, volume.Spec.Names.Kind)
	}
	return map[string]judge{
		"VirtualMachine": newJudge(t, machine.Spec.Versions[0].Schema.OpenAPIV3Schema),
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
