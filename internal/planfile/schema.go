package planfile

import (
	"encoding/json"
	"reflect"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/units"
)

// SchemaID identifies the schema of plan files of version 1. It does not change with releases of decamp. The
// documentation site has the schema at this path: docs/schema.
const SchemaID = "https://decamp.dev/schema/plan/v1.json"

// Schema returns the JSON schema (2020-12) of a File, for editors. It is generated from the types that
// Parse decodes into, so it has the same keys, types and words. It accepts everything that Parse
// accepts. It does not check values that depend on others.
func Schema() ([]byte, error) {
	root := structureSchema(reflect.ValueOf(defaultFile()).Elem())
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["$id"], root["title"] = SchemaID, "decamp plan"
	root["anyOf"] = []any{map[string]any{"required": []string{"select"}}, map[string]any{"required": []string{"vms"}}}
	text, err := json.MarshalIndent(root, "", "  ")
	return append(text, '\n'), err
}

// valueSchema returns the schema of a value. v has the default value.
func valueSchema(v reflect.Value) map[string]any {
	if s, ok := reflect.New(v.Type()).Interface().(scalar); ok {
		return scalarSchema(s.textForm(), v)
	}
	if s, ok := reflect.New(v.Type()).Interface().(shorthand); ok {
		short := valueSchema(reflect.ValueOf(s.shortField()).Elem())
		return map[string]any{"oneOf": []any{short, structureSchema(v)}}
	}
	switch v.Kind() {
	case reflect.Struct:
		return structureSchema(v)
	case reflect.Slice:
		return listSchema(v.Type())
	case reflect.Map:
		return map[string]any{"type": "object", "propertyNames": map[string]any{"minLength": 1}, "additionalProperties": valueSchema(reflect.Zero(v.Type().Elem()))}
	case reflect.Bool:
		return map[string]any{"type": "boolean", "default": v.Bool()}
	}
	return map[string]any{"type": "integer"}
}

// listSchema returns the schema of a list, which also accepts one value if Parse does.
func listSchema(t reflect.Type) map[string]any {
	first := elementDefault(t.Elem())
	list := map[string]any{"type": "array", "minItems": 1, "items": valueSchema(first)}
	if !acceptsOne(t) {
		return list
	}
	one := first
	if s, ok := reflect.New(t.Elem()).Interface().(shorthand); ok {
		one = reflect.ValueOf(s.shortField()).Elem()
	}
	return map[string]any{"oneOf": []any{list, valueSchema(one)}}
}

// elementDefault returns the initial value of the elements of a list.
func elementDefault(t reflect.Type) reflect.Value {
	if t == reflect.TypeFor[VM]() {
		return reflect.ValueOf(VM{Options: defaultFile().Defaults})
	}
	return reflect.Zero(t)
}

// structureSchema returns the schema of a struct, whose fields have the default values.
func structureSchema(v reflect.Value) map[string]any {
	properties, required := map[string]any{}, []string{}
	for _, k := range keysOf(v.Type()) {
		p := valueSchema(v.FieldByIndex(k.index))
		p["description"] = k.doc
		if k.bounded {
			p["minimum"], p["maximum"] = k.min, k.max
			if n := v.FieldByIndex(k.index).Int(); n >= int64(k.min) && (n != 0 || k.min < 0) {
				p["default"] = n
			}
		}
		properties[k.name] = p
		if k.required {
			required = append(required, k.name)
		}
	}
	return map[string]any{"type": "object", "additionalProperties": false, "properties": properties, "required": required}
}

// scalarSchema returns the schema of a scalar with form f and default v.
func scalarSchema(f form, v reflect.Value) map[string]any {
	text := map[string]any{"type": "string"}
	switch {
	case len(f.words) > 0:
		text["enum"] = f.words
	case f.pattern != "":
		text["pattern"] = f.pattern
	default:
		text["minLength"] = 1
	}
	if f.example != "" {
		text["examples"] = []string{strings.Trim(f.example, `"`)}
	}
	if f.number {
		text = map[string]any{"oneOf": []any{text, map[string]any{"type": "integer", "minimum": 0, "maximum": f.maximum}}}
	}
	if d := formatDefault(v); d != "" {
		text["default"] = d
	}
	return text
}

// formatDefault returns a default as it is written in a file; otherwise an empty text.
func formatDefault(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case Size:
		if x > 0 {
			return units.FormatSize(int64(x))
		}
	case Duration:
		if x > 0 {
			return shortTime(time.Duration(x))
		}
	case Cutover:
		return manual
	}
	if v.Kind() == reflect.String {
		return v.String()
	}
	return ""
}

// shortTime formats a duration without trailing zero units: 1h, not 1h0m0s.
func shortTime(d time.Duration) string {
	s := d.String()
	s = strings.TrimSuffix(s, "0s")
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	if s == "" || d%time.Minute != 0 {
		return d.String()
	}
	return s
}
