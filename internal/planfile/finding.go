package planfile

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/decamp/decamp/internal/fault"
)

// Finding is a problem of a plan, or a note about it.
type Finding struct {
	Code   string     `json:"code"`             // stable
	Kind   string     `json:"kind,omitempty"`   // a fault.Kind, of what blocks
	Line   int        `json:"line,omitempty"`   // line of the file, from 1
	Column int        `json:"column,omitempty"` // column, from 1
	VM     string     `json:"vm,omitempty"`     // its name, if it is about one
	Text   string     `json:"text"`             // description of the problem, with its object
	Remedy string     `json:"remedy,omitempty"` // command or change that solves it; empty if unknown
	Blocks bool       `json:"blocks"`           // the affected VM or plan would fail
	kind   fault.Kind // the same as Kind
}

// ErrorFinding returns a blocking Finding for an error: its kind, its text, and its hint as the remedy.
func ErrorFinding(code string, at Pos, vm string, err error) Finding {
	kind := fault.KindOf(err)
	return Finding{Code: code, Kind: kind.String(), Line: at.Line, Column: at.Column, VM: vm, Text: err.Error(), Remedy: fault.HintOf(err), Blocks: true, kind: kind}
}

// NoteFinding returns a Finding that does not block.
func NoteFinding(code string, at Pos, vm, remedy, format string, args ...any) Finding {
	return Finding{Code: code, Line: at.Line, Column: at.Column, VM: vm, Text: fmt.Sprintf(format, args...), Remedy: remedy}
}

// Findings are all findings about a plan. Err returns the blocking ones as an error.
type Findings []Finding

// Sort orders findings by their positions; those without a position come first. The order is stable.
func (fs Findings) Sort() {
	slices.SortStableFunc(fs, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// Blocking returns the number of blocking findings.
func (fs Findings) Blocking() int {
	n := 0
	for _, f := range fs {
		if f.Blocks {
			n++
		}
	}
	return n
}

// Err returns nil if no finding blocks. A single blocking finding becomes an error with its text, kind
// and remedy. Several become one error with their number; its kind is their common kind, or
// fault.Conflict.
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
	return fault.New(kind, "the plan has %d problems", len(blocking)).WithHint("apply the remedy of each finding, and check again")
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
