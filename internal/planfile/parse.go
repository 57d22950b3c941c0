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
	maxBytes    = 4 << 20
	maxNodes    = 500_000
	maxMistakes = 100
)

// defaultFile returns a File with the default values.
func defaultFile() *File {
	return &File{
		Source:   Source{SSH: SSH{Port: 22}},
		Hooks:    defaultHooks(),
		Weight:   1,
		Defaults: DefaultOptions(),
	}
}

// DefaultOptions returns what holds for a VM where neither a plan nor a flag sets anything else.
func DefaultOptions() Options {
	return Options{
		Format: "raw", DomainType: "kvm", Hardware: "compat", Engine: "auto", Transport: "https", Connections: 8, Mode: Cold,
		NFC:      NFC{Handles: 4, Buffers: 4},
		Landing:  Landing{Memory: 1 << 30, Listen: ":2049", Portmap: ":111", Copy: "auto"},
		Warm:     Warm{Interval: Duration(time.Hour)},
		PowerOff: NeverOff, ShutdownWait: Duration(5 * time.Minute), Hooks: defaultHooks(),
	}
}

func defaultHooks() Hooks {
	return Hooks{Pre: Hook{Timeout: Duration(10 * time.Minute)}, Post: Hook{Timeout: Duration(10 * time.Minute)}}
}

// Load is Read and Parse.
func Load(path string) (*File, Findings, error) {
	text, err := Read(path)
	if err != nil {
		return nil, nil, err
	}
	file, found := Parse(text)
	return file, found, nil
}

// Read reads the text of a file, of one that is too long as much as shows it. The error is
// fault.NotFound or Invalid.
func Read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		kind := fault.Invalid
		if errors.Is(err, os.ErrNotExist) {
			kind = fault.NotFound
		}
		return nil, fault.New(kind, "read the plan: %w", err).WithHint("decamp plan init URL > plan.yaml writes one")
	}
	defer f.Close() // only read
	text, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return nil, fault.New(fault.Invalid, "read the plan: %w", err)
	}
	return text, nil
}

// Parse parses the text of a file. It reports all errors at once, in the order of the text; a File with
// Findings must not be used.
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

func parseAndCheck(text []byte) (*File, Findings) {
	file, found := decodeFile(text)
	if len(found) == 0 {
		found = file.checkRules()
	}
	found.Sort()
	if more := len(found) - maxMistakes; more > 0 {
		found = append(found[:maxMistakes:maxMistakes], Found("file", Pos{}, "", fault.New(fault.Invalid, "there are %d mistakes more", more).
			WithHint("correct the reported ones; that may remove the others")))
	}
	return file, found
}

// decodeFile reads the text as far as each value by itself goes. The schema can say as much.
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

// decodeRoot reads a text as far as to know that it is a mapping of our version; else root is nil.
func decodeRoot(text []byte) (d *decoder, root *yaml.Node) {
	d = newDecoder()
	root, err := readDocument(text)
	if err != nil {
		d.found = Findings{Found("file", Pos{Line: lineOf(err)}, "", err)}
		return d, nil
	}
	if !d.isAccepted(root, "") || !d.hasKind(root, yaml.MappingNode, "") || !d.checkVersion(root) {
		return d, nil
	}
	return d, root
}

// checkVersion refuses files of other versions before all else: they are not to be read as this
// one and found wrong.
func (d *decoder) checkVersion(root *yaml.Node) bool {
	for i := 0; i+1 < len(root.Content); i += 2 {
		v := root.Content[i+1]
		if n, err := strconv.Atoi(v.Value); root.Content[i].Value == "version" && err == nil && n != Version {
			d.addErrorf(v, "version", "take a newer decamp for newer plans", "version %d is not known, only %d", n, Version)
			return false
		}
	}
	return true
}

// readDocument reads the one document of a text.
func readDocument(text []byte) (*yaml.Node, error) {
	if err := checkBounds(text); err != nil {
		return nil, err
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc, next yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, fault.New(fault.Invalid, "the plan is empty").WithHint("decamp plan init URL > plan.yaml writes one")
	} else if err != nil {
		return nil, syntaxError(err)
	}
	if err := dec.Decode(&next); err == nil {
		return nil, fault.New(fault.Invalid, "line %d: a second document begins", next.Line).WithHint("a plan is one document: take the line --- out, or make two files")
	} else if !errors.Is(err, io.EOF) {
		return nil, syntaxError(err)
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		return nil, fault.New(fault.Invalid, "the plan is empty").WithHint("decamp plan init URL > plan.yaml writes one")
	}
	return doc.Content[0], nil
}

// checkBounds refuses a text that would make too many nodes: each needs one of these characters
// before or behind it.
func checkBounds(text []byte) error {
	nodes := 1
	for _, c := range text {
		if strings.IndexByte(",:[{?-\n", c) >= 0 {
			nodes++
		}
	}
	if len(text) > maxBytes || nodes > maxNodes {
		return fault.New(fault.Invalid, "the plan is larger than %d MiB, or has more than %d values", maxBytes>>20, maxNodes).
			WithHint("choose VMs with select, or make several plans")
	}
	return nil
}

// syntaxError takes the parser's own name off its errors.
func syntaxError(err error) error {
	return fault.New(fault.Invalid, "%s", shorten(strings.TrimPrefix(err.Error(), "yaml: "))).
		WithHint("indent with blanks, keep lists and keys in line, and put text with : # or quotes in it in quotes")
}

var lineNumber = regexp.MustCompile(`line (\d+)`)

// lineOf is the line that an error of the parser names; 0 if it names none.
func lineOf(err error) int {
	m := lineNumber.FindStringSubmatch(fmt.Sprint(err))
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1])
	return n
}
