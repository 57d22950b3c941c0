package migrate

import (
	"context"
	"fmt"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/testboot"
)

// tryBoot boots the VM from its images on temporary overlays, if requested. A guest that does not boot
// is not published: the images are kept, and the same run can continue.
func tryBoot(ctx context.Context, r *Run) error {
	if !r.Permit.Trial {
		return nil
	}
	if r.Env.Boot == nil {
		return fault.New(fault.Internal, "a trial boot was requested, but is not configured")
	}
	domain, err := r.Env.Target.Domain(trialDefinition(r))
	if err != nil {
		return err
	}
	r.Record.Report(journal.Event{Kind: journal.Noted, Message: "trial boot: the VM boots on temporary overlays"})
	leave, err := EnterTrial(ctx, r)
	if err != nil {
		return err
	}
	report, err := r.Env.Boot(ctx, domain, targets.StaticAddresses(r.Record.Facts.VM, r.Record.Facts.Guest))
	leave()
	if err != nil {
		return fmt.Errorf("trial boot: %w", err)
	}
	r.Record.Facts.Trial = &report
	r.Record.AddStage(journal.StageTime{Name: "trial boot", Elapsed: report.Elapsed})
	if !report.Booted() {
		return didNotBoot(report)
	}
	r.Record.Report(journal.Event{Kind: journal.Noted, Message: fmt.Sprintf("trial boot: it boots, after %v on %s: %s", report.Elapsed.Round(time.Second), report.Accel, report.Summary())})
	warnMissing(r.Record, report)
	return nil
}

// EnterTrial returns when the VM may boot here. It reports the reason of a wait, and its end.
func EnterTrial(ctx context.Context, r *Run) (leave func(), err error) {
	if r.Env.Trials == nil {
		return func() {}, nil
	}
	waited := false
	leave, err = r.Env.Trials(ctx, func(why string) {
		waited = true
		r.Record.Report(journal.Event{Kind: journal.Waiting, Message: why})
	})
	if err == nil && waited {
		r.Record.Report(journal.Event{Kind: journal.Waiting})
	}
	return leave, err
}

// trialDefinition returns the VM as it will be published, with the overlays of the conversion in place
// of the unchanged images.
func trialDefinition(r *Run) targets.Definition {
	def := r.Definition()
	for i := range def.Images {
		if c := r.Record.Facts.Conversion.forDisk(def.Images[i].Key); c != nil {
			def.Images[i].Path, def.Images[i].Format = c.Overlay, targets.QCOW2
		}
	}
	return def
}

// didNotBoot returns the error for a failed trial boot, with its screen and the next command.
func didNotBoot(r testboot.Report) error {
	seen := ""
	if r.Screen != "" {
		seen = fmt.Sprintf("; see its screen in %s and its serial port in %s", r.Screen, r.Serial)
	}
	return fault.New(fault.Unsupported, "the copy does not boot (%s): %s%s", r.Verdict, r.Reason, seen).
		WithHint("%s. Nothing is published, and the copy is kept: run the same command to boot it again, or without --trial to publish the VM unchanged", r.Remedy)
}

// warnMissing reports configured addresses that the booted guest does not have.
func warnMissing(r *Record, report testboot.Report) {
	for _, s := range report.Missing {
		r.Warn(missingWarning(s))
	}
}

// missingWarning returns the warning for an address that the guest does not have.
func missingWarning(s testboot.Static) inventory.Warning {
	return inventory.Warning{
		Code: "address-missing", Text: "in the trial boot " + s.String(),
		Remedy: "the card may have another name than in the guest's configuration: use --hardware virtio, which binds the name to the MAC, or bind it in the guest; compare with `ip address` at the source",
	}
}
