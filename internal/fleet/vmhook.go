package fleet

import (
	"context"
	"encoding/json"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
)

// VMHooks runs each hook of a VM once, regardless of the number of attempts and workers: pre before the
// first attempt, post after the last. A hook that was interrupted with its process runs again, so hooks
// must be safe to run twice. Both run again for a VM that is started again after its post hook ran with
// a failure. They never run again for a published VM.
type VMHooks struct {
	Records *fleetdb.Records // records of the fleet database
	VM      fleetdb.Key      // VM of the hooks
}

// vmHookRecord is the record of a VM's hooks.
type vmHookRecord struct {
	Pre       time.Time `json:"pre,omitzero"`        // when the hook before the VM succeeded; zero if it did not
	Post      time.Time `json:"post,omitzero"`       // when the hook after the VM succeeded, later than Pre
	Published bool      `json:"published,omitempty"` // the VM was published; no hook runs again
}

// RunPre runs the hook before the VM, unless it ran for the current execution.
func (h VMHooks) RunPre(ctx context.Context, run func() error) error {
	on, err := h.readRecord(ctx)
	if err != nil || on.Published || !on.Pre.IsZero() && on.Post.IsZero() {
		return err
	}
	if err := run(); err != nil {
		return err
	}
	return h.writeRecord(ctx, vmHookRecord{Pre: time.Now()})
}

// RunPost runs the hook after the VM, when it is published or has failed. An error of run is returned, and
// the hook runs again with the next call.
func (h VMHooks) RunPost(ctx context.Context, published bool, run func() error) error {
	on, err := h.readRecord(ctx)
	if err != nil || on.Published {
		return err
	}
	if err := run(); err != nil {
		return err
	}
	on.Post, on.Published = time.Now(), published
	return h.writeRecord(ctx, on)
}

// Reset makes both hooks run again, after the VM was undone.
func (h VMHooks) Reset(ctx context.Context) error {
	return h.Records.Drop(ctx, fleetdb.HooksOfVM, h.VM.String())
}

// readRecord returns the record; the zero value if none exists.
func (h VMHooks) readRecord(ctx context.Context) (on vmHookRecord, err error) {
	doc, err := h.Records.Get(ctx, fleetdb.HooksOfVM, h.VM.String())
	if err != nil || doc == nil {
		return on, err
	}
	if err := json.Unmarshal(doc, &on); err != nil {
		return on, fault.New(fault.Corrupt, "the record of the hooks of %s: %w", h.VM, err)
	}
	return on, nil
}

// writeRecord writes the record, also while the attempt is being stopped: the hook has ended.
func (h VMHooks) writeRecord(ctx context.Context, on vmHookRecord) error {
	text, _ := json.Marshal(on) // times and a flag
	last, end := lastWritesContext(ctx)
	defer end()
	return h.Records.Put(last, fleetdb.HooksOfVM, h.VM.String(), text)
}
