package flow

import (
	"encoding/json"
	"errors"

	"github.com/decamp/decamp/internal/fault"
)

// ErrRefused is in the tree of errors about a record that no executor with our key wrote.
var ErrRefused = errors.New("refused record")

// signedDoc is a document of a record that several executors share, with its signature: whoever can write
// to the database would decide what the steps of a run work on.
type signedDoc struct {
	Doc       string `json:"doc"`
	Signature string `json:"signature"`
}

// Uses of the fleet key: the input of a run, and the result of a step.
const (
	inputUse  = "flow input"
	resultUse = "flow result"
)

// signDoc signs a document of a run. name is of the flow or the step. Without keys it returns doc.
func (e *Engine) signDoc(use, run, name string, doc json.RawMessage) (json.RawMessage, error) {
	if e.cfg.Keys == nil {
		return doc, nil
	}
	return json.Marshal(signedDoc{string(doc), e.cfg.Keys.Sign(use, run, name, string(doc))})
}

// verifyDoc returns the document that signDoc signed for the same use, run and name, and fault.Denied for any
// other. Without keys it returns doc.
func (e *Engine) verifyDoc(use, run, name string, doc json.RawMessage) (json.RawMessage, error) {
	if e.cfg.Keys == nil {
		return doc, nil
	}
	var s signedDoc
	if err := json.Unmarshal(doc, &s); err != nil {
		s = signedDoc{} // of a version that signed nothing, or changed
	}
	if err := e.cfg.Keys.Verify(s.Signature, use, run, name, s.Doc); err != nil {
		return nil, fault.New(fault.Denied, "%w of run %s (%s): %w", ErrRefused, run, name, err).
			WithHint("cancel it and begin it again: what was copied is found in its images")
	}
	return json.RawMessage(s.Doc), nil
}
