package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/targets"
)

// convertStep chooses the hardware, and changes the guest for it on overlays. The images stay unchanged
// until commit.
type convertStep struct{}

// Name implements Step.
func (convertStep) Name() string { return StepConvert }

// Run implements Step. It starts from the unchanged images each time.
func (convertStep) Run(ctx context.Context, r *Run) error {
	r.Record.Facts.Profile, r.Record.Facts.Conversion = targets.Compat, nil
	for _, w := range BootWarnings(r.Record.Facts.VM.Firmware, r.Record.Facts.Guest) {
		r.Record.Warn(w)
	}
	if err := newOverlays(r).removeAll(); err != nil {
		return err
	}
	switch r.Record.Plan.Hardware {
	case journal.Virtio, journal.AutoHardware:
		return newConverter(r).toVirtio(ctx)
	}
	return nil
}

// Undo removes the overlays. No image was changed.
func (convertStep) Undo(_ context.Context, r *Run) error { return newOverlays(r).removeAll() }

// A converter changes the guest of a run for other hardware, on overlays. Its engines are linux-append
// and virt-v2v.
type converter struct {
	record   *Record      // results, warnings and events of the run
	overlays *overlays    // stores the changes
	rig      *Environment // engines and encryption keys
	opts     *Options     // options of the Migrator
	folder   string       // folder of the engines' logs
}

// newConverter returns the converter of a run.
func newConverter(r *Run) *converter {
	return &converter{record: r.Record, overlays: newOverlays(r), rig: r.Env, opts: r.Options, folder: r.Store.Folder(r.Record.Plan.ID)}
}

// toVirtio changes the guest so that it boots from virtio, with the first engine that accepts it. A
// guest that cannot be changed gets the compat profile, if the plan permits that.
func (c *converter) toVirtio(ctx context.Context) error {
	err := checkConvertible(c.record.Facts.Guest)
	if err == nil {
		err = c.byEngines(ctx)
	}
	switch {
	case err == nil:
		return nil
	case isRefusal(err) && c.record.Plan.Hardware == journal.AutoHardware:
		c.record.Warn(inventory.Warning{Code: "not-converted", Text: fmt.Sprintf("the guest is not converted and keeps its hardware: %v", err), Remedy: "no action is required: the guest boots with its drivers"})
		return nil
	case isRefusal(err):
		return c.cannotConvert(err)
	default:
		return fmt.Errorf("convert the guest: %w", err)
	}
}

// byEngines tries one engine after the other, until one accepts the guest.
func (c *converter) byEngines(ctx context.Context) error {
	appends, v2v := c.permittedEngines()
	var refusal error
	if appends {
		if refusal = c.byAppending(ctx); !isRefusal(refusal) || !v2v {
			return refusal
		}
	}
	engine := &v2vEngine{record: c.record, overlays: c.overlays, rig: c.rig, opts: c.opts, folder: c.folder}
	err := engine.convertGuest(ctx, c.newOptions(), c.keepConverted)
	if isRefusal(err) && refusal != nil {
		return bothRefuse(refusal, err)
	}
	return err
}

// bothRefuse returns the refusals of two engines as one error, with the remedy of virt-v2v, which
// supports more guests.
func bothRefuse(appends, v2v error) error {
	return fault.New(fault.KindOf(v2v), "linux-append: %w; %w", appends, v2v).WithHint("%s", fault.HintOf(v2v))
}

// permittedEngines returns the engines that the plan permits. If the plan names none, virt-v2v is used
// if it is installed, and a system was found or an encryption key was given: virt-v2v takes minutes to
// find that there is no system.
func (c *converter) permittedEngines() (appends, v2v bool) {
	switch c.record.Plan.Engine {
	case journal.LinuxAppend:
		return true, false
	case journal.VirtV2V:
		return false, true
	}
	found := slices.ContainsFunc(c.record.Facts.Guest, func(g guest.Report) bool { return g.OS.ID != "" })
	opened := len(c.rig.Keys) > 0 && len(lockedIn(c.record.Facts.Guest)) > 0
	return true, (found || opened) && c.rig.V2V != nil
}

// byAppending changes the guest with linux-append, on overlays in memory, and stores the changes.
func (c *converter) byAppending(ctx context.Context) (err error) {
	disks, closeAll, err := c.overlays.openDisks(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	result, err := c.appendOn(ctx, disks)
	if err != nil {
		return err
	}
	result.Engine = string(journal.LinuxAppend)
	var changed []changedDisk
	for _, d := range disks {
		changed = append(changed, changedDisk{d.Overlay, chunksOf(d.Overlay.Changed())})
	}
	return c.keepConverted(ctx, result, changed, targets.Virtio)
}

// appendOn changes the guest with linux-append on the overlays of disks.
func (c *converter) appendOn(ctx context.Context, disks []convert.Disk) (convert.Result, error) {
	if c.rig.Convert == nil {
		return convert.Result{}, fault.New(fault.Internal, "a conversion was requested, and no converter is set")
	}
	return c.rig.Convert(ctx, disks, c.newOptions())
}

// newOptions returns the options of the engines: data of the VM that the guest does not contain.
func (c *converter) newOptions() convert.Options {
	cards, _ := convert.PairCards(c.record.Facts.VM, c.record.Facts.Guest)
	return convert.Options{
		Cards: cards, SourceNICs: seatsOf(c.record.Facts.VM), EFI: c.record.Facts.VM.Firmware == inventory.EFI, GuestAgent: c.record.Plan.GuestAgent,
		Now: func() time.Time { return c.record.Plan.Created }, // a second conversion is the same as the first
	}
}

// keepConverted stores the changes of an engine, sets the hardware h, and reports the changes.
func (c *converter) keepConverted(ctx context.Context, result convert.Result, disks []changedDisk, h targets.Hardware) (err error) {
	if c.record.Facts.Conversion, err = c.overlays.saveChanges(ctx, result, disks); err != nil {
		return err
	}
	c.record.Facts.Profile = h
	_, unsure := convert.PairCards(c.record.Facts.VM, c.record.Facts.Guest)
	if unsure = append(unsure, convert.RecountedNames(c.record.Facts.VM, c.record.Facts.Guest)...); len(unsure) > 0 {
		c.record.Warn(inventory.Warning{Code: "nic-unpaired", Text: fmt.Sprintf("the network card with the name %s in the guest is unknown: its configuration may have no effect", strings.Join(unsure, ", ")),
			Remedy: "bind the name to the card's MAC in the guest, or check its network after the first boot"})
	}
	c.reportChanges(result)
	return nil
}

// cannotConvert returns the error for a guest that must be converted and cannot be, with the next
// command.
func (c *converter) cannotConvert(err error) error {
	next := "Nothing is published, and the copy is kept: to continue, run the same command with --hardware compat or auto"
	if c.record.Plan.Warm {
		next = fmt.Sprintf("Nothing is published: discard the run with %s, which powers the VM on again, and start again with --hardware auto", c.record.Plan.ID.RollbackCommand())
	}
	return fault.New(fault.KindOf(err), "the guest cannot be converted for virtio: %w", err).
		WithHint("%s. %s", strings.TrimSuffix(fault.HintOf(err), "."), next)
}

// reportChanges reports the changes in the guest, and the notes of the engine as warnings.
func (r *converter) reportChanges(result convert.Result) {
	for _, c := range result.Changes {
		r.record.Report(journal.Event{Kind: journal.Noted, Message: fmt.Sprintf("converted: /%s: %s", c.Path, c.Reason)})
	}
	for _, n := range result.Notes {
		r.record.Warn(inventory.Warning{Code: "conversion", Text: n, Remedy: "check this after the first boot"})
	}
	if len(result.Changes) == 0 && result.Engine == string(journal.LinuxAppend) {
		r.record.Report(journal.Event{Kind: journal.Noted, Message: "converted: the guest boots with virtio without changes"})
	}
}
