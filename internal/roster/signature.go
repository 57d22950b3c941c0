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

func (r *Roster) signPlan(p Plan) string {
	if r.cfg.Keys == nil {
		return ""
	}
	return r.cfg.Keys.Sign(planUse, planFields(p)...)
}

func (r *Roster) signVM(p Plan, k Key, warm bool, row signedVM) string {
	if r.cfg.Keys == nil {
		return ""
	}
	return r.cfg.Keys.Sign(vmUse, vmFields(p, k, warm, row)...)
}

// Keys returns those that the roster was opened with; nil if there are none.
func (r *Roster) Keys() *fleetkey.Keys { return r.cfg.Keys }

// VerifyPlan returns fault.Denied unless p, as Plan returned it, was submitted by a process with a
// key of ours and was not changed since.
func (r *Roster) VerifyPlan(p Plan) error {
	if r.cfg.Keys == nil {
		return noKeys()
	}
	if err := r.cfg.Keys.Verify(p.signature, planUse, planFields(p)...); err != nil {
		return fault.New(fault.Denied, "plan %s is refused: %w", p.Name, err).
			WithHint("if its text is what you expect, submit the same file again with the fleet's key: decamp plan run FILE --detach; else see who can write to the database")
	}
	return nil
}

// SameSignature reports whether p and q have the same signature, and any.
func (p Plan) SameSignature(q Plan) bool { return p.signature != "" && p.signature == q.signature }

// VerifyVM returns fault.Denied unless v, as VM returned it, was listed for p, which is verified,
// and was not changed since.
func (r *Roster) VerifyVM(p Plan, v VM) error {
	if r.cfg.Keys == nil {
		return noKeys()
	}
	if err := r.cfg.Keys.Verify(v.signed.signature, vmUse, vmFields(p, v.Key, v.Warm, v.signed)...); err != nil {
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

// PutSigned is PutRecord of a document that others act on: it is signed.
func (r *Roster) PutSigned(ctx context.Context, kind, id string, doc []byte) error {
	if r.cfg.Keys == nil {
		return noKeys()
	}
	sealed := signedRecord{Doc: string(doc), Signature: r.cfg.Keys.Sign(recordUse+kind, id, string(doc))}
	return r.PutRecord(ctx, kind, id, json.RawMessage(text(sealed)))
}

// SignedRecords returns the documents of a kind, by id, that processes with our key put. The others
// are in the error.
func (r *Roster) SignedRecords(ctx context.Context, kind string) (docs map[string][]byte, err error) {
	records, err := r.Records(ctx, kind)
	if err != nil {
		return nil, err
	}
	if r.cfg.Keys == nil {
		return nil, noKeys()
	}
	docs = map[string][]byte{}
	var refused []error
	for _, rec := range records {
		var sealed signedRecord
		if json.Unmarshal(rec.Doc, &sealed) != nil {
			sealed = signedRecord{}
		}
		if err := r.cfg.Keys.Verify(sealed.Signature, recordUse+kind, rec.ID, sealed.Doc); err != nil {
			refused = append(refused, fault.New(fault.Denied, "record %s (%s) of the database is refused: %w", rec.ID, kind, err).
				WithHint("it is of an older decamp, or was changed: see what it says, do that by hand, and delete it from the table records"))
			continue
		}
		docs[rec.ID] = []byte(sealed.Doc)
	}
	return docs, errors.Join(refused...)
}
