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

// A schemaValidator validates objects against a schema.
type schemaValidator struct {
	structure *schema.Structural
	validator validation.SchemaValidator
}

func newValidator(t *testing.T, props *v1.JSONSchemaProps) schemaValidator {
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
	return schemaValidator{structure, validator}
}

// newValidators returns a validator for each kind of object.
func newValidators(t *testing.T) map[string]schemaValidator {
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
		t.Fatalf("the schema of CDI is for %s %s", got.Name, volume.Spec.Names.Kind)
	}
	return map[string]schemaValidator{
		"VirtualMachine": newValidator(t, machine.Spec.Versions[0].Schema.OpenAPIV3Schema),
		"DataVolume":     newValidator(t, volume.Spec.Versions[0].Schema.OpenAPIV3Schema),
	}
}

// unknownFields returns the paths of fields that are not in the schema.
func (j schemaValidator) unknownFields(object map[string]any) []string {
	return pruning.PruneWithOptions(object, j.structure, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
}

// invalidValues returns the other errors of an object according to the schema.
func (j schemaValidator) invalidValues(object map[string]any) field.ErrorList {
	return validation.ValidateCustomResource(nil, object, j.validator)
}
