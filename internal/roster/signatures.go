package roster

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetkey"
)

// Uses of the fleet key.
const (
	planUse = "plan"
	vmUse   = "vm"
)

// signedVM is the part of a VM's row that is signed, as the database has it.
type signedVM struct {
	listing   string
	spec      string
	signature string
}

// planFields are what a plan's signature covers: all that steers what workers do. State and Order
// change, and are not among them.
func planFields(p Plan) []string {
	return []string{p.Name, p.Text, p.Folder, p.By, p.Role, strconv.FormatInt(micros(p.Created), 10)}
}

// vmFields are what a VM's signature covers: the plan that it belongs to, by the plan's signature,
// and what is to be done.
func vmFields(p Plan, k Key, warm bool, row signedVM) []string {
	return []string{p.signature, k.Plan, k.VM, strconv.FormatBool(warm), row.listing, row.spec}
}

// signer signs what other processes of the fleet act on. keys is nil if this process has no key of
// the fleet: it signs nothing then, and can verify nothing.
type signer struct{ keys *fleetkey.Keys }

func (s signer) signPlan(p Plan) string {
	if s.keys == nil {
		return ""
	}
	return s.keys.Sign(planUse, planFields(p)...)
}

func (s signer) signVM(p Plan, k Key, warm bool, row signedVM) string {
	if s.keys == nil {
		return ""
	}
	return s.keys.Sign(vmUse, vmFields(p, k, warm, row)...)
}

// Verify returns fault.Denied unless p, as Get returned it, was submitted by a process with a
// key of ours and was not changed since.
func (s *Plans) Verify(p Plan) error {
	if s.signer.keys == nil {
		return noKeys()
	}
	if err := s.signer.keys.Verify(p.signature, planUse, planFields(p)...); err != nil {
		return fault.New(fault.Denied, "plan %s is refused: %w", p.Name, err).
			WithHint("if its text is what you expect, submit the same file again with the fleet's key: decamp plan run FILE --detach; else see who can write to the database")
	}
	return nil
}

// SameSignature reports whether p and q have the same signature, and any.
func (p Plan) SameSignature(q Plan) bool { return p.signature != "" && p.signature == q.signature }

// Verify returns fault.Denied unless v, as Get returned it, was listed for p, which is verified,
// and was not changed since.
func (s *VMs) Verify(p Plan, v VM) error {
	if s.signer.keys == nil {
		return noKeys()
	}
	if err := s.signer.keys.Verify(v.signed.signature, vmUse, vmFields(p, v.Key, v.Warm, v.signed)...); err != nil {
		return fault.New(fault.Denied, "VM %s of plan %s is refused: %w", v.Name, p.Name, err).
			WithHint("see who can write to the database; then cancel the plan, drop it and submit it again")
	}
	return nil
}

func noKeys() error {
	return fault.New(fault.Denied, "this process has no fleet key").WithHint("start it with --fleet-key FILE")
}

// recordUse is followed by the kind of record.
const recordUse = "record "

// signedRecord is a record's document as the database has it.
type signedRecord struct {
	Doc       string `json:"doc"`
	Signature string `json:"signature"`
}

// PutSigned writes a record with a signature. Use it for documents that other processes act on.
func (s *Records) PutSigned(ctx context.Context, kind, id string, doc []byte) error {
	if s.signer.keys == nil {
		return noKeys()
	}
	sealed := signedRecord{Doc: string(doc), Signature: s.signer.keys.Sign(recordUse+kind, id, string(doc))}
	return s.Put(ctx, kind, id, json.RawMessage(text(sealed)))
}

// ListSigned returns the documents of a kind, by id, whose signature is of our key. The error names
// the others.
func (s *Records) ListSigned(ctx context.Context, kind string) (docs map[string][]byte, err error) {
	records, err := s.List(ctx, kind)
	if err != nil {
		return nil, err
	}
	if s.signer.keys == nil {
		return nil, noKeys()
	}
	docs = map[string][]byte{}
	var refused []error
	for _, rec := range records {
		var sealed signedRecord
		if json.Unmarshal(rec.Doc, &sealed) != nil {
			sealed = signedRecord{}
		}
		if err := s.signer.keys.Verify(sealed.Signature, recordUse+kind, rec.ID, sealed.Doc); err != nil {
			refused = append(refused, fault.New(fault.Denied, "record %s (%s) of the database is refused: %w", rec.ID, kind, err).
				WithHint("it is of an older decamp, or was changed: see what it says, do that by hand, and delete it from the table records"))
			continue
		}
		docs[rec.ID] = []byte(sealed.Doc)
	}
	return docs, errors.Join(refused...)
}
