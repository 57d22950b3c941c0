package vsphere

import (
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/vmware/govmomi/vim25/types"
)

// members are the fields that were looked for. To look takes longer than all the rest of an answer.
var members sync.Map // cache of *member by memberKey

type memberKey struct {
	of   reflect.Type
	name string
}

// A member is a field of a type.
type member struct {
	index []int // none: there is no such field
	base  bool  // embedded field: the type is derived from it
}

// memberOf finds a field by its name in the API.
func memberOf(t reflect.Type, name string) *member {
	key := memberKey{t, name}
	if known, ok := members.Load(key); ok {
		return known.(*member)
	}
	m := &member{}
	if f, ok := t.FieldByName(strings.ToUpper(name[:1]) + name[1:]); ok {
		m = &member{f.Index, f.Anonymous}
	}
	members.Store(key, m)
	return m
}

// propertyAt follows a path such as config.uuid; false if there can be no such thing. What is not
// set is no valid value.
func propertyAt(v reflect.Value, path string) (reflect.Value, bool) {
	for path != "" {
		var name string
		name, path, _ = strings.Cut(path, ".")
		for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
			v = v.Elem()
		}
		if v.Kind() != reflect.Struct || name == "" {
			return reflect.Value{}, false
		}
		m := memberOf(v.Type(), name)
		if m.index == nil {
			return reflect.Value{}, false
		}
		if v = v.FieldByIndex(m.index); isUnset(v) {
			return reflect.Value{}, true
		}
	}
	return v, v.IsValid()
}

func isUnset(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return v.IsNil()
	case reflect.String:
		return v.Len() == 0
	}
	return false
}

// asAnswered is a copy of a value as answers have it: lists are in an ArrayOf of their kind.
func asAnswered(v reflect.Value) any {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	v = deepCopy(v)
	if v.Kind() != reflect.Slice {
		return v.Interface()
	}
	kind := listKind(v.Type().Elem())
	array, ok := types.TypeFunc()("ArrayOf" + kind)
	if !ok {
		return v.Interface()
	}
	a := reflect.New(array)
	a.Elem().FieldByName(kind).Set(v)
	return a.Interface()
}

// listKind is how the API calls the items of a list.
func listKind(t reflect.Type) string {
	switch t.Name() {
	case "uint8":
		return "Byte"
	case "int16":
		return "Short"
	case "int32":
		return "Int"
	case "int64":
		return "Long"
	case "string":
		return "String"
	}
	return strings.TrimPrefix(t.Name(), "Base") // prefix of govmomi's interface names
}

var timeType = reflect.TypeFor[time.Time]()

// deepCopy copies a value with all that it points to: it is written to the wire when its object is
// not locked any more.
func deepCopy(v reflect.Value) reflect.Value {
	to := reflect.New(v.Type()).Elem()
	to.Set(v)
	if isUnset(v) || v.Type() == timeType {
		return to
	}
	switch v.Kind() {
	case reflect.Pointer:
		p := reflect.New(v.Type().Elem())
		p.Elem().Set(deepCopy(v.Elem()))
		to.Set(p)
	case reflect.Interface:
		to.Set(deepCopy(v.Elem()))
	case reflect.Slice:
		if !v.IsNil() {
			to.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
		}
		for i := range v.Len() {
			to.Index(i).Set(deepCopy(v.Index(i)))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				to.Field(i).Set(deepCopy(v.Field(i)))
			}
		}
	}
	return to
}
