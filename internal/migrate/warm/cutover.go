package warm

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/targets"
)

const (
	defaultInterval = time.Hour // interval of rounds without Cutover.Interval

	// freshTime is how long after its beginning a round is good enough to be the last before the VM is
	// powered off: another one takes about as long.
	freshTime = time.Minute

	// estimateInterval is the interval at which a waiting run reports the estimate of a cutover.
	estimateInterval = 10 * time.Second
)

// waitForNext returns when the next round or the cutover is due. For a cutover it records that, and
// whether the VM runs. Rehearsals run during the wait.
func waitForNext(ctx context.Context, m *migration) error {
	w := m.record.Facts.Warm
	last := w.Rounds[len(w.Rounds)-1]
	next := last.Began.Add(cmp.Or(max(m.run.Permit.Cutover.Interval, 0), defaultInterval))
	m.driven.rehearsals.markAtRest(m.run)
	for told := m.run.Options.Now(); ; {
		k, err := m.driven.orders.commandsOf(m.record.Plan.ID, m.run.Options.Now())
		if err != nil {
			return err
		}
		order := k.order
		if order == journal.GoOn || order == journal.Pause {
			m.driven.rehearsals.startIfRequested(k)
		}
		switch now := m.run.Options.Now(); {
		case m.isApproaching(order, now):
			w.Approached = true
			return nil
		case order == journal.CutOver, m.isDue(now):
			return m.cutOver(ctx)
		case order != journal.Pause && !now.Before(next):
			w.Approached = false // the cutover was not carried out
			return nil
		}
		if now := m.run.Options.Now(); now.Sub(told) >= estimateInterval {
			o := estimateOutage(m.run, now)
			m.record.Report(journal.Event{Kind: journal.OutageEstimated, OutageEstimate: &o})
			told = now
		}
		if err := m.run.Options.Sleep(ctx, untilTick(m.run.Options.Now(), migrate.PollInterval)); err != nil {
			return err
		}
	}
}

// isApproaching reports whether one more round follows at once: the cutover is due, and the changes
// since the last round should be copied while the VM runs. If the whole disk is compared anyway,
// another round would save nothing.
func (m *migration) isApproaching(order journal.Command, now time.Time) bool {
	w := m.record.Facts.Warm
	last := w.Rounds[len(w.Rounds)-1]
	if w.Approached || last.Compared || now.Sub(last.Began) < freshTime {
		return false
	}
	return order == journal.CutOver || isTimeReached(m.run.Permit.Cutover, now.Add(last.Duration+last.ReadBack))
}

// cutOver records that the cutover is next, unless a disk has grown and needs another round first.
func (m *migration) cutOver(ctx context.Context) error {
	vm, err := m.run.VM.Planned(ctx)
	if err != nil {
		return err
	}
	if m.toCompareFirst(vm) {
		return nil
	}
	w := m.record.Facts.Warm
	w.Cutover, w.WasOn = true, vm.Power == inventory.PoweredOn
	return nil
}

// completeCutover records the guest's boot time, or reads the recorded one. A budget that is shorter
// than the boot is fault.Invalid.
func completeCutover(c *migrate.Cutover, s *journal.Store, id journal.ID) error {
	if c.Boot != nil {
		if err := s.SetBootTime(id, *c.Boot); err != nil {
			return err
		}
	} else {
		boot, err := s.BootTime(id)
		if err != nil {
			return err
		}
		c.Boot = &boot
	}
	if c.Budget > 0 && *c.Boot >= c.Budget {
		return fault.New(fault.Invalid, "the boot time of %v exceeds the downtime budget of %v, so the cutover would never begin", *c.Boot, c.Budget).
			WithHint("set a longer --downtime-budget, or omit it; --boot-time 0 excludes the boot")
	}
	return nil
}

// isDue reports whether the time or the budget requests the cutover, and the outage fits the window.
func (m *migration) isDue(now time.Time) bool {
	c := m.run.Permit.Cutover
	if !isTimeReached(c, now) && (c.Budget <= 0 || len(m.record.Facts.Warm.Rounds) < 2) {
		return false
	}
	outage := estimateOutage(m.run, now).Outage
	return fitsAt(c, now, outage) && (isTimeReached(c, now) || outage <= c.Budget)
}

// isTimeReached reports whether the time of the cutover is reached: At, or the window if only a window
// is given.
func isTimeReached(c migrate.Cutover, now time.Time) bool {
	if !c.At.IsZero() {
		return !now.Before(c.At)
	}
	return c.Open != nil && c.Budget <= 0 && fitsAt(c, now, 0)
}

// fitsAt reports whether an outage that begins now ends before the window closes. Without windows it
// always does.
func fitsAt(c migrate.Cutover, now time.Time, outage time.Duration) bool {
	if c.Open == nil {
		return true
	}
	open, closes := c.Open(now)
	return open && (closes.IsZero() || !now.Add(outage).After(closes))
}

// cutoverMissed reports whether the condition of the cutover does not hold any more after the wait for
// a transfer slot. Another round follows then.
func (m *migration) cutoverMissed(vm *inventory.VM) (bool, error) {
	order, err := m.run.Store.Command(m.record.Plan.ID)
	if err != nil || order == journal.CutOver || vm.Power != inventory.PoweredOn || m.isDue(m.run.Options.Now()) {
		return false, err
	}
	m.record.Facts.Warm.Cutover, m.record.Facts.Warm.Approached = false, false
	m.record.Report(journal.Event{Kind: journal.Noted, Message: "the VM is not powered off now: the cutover is no longer permitted (its window closes too soon, or the outage would be too long)"})
	return true, nil
}

// lastRound brings the images up to the powered-off VM, and completes them. If a disk has grown
// meanwhile, the round is not complete and must be repeated.
func lastRound(ctx context.Context, m *migration) error {
	m.driven.rehearsals.stop(errCutover)
	if err := m.run.Slot.Acquire(ctx, migrate.AtCutover); err != nil {
		return err
	}
	vm, err := m.run.VM.Planned(ctx)
	if err != nil {
		return err
	}
	if err := m.run.VM.UnchangedSince(migrate.GrownTo(m.record.Facts.VM, vm), vm); err != nil {
		return err
	}
	if grew, err := m.recordGrowth(ctx, vm); err != nil || grew {
		return err
	}
	began := m.run.Options.Now()
	done := tally{Round: migrate.Round{Began: began}}
	err = m.eachImage(ctx, func(ctx context.Context, img *targets.Image) error {
		if err := m.advanceImage(ctx, img, RoundSnapshot{}, &done); err != nil {
			return err
		}
		if err := m.compareWhole(ctx, img, &done); err != nil {
			return err
		}
		root, err := m.run.Images.Job(*img).Complete(ctx)
		if err != nil {
			return fmt.Errorf("disk %d: %w", img.Key, err)
		}
		img.Root = root.String()
		m.record.Report(journal.Event{Kind: journal.DiskDone, Disk: img.Key, Message: img.Root})
		return nil
	})
	for _, d := range done.missed {
		if d.n > 0 {
			m.record.Warn(inventory.Warning{Code: "changes-missed", Text: fmt.Sprintf("change tracking did not report %d changed bytes of disk %d; they were copied after a comparison of the whole disk", d.n, d.disk)})
		}
	}
	done.Duration = m.run.Options.Now().Sub(began)
	m.record.Facts.Warm.Rounds = append(m.record.Facts.Warm.Rounds, done.Round)
	m.run.Slot.Release()
	return err
}

// compareWhole compares all of a disk with its image if Permit.Paranoid is set, for users who do not
// rely on the host's change tracking. It adds the differences to done.
func (m *migration) compareWhole(ctx context.Context, img *targets.Image, done *tally) error {
	if !m.run.Permit.Paranoid || m.record.Facts.Warm.Grew(img.Key) { // a disk that grew was compared just before
		return nil
	}
	missed := tally{}
	facts, blind := m.record.Facts, *m.record.Facts.Warm
	facts.Warnings = nil                       // other disks may add some now
	blind.Untracked, facts.Warm = true, &blind // without change tracking, the whole disk is compared
	doubting := newMigration(m.run.WithFacts(facts))
	if err := doubting.advanceImage(ctx, img, RoundSnapshot{}, &missed); err != nil {
		return err
	}
	done.mu.Lock()
	defer done.mu.Unlock()
	done.Read += missed.Read
	done.Copied += missed.Copied
	done.missed = append(done.missed, missedOf{img.Key, missed.Copied})
	return nil
}

// powerOffForCutover begins the outage as soon as the last round may begin. If a disk of the running VM
// has grown, another round compares it first. A disk that grows while the guest shuts down is compared
// in the outage.
func powerOffForCutover(ctx context.Context, m *migration) error {
	if err := m.run.Slot.Acquire(ctx, migrate.AtCutover); err != nil {
		return err
	}
	vm, err := m.run.VM.Planned(ctx)
	if err != nil {
		return err
	}
	if err := m.record.SameShape(migrate.GrownTo(m.record.Facts.VM, vm), vm); err != nil {
		return err
	}
	missed, err := m.cutoverMissed(vm)
	if err != nil {
		return err
	}
	if missed || m.toCompareFirst(vm) {
		m.run.Slot.Release()
		return nil
	}
	if err := m.run.VM.Refuse(vm, migrate.Permit{PowerOff: true, Warm: true}); err != nil { // obstacles end the run before the outage
		return err
	}
	m.driven.rehearsals.stop(errCutover)
	if vm.Power == inventory.PoweredOn {
		m.record.Facts.Warm.PoweredOff = m.run.Options.Now()
	}
	off, err := m.run.VM.PowerOff(ctx, vm)
	if err != nil {
		return err
	}
	if _, err := m.recordGrowth(ctx, off); err != nil {
		return err
	}
	m.record.Facts.VM = off
	return m.run.VM.Refuse(off, migrate.Permit{})
}

// toCompareFirst reports whether another round must precede the cutover, because a disk of the running
// VM has grown; the facts record that. That round takes long, so yet another one should copy the
// changes made during it.
func (m *migration) toCompareFirst(vm *inventory.VM) bool {
	if vm.Power != inventory.PoweredOn || len(migrate.GrownDisks(m.record.Facts.VM, vm)) == 0 {
		return false
	}
	m.record.Facts.Warm.Cutover, m.record.Facts.Warm.Approached = false, false
	return true
}
