package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/dir"
	"github.com/decamp/decamp/internal/units"
)

// announceRun prints that this run continues an earlier one, and how much is verified.
func announceRun(ctx context.Context, out *output, w *assemble.Parts, d *assemble.Destination, vm *inventory.VM) error {
	p := d.Plan
	run, err := w.Store.Run(p.ID)
	switch {
	case fault.Is(err, fault.NotFound), out.json:
		return nil
	case err != nil:
		return err
	case run.State == journal.Done, run.Plan.Same(p) != nil: // nothing to continue, or Migrate will refuse to
		return nil
	}
	images, err := d.Target.Plan(ctx, vm)
	if err != nil { // Migrate may know better: published, but not recorded as done yet
		fmt.Fprintf(out.screen, "continuing run %s\n", p.ID)
		return nil
	}
	held, total := verifiedBytes(images)
	fmt.Fprintf(out.screen, "continuing run %s: %s is already verified\n", p.ID, units.Percent(held, total))
	return nil
}

// verifiedBytes returns how many bytes the manifests of images contain, and the size of all images. A
// missing or damaged manifest counts as empty: the copy step reports damage.
func verifiedBytes(images []targets.Image) (held, total int64) {
	for _, img := range images {
		total += img.Size
		if log, err := manifest.Open(img.Manifest); err == nil {
			held += max(img.Size-log.Missing()*manifest.ChunkSize, 0)
			_ = log.Close() // nothing was written
		}
	}
	return held, total
}

// writeEnds prints the result of each destination. It returns an error if one of them failed.
func writeEnds(out *output, vm *inventory.VM, ends []assemble.Ended) error {
	var errs []error
	for _, e := range ends {
		err := e.Err
		if err == nil {
			err = writeOutcome(out, e.Out)
		} else if len(ends) > 1 {
			err = fmt.Errorf("to %s: %w", e.To.Name, err)
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("migrate %s: %w", vm.Name, err)
	}
	return nil
}

// writeOutcome prints where the VM is, how it was checked, and the next commands.
func writeOutcome(out *output, done migrate.Outcome) error {
	folder := filepath.Dir(done.Facts.Images[0].Final)
	p, err := dir.OpenPublished(folder)
	if err != nil {
		return err
	}
	if out.json {
		return out.printJSON(struct {
			migrate.Outcome
			Folder   string              `json:"folder"`
			Domain   string              `json:"domain"`
			Warnings []inventory.Warning `json:"warnings"` // warnings of all steps and of the target

			Delivered *targets.Receipt `json:"delivered,omitempty"`
		}{done, folder, filepath.Join(folder, "domain.xml"), append([]inventory.Warning{}, p.Record.Warnings...), p.Record.Delivered})
	}
	if done.Repeated && done.Facts.Started != nil {
		fmt.Fprintf(out, "%s was migrated before (run %s).\n", fault.Printable(done.Facts.VM.Name), done.Run)
	} else if done.Repeated {
		fmt.Fprintf(out, "%s was migrated before (run %s): nothing to do.\n", fault.Printable(done.Facts.VM.Name), done.Run)
	} else {
		fmt.Fprintf(out, "\n%s is migrated and %s (run %s).\n", fault.Printable(done.Facts.VM.Name), locationText(p), done.Run)
	}
	if o := done.Facts.Outage; o != nil && !done.Repeated {
		fmt.Fprintln(out, outageWords(*o))
	}
	writeImages(out, done.Facts.Images)
	writeChecks(out, done.Facts.Checks())
	if !done.Repeated {
		writeStages(out, done.Facts.Stages)
	}
	if warnings := p.Warnings(done.Facts.Started != nil); len(warnings) > 0 {
		title := "\nNotes for the first start"
		if done.Facts.Started != nil {
			title = "\nNotes"
		}
		fmt.Fprintln(out, title)
		writeWarningList(out, warnings)
	}
	if done.Facts.Started != nil {
		writeStarted(out, p, *done.Facts.Started)
	} else {
		writeNext(out, p, done.Repeated)
	}
	return nil
}

// outageWords describes how long a VM was off.
func outageWords(o journal.Outage) string {
	text := "It was off for " + units.Duration(o.Took) + ", from its shutdown to its definition"
	if o.Started {
		text = "It was off for " + units.Duration(o.Took) + ", from its shutdown until it ran at its target"
	}
	if o.Delivery > 0 {
		text += ", " + units.Duration(o.Delivery) + " of it for the delivery"
	}
	return text + "; its boot is not counted."
}

// writeStarted prints how to inspect a VM that was started.
func writeStarted(out *output, p *dir.Published, s targets.Started) {
	fmt.Fprintf(out, "\nIt runs. Its manifests are in %s.\n", fault.Quote(p.Folder))
	if s.Console != "" {
		fmt.Fprintf(out, "Its console:     %s\n", s.Console)
	}
}

// writeNext prints the next commands. A VM of an earlier migration may run already.
func writeNext(out *output, p *dir.Published, repeated bool) {
	if p.Record.Delivered != nil {
		state := "It is off. "
		if repeated {
			state = ""
		}
		fmt.Fprintf(out, "\n%sIts manifests are in %s.\n", state, fault.Quote(p.Folder))
		return
	}
	fmt.Fprintf(out, "\nVerify it again: decamp verify %s\n", fault.Quote(p.Folder))
	fmt.Fprintf(out, "Then start it:   virsh define %s && virsh start %s\n",
		fault.Quote(filepath.Join(p.Folder, "domain.xml")), shellArgument(p.DomainName()))
	fmt.Fprintln(out, "A running VM changes its images: verify them before its first start.")
}

// writeChecks prints the comparisons of each disk, and the flag that compares the whole disk.
func writeChecks(w io.Writer, checks []targets.Check) {
	fmt.Fprintln(w, "\nCHECKED")
	if len(checks) == 0 {
		fmt.Fprintln(w, "image = data read (all); source re-read: not recorded by the version of decamp that verified the images")
		return
	}
	partly := false
	for _, c := range checks {
		fmt.Fprintf(w, "disk %d: %s\n", c.Key, fault.Printable(c.String()))
		partly = partly || c.SourceHash == ""
	}
	if partly {
		fmt.Fprintln(w, "--source-hash compares the whole disk with the source: the host hashes it, by SSH.")
	}
}

// writeImages prints a table of the images.
func writeImages(w io.Writer, images []targets.Image) {
	fmt.Fprintln(w)
	t := newTable("IMAGE", "SIZE", "FORMAT", "ROOT HASH")
	t.alignRight(1)
	for _, img := range images {
		t.addRow(filepath.Base(img.Final), units.Binary(img.Size), string(img.Format), img.Root)
	}
	t.writeTo(w)
}

// writeStages prints a table with the time of each stage, and the shares of the time of its parallel
// workers.
func writeStages(w io.Writer, stages []journal.StageTime) {
	fmt.Fprintln(w)
	t := newTable("STAGE", "TIME", "BYTES", "READ", "RATE", "WORKING", "WAITING FOR SOURCE", "FOR TARGET")
	t.alignRight(1, 2, 3, 4, 5, 6, 7)
	for _, s := range stages {
		bytes, moved, speed := "", "", ""
		if s.Bytes > 0 {
			bytes, moved, speed = units.Binary(s.Bytes), units.Binary(s.Read), units.Rate(s.Read, s.Elapsed)
		}
		cells := []string{s.Name, units.Duration(s.Elapsed), bytes, moved, speed}
		all := s.Working + s.Source + s.Target // sums over parallel workers: more than the elapsed time
		for _, part := range []time.Duration{s.Working, s.Source, s.Target} {
			share := ""
			if part > 0 {
				share = fmt.Sprintf("%.0f %%", 100*float64(part)/float64(all))
			}
			cells = append(cells, share)
		}
		t.addRow(cells...)
	}
	t.writeTo(w)
}

// locationText describes where a published VM is.
func locationText(p *dir.Published) string {
	if d := p.Record.Delivered; d != nil {
		return fmt.Sprintf("delivered to %s as %s (%s)", fault.Printable(d.Platform), fault.Printable(d.ID), fault.Printable(d.Name))
	}
	return "published in " + p.Folder
}
