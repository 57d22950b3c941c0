package workflow

import (
	"encoding/json"
	"errors"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetkey"
)

// ErrRefused is wrapped by the errors about a record without a valid signature of the fleet key.
var ErrRefused = errors.New("refused record")

// signedDoc is a signed document of a record that several executors share. Without the signature, any
// writer of the database could change the inputs of a run's steps.
type signedDoc struct {
	Doc       string `json:"doc"`       // document as JSON text
	Signature string `json:"signature"` // signature of Doc, its use, its run and its name
}

// Uses of the fleet key: the input of a run, and the result of a step.
const (
	inputUse  = "flow input"  // input of a run
	resultUse = "flow result" // result of a step
)

// signer signs and verifies the documents of a record.
type signer struct{ keys *fleetkey.Keys }

// sign returns a document of a run with its signature. name is the name of the flow or the step.
// Without keys it returns doc.
func (s signer) sign(use, run, name string, doc json.RawMessage) (json.RawMessage, error) {
	if s.keys == nil {
		return doc, nil
	}
	return json.Marshal(signedDoc{string(doc), s.keys.Sign(use, run, name, string(doc))})
}

// verify returns the document that sign signed for the same use, run and name, and fault.Denied with
// ErrRefused for any other. Without keys it returns doc.
func (s signer) verify(use, run, name string, doc json.RawMessage) (json.RawMessage, error) {
	if s.keys == nil {
		return doc, nil
	}
	var d signedDoc
	if err := json.Unmarshal(doc, &d); err != nil {
		d = signedDoc{} // a version without signatures wrote it, or it was changed
	}
	if err := s.keys.Verify(d.Signature, use, run, name, d.Doc); err != nil {
		return nil, fault.New(fault.Denied, "%w of run %s (%s): %w", ErrRefused, run, name, err).
			WithHint("cancel it and start it again: its images keep the copied data")
	}
	return json.RawMessage(d.Doc), nil
}
