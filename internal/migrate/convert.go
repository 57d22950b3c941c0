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
	"github.com/decamp/decamp/internal/plan"
	"github.com/decamp/decamp/internal/targets"
)

// convertStep decides the hardware, and has the guest changed for it, beside its images: they
// stay as they are until commit.
type convertStep struct{}

func (convertStep) Name() string { return "convert" }

func (convertStep) Run(ctx context.Context, r *Run) error {
	r.Facts.Profile, r.Facts.Conversion = targets.Compat, nil
	for _, w := range bootWarnings(r.Facts.VM.Firmware, r.Facts.Guest) {
		r.warn(w)
	}
	if err := r.dropOverlays(); err != nil {
		return err
	}
	switch r.Plan.Hardware {
	case plan.Virtio, plan.AutoHardware:
		return r.toVirtio(ctx)
	}
	return nil
}

// Undo: no image was changed.
func (convertStep) Undo(_ context.Context, r *Run) error { return r.dropOverlays() }

// toVirtio has the guest changed so that it boots from virtio, by the first engine that takes it. One
// that cannot be changed gets the compat profile, where the plan leaves that open.
func (r *Run) toVirtio(ctx context.Context) error {
	err := convertible(r.Facts.Guest)
	if err == nil {
		err = r.byEngines(ctx)
	}
	switch {
	case err == nil:
		return nil
	case refused(err) && r.Plan.Hardware == plan.AutoHardware:
		r.warn(inventory.Warning{Code: "not-converted", Text: fmt.Sprintf("the guest is not converted, and keeps the hardware it has: %v", err), Remedy: "none is needed: it boots with the drivers it has"})
		return nil
	case refused(err):
		return cannotConvert(err, r.Plan.Warm)
	default:
		return fmt.Errorf("convert the guest: %w", err)
	}
}

// byEngines tries one engine after the other, until one takes the guest.
func (r *Run) byEngines(ctx context.Context) error {
	appends, v2v := r.engines()
	var refusal error
	if appends {
		if refusal = r.byAppending(ctx); !refused(refusal) || !v2v {
			return refusal
		}
	}
	err := r.byV2V(ctx)
	if refused(err) && refusal != nil {
		return bothRefuse(refusal, err)
	}
	return err
}

// bothRefuse tells of two engines what each has against the guest. The remedy is that of the one that
// can do more.
func bothRefuse(appends, v2v error) error {
	return fault.New(fault.KindOf(v2v), "linux-append: %w; %w", appends, v2v).WithHint("%s", fault.HintOf(v2v))
}

// engines says which the plan allows. Without a choice virt-v2v is one where it is there, for a
// system that was found, or is behind a key that was given: it takes minutes to say that it found
// none, either.
func (r *Run) engines() (appends, v2v bool) {
	switch r.Plan.Engine {
	case plan.LinuxAppend:
		return true, false
	case plan.VirtV2V:
		return false, true
	}
	found := slices.ContainsFunc(r.Facts.Guest, func(g guest.Report) bool { return g.OS.ID != "" })
	opened := len(r.Rig.Keys) > 0 && len(lockedIn(r.Facts.Guest)) > 0
	return true, (found || opened) && r.Rig.V2V != nil
}

// byAppending has linux-append change the guest, on overlays in memory.
func (r *Run) byAppending(ctx context.Context) (err error) {
	disks, closeAll, err := r.openOverlays(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	result, err := r.appendOn(ctx, disks)
	if err != nil {
		return err
	}
	result.Engine = string(plan.LinuxAppend)
	var changed []changedDisk
	for _, d := range disks {
		changed = append(changed, changedDisk{d.Overlay, chunksOf(d.Overlay.Changed())})
	}
	return r.converted(ctx, result, changed, targets.Virtio)
}

// appendOn has linux-append change the guest on overlays.
func (r *Run) appendOn(ctx context.Context, disks []convert.Disk) (convert.Result, error) {
	if r.Rig.Convert == nil {
		return convert.Result{}, fault.New(fault.Internal, "a conversion is asked for, and nobody makes one")
	}
	return r.Rig.Convert(ctx, disks, r.conversionOptions())
}

// conversionOptions are what the guest cannot tell.
func (r *Run) conversionOptions() convert.Options {
	cards, _ := convert.PairCards(r.Facts.VM, r.Facts.Guest)
	return convert.Options{
		Cards: cards, Seats: seatsOf(r.Facts.VM), EFI: r.Facts.VM.Firmware == inventory.EFI, GuestAgent: r.Plan.GuestAgent,
		Now: func() time.Time { return r.Plan.Created }, // a second conversion is the same as the first
	}
}

// converted keeps what an engine changed, and tells of it.
func (r *Run) converted(ctx context.Context, result convert.Result, disks []changedDisk, h targets.Hardware) (err error) {
	if r.Facts.Conversion, err = r.keep(ctx, result, disks); err != nil {
		return err
	}
	r.Facts.Profile = h
	_, unsure := convert.PairCards(r.Facts.VM, r.Facts.Guest)
	if unsure = append(unsure, convert.RecountedNames(r.Facts.VM, r.Facts.Guest)...); len(unsure) > 0 {
		r.warn(inventory.Warning{Code: "nic-unpaired", Text: fmt.Sprintf("which card the guest calls %s is not known: its configuration may not find it", strings.Join(unsure, ", ")),
			Remedy: "pin the name to the card's MAC in the guest, or look at its network after the first boot"})
	}
	r.report(result)
	return nil
}

// convertible refuses a guest that was not examined in full, and one that would go on from a
// hibernation: what it has in memory knows the hardware it had. All else the conversion itself
// finds out.
func convertible(reports []guest.Report) error {
	if err := guest.Examined(reports); err != nil {
		return fault.New(fault.Unsupported, "%w", err).WithHint("use the compat profile, which changes nothing in the guest")
	}
	for _, g := range reports {
		for _, w := range g.Warnings {
			if w.Code == "hibernated" {
				return fault.New(fault.Conflict, "the guest hibernates: %s", w.Text).WithHint("start it at the source, shut it down, and copy it again")
			}
		}
	}
	return nil
}

// refused reports whether a conversion failed for what the guest is, and not because something
// broke, or this machine is full.
func refused(err error) bool {
	return !errors.Is(err, fault.ErrNoRoom) && slices.Contains([]fault.Kind{fault.Unsupported, fault.Conflict, fault.Full, fault.NotFound, fault.Invalid, fault.Corrupt}, fault.KindOf(err))
}

func cannotConvert(err error, warm bool) error {
	next := "Nothing is published, and what is copied is kept: the same command with --hardware compat, or auto, goes on with it"
	if warm {
		next = "Nothing is published: give the run up with --discard, which powers the VM on again, and begin anew with --hardware auto"
	}
	return fault.New(fault.KindOf(err), "the guest cannot be converted for virtio: %w", err).
		WithHint("%s. %s", strings.TrimSuffix(fault.HintOf(err), "."), next)
}

// report tells what was changed in the guest.
func (r *Run) report(result convert.Result) {
	for _, c := range result.Changes {
		r.tell(plan.Event{Kind: plan.Noted, Message: fmt.Sprintf("converted: /%s: %s", c.Path, c.Why)})
	}
	for _, n := range result.Notes {
		r.warn(inventory.Warning{Code: "conversion", Text: n, Remedy: "look at it after the first boot"})
	}
	if len(result.Changes) == 0 && result.Engine == string(plan.LinuxAppend) {
		r.tell(plan.Event{Kind: plan.Noted, Message: "converted: the guest boots from virtio as it is"})
	}
}

// bootWarnings compares the firmware with what the images offer to boot.
func bootWarnings(firmware inventory.Firmware, reports []guest.Report) []inventory.Warning {
	if guest.Examined(reports) != nil {
		return nil // what was not found may be there
	}
	var mbr, esp bool
	for _, r := range reports {
		mbr, esp = mbr || r.Boot.MBRCode, esp || r.Boot.ESP
	}
	switch {
	case firmware == inventory.EFI && !esp:
		return []inventory.Warning{{Code: "no-esp", Text: "the VM boots by EFI, but no disk has an EFI system partition",
			Remedy: "check that it boots at the source; it may boot from the network"}}
	case firmware == inventory.BIOS && !mbr:
		return []inventory.Warning{{Code: "no-boot-code", Text: "the VM boots by BIOS, but no disk has boot code",
			Remedy: "check that it boots at the source; it may boot from the network"}}
	}
	return nil
}
