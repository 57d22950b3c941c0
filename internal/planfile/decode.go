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

// A key is a field of a struct that a file may contain.
type key struct {
	name     string       // name in the file, from the yaml tag
	doc      string       // description for the schema and for remedies
	required bool         // the struct is invalid without the key
	min, max int          // smallest and largest value; valid only if bounded
	bounded  bool         // the field has a max tag, and so is an int
	index    []int        // index of the field for reflect.Value.FieldByIndex
	typ      reflect.Type // type of the field
}

// keysOf returns the keys of a struct in the order of declaration. The keys of an inlined struct
// replace it. The JSON schema uses the same list.
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

// A shorthand is a struct that a file may also write as one value.
type shorthand interface {
	// shortField returns a pointer to the field that the value is of.
	shortField() any
}

// A decoder converts YAML nodes to Go values. It continues after errors, so that one run finds all of
// them.
type decoder struct {
	found     Findings                       // errors so far, unsorted
	positions map[string]Pos                 // position of each key and list element by its path
	preset    map[reflect.Type]reflect.Value // initial values of list elements by type
	keys      map[reflect.Type][]key         // keys of each struct type, computed once
	secret    string                         // remedy for an unknown key under which users put a secret
}

// planSecret is the default of decoder.secret.
const planSecret = "remove it: a plan contains no secrets; write the password to a file that only you can read, and name the file with credentials: {file: FILE}"

// newDecoder returns a decoder without presets.
func newDecoder() *decoder {
	return &decoder{positions: map[string]Pos{}, preset: map[reflect.Type]reflect.Value{}, keys: map[reflect.Type][]key{}, secret: planSecret}
}

// posOf returns the position of a node, from line 1 and column 1.
func posOf(n *yaml.Node) Pos { return Pos{n.Line, n.Column} }

// addError adds a finding at a node. The hint of err becomes the remedy. path is the path of the key;
// empty for the whole file.
func (d *decoder) addError(n *yaml.Node, path string, err error) {
	text := shorten(err.Error())
	if path != "" {
		text = shorten(path) + ": " + text
	}
	f := ErrorFinding("file", posOf(n), "", fault.New(fault.Invalid, "%s", text).WithHint("%s", fault.HintOf(err)))
	d.found = append(d.found, f)
}

// maxQuoteBytes limits quotations of the file in findings.
const maxQuoteBytes = 300

// shorten cuts a text to maxQuoteBytes at a character boundary.
func shorten(s string) string {
	if len(s) <= maxQuoteBytes {
		return s
	}
	return strings.ToValidUTF8(s[:maxQuoteBytes], "") + "…"
}

// addErrorf is addError with a formatted message and a remedy, which may be empty.
func (d *decoder) addErrorf(n *yaml.Node, path, remedy, format string, args ...any) {
	d.addError(n, path, fault.New(fault.Invalid, format, args...).WithHint("%s", remedy))
}

// decodeValue decodes a node into v, which must be addressable. path is the path of the value, for
// messages and positions.
func (d *decoder) decodeValue(n *yaml.Node, v reflect.Value, path string) {
	if !d.isAccepted(n, path) {
		return
	}
	if s, ok := v.Addr().Interface().(scalar); ok {
		d.decodeScalar(n, s, path)
		return
	}
	if s, ok := v.Addr().Interface().(shorthand); ok && n.Kind == yaml.ScalarNode {
		d.decodeShort(n, v, s, path)
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

// isAccepted reports whether a node may be decoded, and adds an error if not. It refuses anchors,
// aliases and tags, by which a small text can expand to a large one, and null values.
func (d *decoder) isAccepted(n *yaml.Node, path string) bool {
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		d.addErrorf(n, path, "write it out, or move common options to defaults", "anchors and aliases are not supported")
	case n.Style&yaml.TaggedStyle != 0:
		d.addErrorf(n, path, "write the value without a tag", "tags (%s) are not supported", n.Tag)
	case n.ShortTag() == "!!null":
		d.addErrorf(n, path, "set a value, or remove the key", "the value is missing")
	default:
		return true
	}
	return false
}

// kindNames has the names of node kinds for messages.
var kindNames = map[yaml.Kind]string{yaml.MappingNode: "keys with values", yaml.SequenceNode: "a list", yaml.ScalarNode: "one value"}

// hasKind reports whether a node is of a kind, and adds an error if not. The message does not repeat
// the value, which may be a secret.
func (d *decoder) hasKind(n *yaml.Node, kind yaml.Kind, path string) bool {
	if n.Kind != kind {
		d.addErrorf(n, path, "", "want %s, not %s", kindNames[kind], kindNames[n.Kind])
		return false
	}
	return true
}

// decodeScalar decodes a node into s. Numbers and booleans without quotes are refused, except numbers
// for types that permit them.
func (d *decoder) decodeScalar(n *yaml.Node, s scalar, path string) {
	if !d.hasKind(n, yaml.ScalarNode, path) {
		return
	}
	f := s.textForm()
	switch tag := n.ShortTag(); {
	case tag == "!!str" || tag == "!!timestamp":
	case tag == "!!int" && f.number:
	default:
		d.addErrorf(n, path, "put it in quotes if it is text", "want text, not a %s", tagNames[tag])
		return
	}
	if err := s.parseText(n.Value); err != nil {
		d.addError(n, path, err)
	}
}

// tagNames has the names of YAML tags for messages.
var tagNames = map[string]string{"!!int": "number", "!!float": "number", "!!bool": "truth value", "!!binary": "binary", "!!merge": "merge key"}

// decodeBool accepts true and false only; YAML 1.1 also has yes, no, on and off.
func (d *decoder) decodeBool(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" || n.Value != "true" && n.Value != "false" {
		d.addErrorf(n, path, "", "want true or false")
		return
	}
	v.SetBool(n.Value == "true")
}

// decodeInt accepts decimal numbers in their shortest form: no octal, no plus sign, no underscores.
func (d *decoder) decodeInt(n *yaml.Node, v reflect.Value, path string) {
	i, err := strconv.Atoi(n.Value)
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || err != nil || strconv.Itoa(i) != n.Value {
		d.addErrorf(n, path, "", "want a whole number")
		return
	}
	v.SetInt(int64(i))
}

// decodeList decodes a list, or one value as a list of one. Each element starts with the preset value of
// its type. An empty list is an error.
func (d *decoder) decodeList(n *yaml.Node, v reflect.Value, path string) {
	items := n.Content
	if n.Kind == yaml.ScalarNode && acceptsOne(v.Type()) {
		items = []*yaml.Node{n}
	} else if !d.hasKind(n, yaml.SequenceNode, path) {
		return
	}
	if len(items) == 0 {
		d.addErrorf(n, path, "add an element, or remove the key", "the list is empty")
	}
	list := reflect.MakeSlice(v.Type(), len(items), len(items))
	for i, item := range items {
		if preset, ok := d.preset[v.Type().Elem()]; ok {
			list.Index(i).Set(preset)
		}
		each := fmt.Sprintf("%s[%d]", path, i)
		d.positions[each] = posOf(item)
		d.decodeValue(item, list.Index(i), each)
	}
	v.Set(list)
}

// acceptsOne reports whether a file may write a list of one element as that element.
func acceptsOne(list reflect.Type) bool {
	element := reflect.New(list.Elem()).Interface()
	_, isScalar := element.(scalar)
	_, isShort := element.(shorthand)
	return (isScalar || isShort) && list != reflect.TypeFor[Program]()
}

// decodeMap decodes a map whose keys are names of the user, such as networks.
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

// mappingValues returns the values of a mapping by their keys, and adds errors for duplicate, empty and
// non-text keys.
func (d *decoder) mappingValues(n *yaml.Node, path string) map[string]*yaml.Node {
	values, seen := map[string]*yaml.Node{}, map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		switch line, twice := seen[k.Value]; {
		case !d.isAccepted(k, path):
			continue
		case k.Kind != yaml.ScalarNode || k.ShortTag() != "!!str":
			d.addErrorf(k, path, "put it in quotes if it is text", "a key must be text")
			continue
		case k.Value == "":
			d.addErrorf(k, path, "", "a key is empty")
			continue
		case twice:
			d.addErrorf(k, path, "keep one of the two", "duplicate key %q, first in line %d", k.Value, line)
			continue
		}
		seen[k.Value], values[k.Value] = k.Line, n.Content[i+1]
		d.positions[joinPath(path, k.Value)] = posOf(k)
	}
	return values
}

// joinPath appends a key to a path. The path of the root is empty.
func joinPath(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// decodeStruct decodes the keys of a struct in the order of declaration, which matters: defaults
// precede vms. It sets a field Pos to the position of the node.
func (d *decoder) decodeStruct(n *yaml.Node, v reflect.Value, path string) {
	if !d.hasKind(n, yaml.MappingNode, path) {
		return
	}
	setPos(v, n)
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

// decodeShort decodes the one value of a shorthand, as if its key were there.
func (d *decoder) decodeShort(n *yaml.Node, v reflect.Value, s shorthand, path string) {
	setPos(v, n)
	for _, k := range d.keysOf(v.Type()) {
		if v.FieldByIndex(k.index).Addr().Interface() == s.shortField() {
			d.positions[joinPath(path, k.name)] = posOf(n)
		}
	}
	d.decodeValue(n, reflect.ValueOf(s.shortField()).Elem(), path)
}

// setPos sets the field Pos of a struct, if it has one.
func setPos(v reflect.Value, n *yaml.Node) {
	if pos := v.FieldByName("Pos"); pos.IsValid() && pos.Type() == reflect.TypeFor[Pos]() {
		pos.Set(reflect.ValueOf(posOf(n)))
	}
}

// presetVMs makes the defaults the initial value of each VM, so that keys of a VM take precedence.
// Destinations are excluded: they also depend on the datastore of the VM, which is known later.
func (d *decoder) presetVMs(defaults Options) {
	defaults.To = nil
	d.preset[reflect.TypeFor[VM]()] = reflect.ValueOf(VM{Options: defaults})
}

// keysOf returns the cached result of the function keysOf.
func (d *decoder) keysOf(t reflect.Type) []key {
	if d.keys[t] == nil {
		d.keys[t] = keysOf(t)
	}
	return d.keys[t]
}

// decodeBounded decodes the value of a key, and checks the bounds of the key.
func (d *decoder) decodeBounded(n *yaml.Node, v reflect.Value, k key, path string) {
	before := len(d.found)
	d.decodeValue(n, v, path)
	if !k.bounded || len(d.found) > before {
		return
	}
	if i := v.Int(); i < int64(k.min) || i > int64(k.max) {
		d.addErrorf(n, path, "", "%d is not between %d and %d", i, k.min, k.max)
	}
}

// secretWords occur in unknown keys under which users put secrets.
var secretWords = []string{"password", "passwd", "passphrase", "secret", "token"}

// addUnknownKeys adds an error for each key of n that is not in keys. Keys that mappingValues refused
// are skipped: they have an error already.
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
		d.addErrorf(n.Content[i], path, d.unknownRemedy(name, names), "unknown key %q", name)
	}
}

// unknownRemedy returns the remedy for an unknown key: how to name a secret, the nearest known key, or
// the list of known keys.
func (d *decoder) unknownRemedy(name string, names []string) string {
	if slices.ContainsFunc(secretWords, func(w string) bool { return strings.Contains(strings.ToLower(name), w) }) {
		return d.secret
	}
	if meant, ok := suggest.Word(shorten(name), names); ok {
		return "did you mean " + meant + "?"
	}
	return "valid keys: " + strings.Join(names, " ")
}
