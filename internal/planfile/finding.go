package planfile

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/decamp/decamp/internal/fault"
)

// Finding is something that is wrong with a plan, or to be known about it.
type Finding struct {
	Code   string     `json:"code"`             // stable
	Kind   string     `json:"kind,omitempty"`   // a fault.Kind, of what blocks
	Line   int        `json:"line,omitempty"`   // line of the file, from 1
	Column int        `json:"column,omitempty"` // column, from 1
	VM     string     `json:"vm,omitempty"`     // its name, if it is about one
	Text   string     `json:"text"`
	Remedy string     `json:"remedy,omitempty"`
	Blocks bool       `json:"blocks"` // the affected VM or plan would fail
	kind   fault.Kind // the same as Kind
}

// Found makes a Finding that blocks of an error.
func Found(code string, at Pos, vm string, err error) Finding {
	kind := fault.KindOf(err)
	return Finding{Code: code, Kind: kind.String(), Line: at.Line, Column: at.Column, VM: vm, Text: err.Error(), Remedy: fault.HintOf(err), Blocks: true, kind: kind}
}

// Noted makes a Finding that does not block.
func Noted(code string, at Pos, vm, remedy, format string, args ...any) Finding {
	return Finding{Code: code, Line: at.Line, Column: at.Column, VM: vm, Text: fmt.Sprintf(format, args...), Remedy: remedy}
}

// Findings is all that was found. As an error it is what blocks.
type Findings []Finding

// Sort puts them in the order of the file; those of no place come first.
func (fs Findings) Sort() {
	slices.SortStableFunc(fs, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// Blocking counts what blocks.
func (fs Findings) Blocking() int {
	n := 0
	for _, f := range fs {
		if f.Blocks {
			n++
		}
	}
	return n
}

// Err returns nil if nothing blocks. Else its kind is that of all that blocks, if it is one
// kind, or fault.Conflict; and its text that of the finding, if it is one.
func (fs Findings) Err() error {
	var blocking Findings
	for _, f := range fs {
		if f.Blocks {
			blocking = append(blocking, f)
		}
	}
	switch len(blocking) {
	case 0:
		return nil
	case 1:
		err := fault.New(blocking[0].kind, "%w", errors.New(blocking[0].String()))
		return err.WithHint("%s", blocking[0].Remedy)
	}
	kind := blocking[0].kind
	for _, f := range blocking {
		if f.kind != kind {
			kind = fault.Conflict
		}
	}
	return fault.New(kind, "%d things are in the way", len(blocking)).WithHint("each of them has its remedy above; then check again")
}

// String returns the finding on one line: position, VM and text.
func (f Finding) String() string {
	text := f.Text
	if f.VM != "" {
		text = f.VM + ": " + text
	}
	switch {
	case f.Line > 0 && f.Column > 0:
		return fmt.Sprintf("%d:%d: %s", f.Line, f.Column, text)
	case f.Line > 0:
		return fmt.Sprintf("%d: %s", f.Line, text)
	}
	return text
}
