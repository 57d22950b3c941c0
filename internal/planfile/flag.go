package planfile

import (
	"reflect"
	"strconv"
	"strings"
)

// A Flag is a flag of decamp migrate that sets one key of Options.
type Flag struct {
	Name     string   // name without the dashes
	Key      string   // key of plan files, such as warm.interval
	Doc      string   // documentation of the key
	Field    any      // a pointer to the field
	Words    []string // the values of a closed list; nil: any
	Min, Max int      // bounds of a number; both 0 for none
}

// Flags returns the flags that set keys of o, in the order of the keys.
func (o *Options) Flags() []Flag { return flagsOf(reflect.ValueOf(o).Elem(), "") }

// flagsOf returns the flags of a struct and of the structs in it. path is the path of v with a dot at
// its end; empty for Options.
func flagsOf(v reflect.Value, path string) (all []Flag) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		name, isFlag := f.Tag.Lookup("flag")
		if !isFlag {
			if f.Type.Kind() == reflect.Struct {
				all = append(all, flagsOf(v.Field(i), path+key+".")...)
			}
			continue
		}
		flag := Flag{Name: name, Key: path + key, Doc: f.Tag.Get("doc"), Field: v.Field(i).Addr().Interface()}
		if s, is := flag.Field.(scalar); is {
			flag.Words = s.textForm().words
		}
		flag.Min, _ = strconv.Atoi(f.Tag.Get("min")) // a key without bounds has 0
		flag.Max, _ = strconv.Atoi(f.Tag.Get("max"))
		all = append(all, flag)
	}
	return all
}

// Keys returns the keys of Options, as warm.interval.
func Keys() []string { return pathsOf(reflect.TypeFor[Options](), "") }

// pathsOf returns the paths of all keys of a struct type.
func pathsOf(t reflect.Type, path string) (all []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		isScalar := reflect.PointerTo(f.Type).Implements(reflect.TypeFor[scalar]())
		if f.Type.Kind() == reflect.Struct && !isScalar {
			all = append(all, pathsOf(f.Type, path+key+".")...)
			continue
		}
		all = append(all, path+key)
	}
	return all
}
