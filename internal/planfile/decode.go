package planfile

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/suggest"
)

// A key is a field of a struct that a file may hold.
type key struct {
	name     string
	doc      string
	required bool
	min, max int
	bounded  bool
	index    []int
	typ      reflect.Type
}

// keysOf lists the keys of a struct, those of its inlined structs in their place. The JSON
// schema is made from the same list.
func keysOf(t reflect.Type) []key {
	var keys []key
	for i := range t.NumField() {
		f := t.Field(i)
		tag, option, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case option == "inline":
			for _, k := range keysOf(f.Type) {
				k.index = append([]int{i}, k.index...)
				keys = append(keys, k)
			}
		case tag != "" && tag != "-":
			k := key{name: tag, doc: f.Tag.Get("doc"), required: f.Tag.Get("required") == "true", index: []int{i}, typ: f.Type}
			if f.Tag.Get("max") != "" {
				k.bounded = true
				k.min, _ = strconv.Atoi(f.Tag.Get("min"))
				k.max, _ = strconv.Atoi(f.Tag.Get("max"))
			}
			keys = append(keys, k)
		}
	}
	return keys
}

// A shorthand is a struct that may be written as one value.
type shorthand interface {
	// short returns a pointer to the field that the value is of.
	shortField() any
}

// decoder converts nodes to Go values, and continues after errors.
type decoder struct {
	found  Findings
	positions  map[string]Pos
	preset map[reflect.Type]reflect.Value // initial values of list elements by type
	keys   map[reflect.Type][]key
}

func newDecoder() *decoder {
	return &decoder{positions: map[string]Pos{}, preset: map[reflect.Type]reflect.Value{}, keys: map[reflect.Type][]key{}}
}

func posOf(n *yaml.Node) Pos { return Pos{n.Line, n.Column} }

// addError adds a finding at a node.
func (d *decoder) addError(n *yaml.Node, path string, err error) {
	text := shorten(err.Error())
	if path != "" {
		text = shorten(path) + ": " + text
	}
	f := Found("file", posOf(n), "", fault.New(fault.Invalid, "%s", text).WithHint("%s", fault.HintOf(err)))
	d.found = append(d.found, f)
}

// maxQuoteBytes limits quotations of the text in findings, in bytes.
const maxQuoteBytes = 300

// shorten cuts a text at the end of a character.
func shorten(s string) string {
	if len(s) <= maxQuoteBytes {
		return s
	}
	return strings.ToValidUTF8(s[:maxQuoteBytes], "") + "…"
}

func (d *decoder) addErrorf(n *yaml.Node, path, remedy, format string, args ...any) {
	d.addError(n, path, fault.New(fault.Invalid, format, args...).WithHint("%s", remedy))
}

// decodeValue reads a node into v.
func (d *decoder) decodeValue(n *yaml.Node, v reflect.Value, path string) {
	if !d.isAccepted(n, path) {
		return
	}
	if s, ok := v.Addr().Interface().(scalar); ok {
		d.decodeScalar(n, s, path)
		return
	}
	if s, ok := v.Addr().Interface().(shorthand); ok && n.Kind == yaml.ScalarNode {
		d.decodeValue(n, reflect.ValueOf(s.shortField()).Elem(), path)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.decodeStruct(n, v, path)
	case reflect.Slice:
		d.decodeList(n, v, path)
	case reflect.Map:
		d.decodeMap(n, v, path)
	case reflect.Bool:
		d.decodeBool(n, v, path)
	case reflect.Int:
		d.decodeInt(n, v, path)
	}
}

// isAccepted refuses constructs that expand a small text to a large one, and values without content.
func (d *decoder) isAccepted(n *yaml.Node, path string) bool {
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		d.addErrorf(n, path, "write it out, or put what many VMs share into defaults", "anchors and aliases are not taken")
	case n.Style&yaml.TaggedStyle != 0:
		d.addErrorf(n, path, "write the value alone", "tags (%s) are not taken", n.Tag)
	case n.ShortTag() == "!!null":
		d.addErrorf(n, path, "give it a value, or leave the key out", "there is no value")
	default:
		return true
	}
	return false
}

var kindNames = map[yaml.Kind]string{yaml.MappingNode: "keys with values", yaml.SequenceNode: "a list", yaml.ScalarNode: "one value"}

// hasKind refuses a node of another kind. It repeats nothing of it, which may be a secret.
func (d *decoder) hasKind(n *yaml.Node, kind yaml.Kind, path string) bool {
	if n.Kind != kind {
		d.addErrorf(n, path, "", "want %s, not %s", kindNames[kind], kindNames[n.Kind])
		return false
	}
	return true
}

func (d *decoder) decodeScalar(n *yaml.Node, s scalar, path string) {
	if !d.hasKind(n, yaml.ScalarNode, path) {
		return
	}
	f := s.textForm()
	switch tag := n.ShortTag(); {
	case tag == "!!str" || tag == "!!timestamp":
	case tag == "!!int" && f.number:
	default:
		d.addErrorf(n, path, "put it in quotes if it is meant as text", "want text, not a %s", tagNames[tag])
		return
	}
	if err := s.parseText(n.Value); err != nil {
		d.addError(n, path, err)
	}
}

var tagNames = map[string]string{"!!int": "number", "!!float": "number", "!!bool": "truth value", "!!binary": "binary", "!!merge": "merge key"}

func (d *decoder) decodeBool(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" || n.Value != "true" && n.Value != "false" {
		d.addErrorf(n, path, "", "want true or false")
		return
	}
	v.SetBool(n.Value == "true")
}

func (d *decoder) decodeInt(n *yaml.Node, v reflect.Value, path string) {
	i, err := strconv.Atoi(n.Value)
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || err != nil || strconv.Itoa(i) != n.Value {
		d.addErrorf(n, path, "", "want a whole number")
		return
	}
	v.SetInt(int64(i))
}

func (d *decoder) decodeList(n *yaml.Node, v reflect.Value, path string) {
	if !d.hasKind(n, yaml.SequenceNode, path) {
		return
	}
	if len(n.Content) == 0 {
		d.addErrorf(n, path, "put something into it, or leave the key out", "the list is empty")
	}
	list := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, item := range n.Content {
		if preset, ok := d.preset[v.Type().Elem()]; ok {
			list.Index(i).Set(preset)
		}
		each := fmt.Sprintf("%s[%d]", path, i)
		d.positions[each] = posOf(item)
		d.decodeValue(item, list.Index(i), each)
	}
	v.Set(list)
}

// decodeMap reads names of the user's own, such as networks.
func (d *decoder) decodeMap(n *yaml.Node, v reflect.Value, path string) {
	if !d.hasKind(n, yaml.MappingNode, path) {
		return
	}
	m := reflect.MakeMap(v.Type())
	for name, value := range d.mappingValues(n, path) {
		each := reflect.New(v.Type().Elem()).Elem()
		d.decodeValue(value, each, path+"."+name)
		m.SetMapIndex(reflect.ValueOf(name), each)
	}
	v.Set(m)
}

// mappingValues returns the values of a mapping by their keys, and reports duplicate keys.
func (d *decoder) mappingValues(n *yaml.Node, path string) map[string]*yaml.Node {
	values, seen := map[string]*yaml.Node{}, map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		switch line, twice := seen[k.Value]; {
		case !d.isAccepted(k, path):
			continue
		case k.Kind != yaml.ScalarNode || k.ShortTag() != "!!str":
			d.addErrorf(k, path, "put it in quotes if it is meant as text", "a key must be text")
			continue
		case k.Value == "":
			d.addErrorf(k, path, "", "a key is empty")
			continue
		case twice:
			d.addErrorf(k, path, "keep one of the two", "%q stands there twice, first in line %d", k.Value, line)
			continue
		}
		seen[k.Value], values[k.Value] = k.Line, n.Content[i+1]
		d.positions[joinPath(path, k.Value)] = posOf(k)
	}
	return values
}

func joinPath(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// decodeStruct reads the keys of a struct in the order in which it declares them.
func (d *decoder) decodeStruct(n *yaml.Node, v reflect.Value, path string) {
	if !d.hasKind(n, yaml.MappingNode, path) {
		return
	}
	if pos := v.FieldByName("Pos"); pos.IsValid() && pos.Type() == reflect.TypeFor[Pos]() {
		pos.Set(reflect.ValueOf(posOf(n)))
	}
	keys := d.keysOf(v.Type())
	values := d.mappingValues(n, path)
	d.addUnknownKeys(n, values, keys, path)
	for _, k := range keys {
		each := joinPath(path, k.name)
		value, ok := values[k.name]
		if ok {
			d.decodeBounded(value, v.FieldByIndex(k.index), k, each)
		} else if k.required {
			d.addErrorf(n, path, k.doc, "%s is missing", k.name)
		}
		if k.typ == reflect.TypeFor[Options]() {
			d.presetVMs(v.FieldByIndex(k.index).Interface().(Options))
		}
	}
}

// presetVMs initializes VMs with the defaults, so that the values of a VM take precedence. Destinations
// are decided later, when the location of the VM is known.
func (d *decoder) presetVMs(defaults Options) {
	defaults.To = nil
	d.preset[reflect.TypeFor[VM]()] = reflect.ValueOf(VM{Options: defaults})
}

func (d *decoder) keysOf(t reflect.Type) []key {
	if d.keys[t] == nil {
		d.keys[t] = keysOf(t)
	}
	return d.keys[t]
}

func (d *decoder) decodeBounded(n *yaml.Node, v reflect.Value, k key, path string) {
	before := len(d.found)
	d.decodeValue(n, v, path)
	if !k.bounded || len(d.found) > before {
		return
	}
	if i := v.Int(); i < int64(k.min) || i > int64(k.max) {
		d.addErrorf(n, path, "", "%d is not in %d to %d", i, k.min, k.max)
	}
}

// secretWords are in keys that people put secrets under.
var secretWords = []string{"password", "passwd", "passphrase", "secret", "token"}

func (d *decoder) addUnknownKeys(n *yaml.Node, values map[string]*yaml.Node, keys []key, path string) {
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.name
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i].Value
		if values[name] != n.Content[i+1] || slices.Contains(names, name) {
			continue
		}
		d.addErrorf(n.Content[i], path, unknownRemedy(name, names), "%q is not a key here", name)
	}
}

func unknownRemedy(name string, names []string) string {
	if slices.ContainsFunc(secretWords, func(w string) bool { return strings.Contains(strings.ToLower(name), w) }) {
		return "take it out: a plan holds no secrets; put the password into a file that only you can read, and name it with credentials: {file: FILE}"
	}
	if meant, ok := suggest.Word(shorten(name), names); ok {
		return "did you mean " + meant + "?"
	}
	return "there are: " + strings.Join(names, " ")
}
