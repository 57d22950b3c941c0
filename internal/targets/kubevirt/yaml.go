package kubevirt

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// encode writes objects as YAML documents, fields in the order of their types. It goes by way of
// JSON, which is YAML as well, so that one set of tags says what fields are called.
func encode(objects ...any) ([]byte, error) {
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	for _, o := range objects {
		text, err := marshal(o)
		if err != nil {
			return nil, err
		}
		var document yaml.Node
		if err := yaml.Unmarshal(escapeForYAML(text), &document); err != nil {
			return nil, fmt.Errorf("encode: %w", err)
		}
		block(&document)
		if err := e.Encode(&document); err != nil {
			return nil, fmt.Errorf("encode: %w", err)
		}
	}
	return out.Bytes(), e.Close()
}

// marshal is JSON with "&" and "<" as they are.
func marshal(o any) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	err := e.Encode(o)
	return out.Bytes(), err
}

// escapeForYAML escapes the characters that JSON allows within a string and YAML does not, or reads as a line
// break. Outside of strings JSON has none of them.
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

// plain are words that need no quotes whoever reads them: nothing that is a number or a time to anybody.
var plain = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9./_-]*$`)

// truths are words that are not text to readers of YAML 1.1, which kubectl is.
const truths = " y n yes no on off true false null "

// block has a node written in lines, without the quotes it does not need.
func block(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode {
		if n.Tag == "!!str" && (!plain.MatchString(n.Value) || strings.Contains(truths, " "+strings.ToLower(n.Value)+" ")) {
			n.Style = yaml.DoubleQuotedStyle
		} else {
			n.Style = 0
		}
	} else if len(n.Content) > 0 {
		n.Style = 0 // an empty one stays {}
	}
	for _, child := range n.Content {
		block(child)
	}
}
