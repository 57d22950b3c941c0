package vsphere

import (
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/vmware/govmomi/vim25/types"
)

// members caches fields, because a lookup takes longer than the rest of an answer.
var members sync.Map // cache of *member by memberKey

// A memberKey is the key of a cached field.
type memberKey struct {
	of   reflect.Type // struct type
	name string       // name in the API
}

// A member is the result of a lookup of a field.
type member struct {
	index []int // index of the field; nil if the type has no such field
	base  bool  // whether the field is embedded: the type is derived from it
}

// memberOf returns the field with a name in the API.
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

// propertyAt returns the value at a path such as config.uuid; ok is false if the type has no such path.
// An unset property is an invalid Value.
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

// isUnset reports whether the API omits the value.
func isUnset(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return v.IsNil()
	case reflect.String:
		return v.Len() == 0
	}
	return false
}

// asAnswered returns a copy of a value for an answer. A list becomes an ArrayOf its kind.
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

// listKind returns the name of a list's items in the API.
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

// timeType is copied as a whole.
var timeType = reflect.TypeFor[time.Time]()

// deepCopy copies a value with everything it refers to, because the answer is encoded after its object
// is unlocked.
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
