package planfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/decamp/decamp/internal/fault"
)

// Bounds on input and output. A node takes 200 to 450 bytes of memory, with its comments, so the
// maximum is 230 MiB, for a second (measured with hostile texts).
const (
	maxBytes    = 4 << 20 // bytes of a file
	maxNodes    = 500_000 // nodes of a YAML document
	maxMistakes = 100     // findings of one file
)

// defaultFile returns a File with the default values, which the keys of a text replace.
func defaultFile() *File {
	return &File{
		Source:   Source{SSH: SSH{Port: 22}},
		Hooks:    defaultHooks(),
		Weight:   1,
		Defaults: DefaultOptions(),
	}
}

// DefaultOptions returns the options of a VM that neither a plan nor a flag changes.
func DefaultOptions() Options {
	return Options{
		Format: "raw", DomainType: "kvm", Hardware: "compat", Engine: "auto", Transport: "https", Connections: 8, Mode: Cold,
		NFC:      NFC{Handles: 4, Buffers: 4},
		Landing:  Landing{Memory: 1 << 30, Listen: ":2049", Portmap: ":111", Copy: "auto"},
		Warm:     Warm{Interval: Duration(time.Hour)},
		PowerOff: NeverOff, ShutdownWait: Duration(5 * time.Minute), Hooks: defaultHooks(),
	}
}

// defaultHooks returns hooks without commands, with the default timeouts.
func defaultHooks() Hooks {
	return Hooks{Pre: Hook{Timeout: Duration(10 * time.Minute)}, Post: Hook{Timeout: Duration(10 * time.Minute)}}
}

// Load reads a plan file and parses it. The error is that of Read.
func Load(path string) (*File, Findings, error) {
	text, err := Read(path)
	if err != nil {
		return nil, nil, err
	}
	file, found := Parse(text)
	return file, found, nil
}

// Read returns the text of a plan file. It reads at most one byte more than the limit, so that Parse
// can report a file that is too large. The error is fault.NotFound or fault.Invalid.
func Read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		kind := fault.Invalid
		if errors.Is(err, os.ErrNotExist) {
			kind = fault.NotFound
		}
		return nil, fault.New(kind, "read the plan: %w", err).WithHint("create one: decamp plan init URL > plan.yaml")
	}
	defer f.Close() // only read
	text, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return nil, fault.New(fault.Invalid, "read the plan: %w", err)
	}
	return text, nil
}

// Parse parses the text of a plan. It reports all errors at once, in the order of the text. A File with
// Findings must not be used. The File may share nested values with results of other calls, so they must
// not be changed.
func Parse(text []byte) (*File, Findings) {
	if file := latestFile(text); file != nil {
		return file, nil
	}
	file, found := parseAndCheck(text)
	if len(found) == 0 {
		storeLatest(text, file)
	}
	return file, found
}

// parseAndCheck parses the text without the cache, checks its rules, and limits the findings to
// maxMistakes and one that counts the others.
func parseAndCheck(text []byte) (*File, Findings) {
	file, found := decodeFile(text)
	if len(found) == 0 {
		found = file.checkRules()
	}
	found.Sort()
	if more := len(found) - maxMistakes; more > 0 {
		found = append(found[:maxMistakes:maxMistakes], ErrorFinding("file", Pos{}, "", fault.New(fault.Invalid, "there are %d more mistakes", more).
			WithHint("correct the reported ones; that may remove the others")))
	}
	return file, found
}

// decodeFile decodes the text, and checks each value separately. The JSON schema checks as much.
func decodeFile(text []byte) (*File, Findings) {
	d, root := decodeRoot(text)
	if root == nil {
		return nil, d.found
	}
	file := defaultFile()
	d.presetVMs(file.Defaults)
	d.decodeValue(root, reflect.ValueOf(file).Elem(), "")
	file.positions = d.positions
	return file, d.found
}

// decodeRoot parses a text, and checks that it is a mapping of a known version. root is nil if it is
// not; d has the errors.
func decodeRoot(text []byte) (d *decoder, root *yaml.Node) {
	d = newDecoder()
	root, err := readDocument(text)
	if err != nil {
		d.found = Findings{ErrorFinding("file", Pos{Line: lineOf(err)}, "", err)}
		return d, nil
	}
	if !d.isAccepted(root, "") || !d.hasKind(root, yaml.MappingNode, "") || !d.checkVersion(root) {
		return d, nil
	}
	return d, root
}

// checkVersion refuses files of other versions before anything else: their other keys would cause
// misleading errors.
func (d *decoder) checkVersion(root *yaml.Node) bool {
	for i := 0; i+1 < len(root.Content); i += 2 {
		v := root.Content[i+1]
		if n, err := strconv.Atoi(v.Value); root.Content[i].Value == "version" && err == nil && n != Version {
			d.addErrorf(v, "version", "use a newer decamp", "version %d is not supported, only %d", n, Version)
			return false
		}
	}
	return true
}

// readDocument parses a text, which must be exactly one YAML document, and returns its root node.
func readDocument(text []byte) (*yaml.Node, error) {
	if err := checkBounds(text); err != nil {
		return nil, err
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc, next yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, fault.New(fault.Invalid, "the plan is empty").WithHint("create one: decamp plan init URL > plan.yaml")
	} else if err != nil {
		return nil, syntaxError(err)
	}
	if err := dec.Decode(&next); err == nil {
		return nil, fault.New(fault.Invalid, "line %d: a second document begins", next.Line).WithHint("a plan is one document: remove the line ---, or write two files")
	} else if !errors.Is(err, io.EOF) {
		return nil, syntaxError(err)
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		return nil, fault.New(fault.Invalid, "the plan is empty").WithHint("create one: decamp plan init URL > plan.yaml")
	}
	return doc.Content[0], nil
}

// checkBounds returns an error if a text is too large or could have too many nodes. It runs before the
// parser: each node requires one of the counted characters before or after it.
func checkBounds(text []byte) error {
	nodes := 1
	for _, c := range text {
		if strings.IndexByte(",:[{?-\n", c) >= 0 {
			nodes++
		}
	}
	if len(text) > maxBytes || nodes > maxNodes {
		return fault.New(fault.Invalid, "the plan is larger than %d MiB, or has more than %d values", maxBytes>>20, maxNodes).
			WithHint("select VMs with select, or write several plans")
	}
	return nil
}

// syntaxError wraps an error of the YAML parser, without the name of that package.
func syntaxError(err error) error {
	return fault.New(fault.Invalid, "%s", shorten(strings.TrimPrefix(err.Error(), "yaml: "))).
		WithHint("indent with spaces, align keys and list items, and quote text that contains : or # or quotes")
}

// lineNumber matches the line in errors of the YAML parser.
var lineNumber = regexp.MustCompile(`line (\d+)`)

// lineOf returns the line of an error of the YAML parser; 0 if it has none.
func lineOf(err error) int {
	m := lineNumber.FindStringSubmatch(fmt.Sprint(err))
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1])
	return n
}
