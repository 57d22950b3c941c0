package kubevirt

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// encodeYAML returns objects as YAML documents with the fields in the order of their types. It converts
// JSON, so that the
// JSON tags also apply to YAML.
func encodeYAML(objects ...any) ([]byte, error) {
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	for _, o := range objects {
		text, err := marshalJSON(o)
		if err != nil {
			return nil, err
		}
		var document yaml.Node
		if err := yaml.Unmarshal(escapeForYAML(text), &document); err != nil {
			return nil, fmt.Errorf("encode: %w", err)
		}
		setStyle(&document)
		if err := e.Encode(&document); err != nil {
			return nil, fmt.Errorf("encode: %w", err)
		}
	}
	return out.Bytes(), e.Close()
}

// marshalJSON is json.Marshal without escapes for HTML.
func marshalJSON(o any) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	err := e.Encode(o)
	return out.Bytes(), err
}

// escapeForYAML escapes characters that JSON allows in a string, and that YAML does not allow or reads
// as a line break.
// Outside of strings, JSON contains none of them.
func escapeForYAML(text []byte) []byte {
	const byteOrderMark = '\ufeff'
	var out bytes.Buffer
	for _, r := range string(text) {
		if r >= 0x7f && r < 0xa0 || r == byteOrderMark {
			fmt.Fprintf(&out, `\u%04x`, r)
		} else {
			out.WriteRune(r)
		}
	}
	return out.Bytes()
}

// plainWord matches strings that need no quotes: no parser reads them as a number or a time.
var plainWord = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9./_-]*$`)

// yaml11Words are words that YAML 1.1, which kubectl supports, reads as booleans or null.
const yaml11Words = " y n yes no on off true false null "

// setStyle sets the block style for a node and its children, and quotes only where required.
func setStyle(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode {
		if n.Tag == "!!str" && (!plainWord.MatchString(n.Value) || strings.Contains(yaml11Words, " "+strings.ToLower(n.Value)+" ")) {
			n.Style = yaml.DoubleQuotedStyle
		} else {
			n.Style = 0
		}
	} else if len(n.Content) > 0 {
		n.Style = 0 // an empty node stays {}
	}
	for _, child := range n.Content {
		setStyle(child)
	}
}
