package warm

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/bitmap"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/transport"
)

// takeSlotForRound waits for the transfer slot of a round. No snapshot exists, and grows, during the
// wait: a snapshot from before a crash is removed first, and another one is taken later. Snapshots of
// other processes are always removed.
func (m *migration) takeSlotForRound(ctx context.Context) error {
	if !m.driven.snapshotsRemoved { // no lock: steps run one after the other
		keep := m.snapshots.nextName()
		if m.run.Env.RequestSlot != nil {
			keep = ""
		}
		if err := m.snapshots.removeAllBut(ctx, keep); err != nil {
			return err
		}
		m.driven.snapshotsRemoved = true
	}
	return m.run.Slot.Acquire(ctx, migrate.NextStage(m.record))
}

// takeSnapshot takes the snapshot of the next round. The point in time of the first one is recorded
// before any of its bytes is copied.
func takeSnapshot(ctx context.Context, m *migration) error {
	if err := m.takeSlotForRound(ctx); err != nil {
		return err
	}
	frozen, _, err := m.takeRoundSnapshot(ctx)
	if err != nil {
		return err
	}
	w := m.record.Facts.Warm
	if w.Since != nil {
		return nil
	}
	w.Since = frozen.IDs
	return m.run.VM.Probe(ctx, m.record.Facts.VM, frozen.Snapshot)
}

// takeRoundSnapshot finds the round's snapshot, or takes it. It reports whether disks grew, and records that
// in the facts. Free space is checked before the snapshot is taken; the snapshot shows disks that grew
// in between.
func (m *migration) takeRoundSnapshot(ctx context.Context) (frozen RoundSnapshot, grew bool, err error) {
	vm, err := m.run.VM.Planned(ctx)
	if err != nil {
		return frozen, false, err
	}
	if err := m.record.SameShape(migrate.GrownTo(m.record.Facts.VM, vm), vm); err != nil {
		return frozen, false, err
	}
	before, err := m.recordGrowth(ctx, vm)
	if err != nil {
		return frozen, false, err
	}
	if frozen, err = m.snapshots.findOrTake(ctx); err != nil {
		return frozen, false, err
	}
	since, err := m.recordGrowth(ctx, withSizes(m.record.Facts.VM, frozen.Sizes))
	return frozen, before || since, err
}

// copyRound brings the images up to the snapshot, and removes it. If a disk has grown meanwhile, the
// round is not complete: it must be repeated with the same transfer slot.
func copyRound(ctx context.Context, m *migration) error {
	if err := m.takeSlotForRound(ctx); err != nil {
		return err
	}
	frozen, done, err := m.catchUp(ctx)
	if errors.Is(err, errGrew) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := m.snapshots.removeCurrent(ctx); err != nil {
		return err
	}
	m.run.Slot.Release()
	m.driven.roundDone = true
	w := m.record.Facts.Warm
	w.Since, w.Rounds, w.Grown, w.Found = frozen.IDs, append(w.Rounds, done), nil, false
	o := estimateOutage(m.run, m.run.Options.Now())
	m.record.Report(journal.Event{Kind: journal.RoundDone, Message: describeRound(m.run, done, o), OutageEstimate: &o})
	return nil
}

// errGrew ends a round in which a disk has grown. Its size is in the facts, but not recorded yet.
var errGrew = errors.New("a disk has grown")

// maxLostSnapshots is how many snapshots may be removed by others during one round before it fails.
const maxLostSnapshots = 3

// catchUp brings the images up to the snapshot. If the snapshot was removed by a user or by a cleanup
// after a crash, a later snapshot serves as well: changes are requested since the recorded point in
// time.
func (m *migration) catchUp(ctx context.Context) (frozen RoundSnapshot, _ migrate.Round, err error) {
	m.driven.rehearsals.markMoving()
	for lost := 0; ; lost++ {
		var grew bool
		if frozen, grew, err = m.takeRoundSnapshot(ctx); err == nil && grew {
			err = errGrew
		}
		if err != nil {
			return frozen, migrate.Round{}, err
		}
		done := tally{Round: migrate.Round{Began: m.run.Options.Now()}}
		err = m.eachImage(ctx, func(ctx context.Context, img *targets.Image) error {
			return m.advanceImage(ctx, img, frozen, &done)
		})
		if err == nil {
			done.Duration = m.run.Options.Now().Sub(done.Began)
			return frozen, done.Round, nil
		}
		live, lerr := liveOf(m.run)
		if lerr != nil || ctx.Err() != nil || lost == maxLostSnapshots {
			return frozen, migrate.Round{}, err
		}
		if there, terr := live.FindRoundSnapshot(ctx, m.record.Facts.VM.Ref, m.snapshots.nextName()); terr != nil || there == frozen.Snapshot {
			return frozen, migrate.Round{}, err
		}
		m.run.Options.Log.Warn("snapshot was removed by another user or process", "run", m.record.Plan.ID, "snapshot", m.snapshots.nextName(), "err", err)
	}
}

// eachImage calls do for all images, in parallel, and returns the first error.
func (m *migration) eachImage(ctx context.Context, do func(context.Context, *targets.Image) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(m.run.Options.Disks)
	for i := range m.record.Facts.Images {
		g.Go(func() error { return do(ctx, &m.record.Facts.Images[i]) })
	}
	return g.Wait()
}

// advanceImage brings one image up to the snapshot frozen, or to the powered-off VM. It retries while
// that fails for reasons that pass. The image stays incomplete until Complete.
func (m *migration) advanceImage(ctx context.Context, img *targets.Image, frozen RoundSnapshot, done *tally) error {
	var total blockcopy.Result
	missing := int64(-1)
	job := m.run.Images.Job(*img)
	job.Source = nil // verified chunks belong to an earlier point in time and may differ
	err := m.run.Retry.Do(ctx, img.Key, func() (bool, error) {
		left, err := job.Advance(ctx, func(ctx context.Context, c *image.Copying) (err error) {
			ledger, saved, err := m.openLedger(*img, c)
			if err != nil {
				return err
			}
			defer saved()
			job, err := m.changesJob(ctx, *img, c, ledger, frozen.Snapshot)
			if err != nil {
				return err
			}
			if m.record.Facts.Warm.Untracked || !m.record.Facts.Warm.Grew(img.Key) && !m.record.Facts.Warm.Found { // full comparisons that are needed once
				done.noteComparison(job)
			}
			m.record.Report(journal.Event{Kind: journal.DiskStarted, Disk: img.Key, Message: m.fromWhat(job, c)})
			res, err := m.run.Env.Transport.Transfer(ctx, job)
			total = total.Then(res)
			return err
		})
		further := left >= 0 && left < missing
		missing = left
		return further, err
	})
	done.addResult(total)
	if total.Mismatched > 0 {
		m.record.Report(journal.Event{Kind: journal.ChunkBad, Disk: img.Key, Message: fmt.Sprintf(
			"%d chunks of the image differed from the data written; they were copied again: check the target's storage (dmesg, smartctl)", total.Mismatched)})
	}
	if err != nil {
		return fmt.Errorf("disk %d: %w", img.Key, err)
	}
	return nil
}

// openLedger returns the manifest for a writer to the image, and a function that saves the record of
// verified chunks at the end.
func (m *migration) openLedger(img targets.Image, c *image.Copying) (_ manifest.Ledger, saved func(), err error) {
	p, err := image.OpenVerifiedRecord(img.Manifest, m.record.Info(img))
	if err != nil {
		return nil, nil, err
	}
	ledger, err := p.Ledger(c.Log)
	return ledger, func() {
		if err := p.Save(); err != nil { // without it, more chunks are read back
			m.run.Options.Log.Warn("record of verified chunks", "run", m.record.Plan.ID, "disk", img.Key, "err", err)
		}
	}, err
}

// readBackRound reads the newly written chunks back while the VM still runs, so that the outage reads
// only the chunks of the last round. The next round copies wrong chunks again. Images that were not
// inspected yet are not delivered: the inspection may end the run.
func readBackRound(ctx context.Context, m *migration) error {
	began := m.run.Options.Now()
	err := m.eachImage(ctx, func(ctx context.Context, img *targets.Image) error {
		report, err := m.run.Images.Job(*img).VerifyWritten(ctx, m.record.Meter(img.Key).Verifying)
		for _, b := range report.Bad {
			m.record.Report(journal.Event{Kind: journal.ChunkBad, Disk: img.Key, Message: b.String()})
		}
		if err != nil {
			return fmt.Errorf("read disk %d back: %w", img.Key, err)
		}
		m.run.Options.Log.Info("read back", "run", m.record.Plan.ID, "disk", img.Key, "len", report.Read)
		return nil
	})
	rounds := m.record.Facts.Warm.Rounds
	rounds[len(rounds)-1].ReadBack = m.run.Options.Now().Sub(began)
	if err != nil || m.record.Facts.Warm.InspectPending {
		return err
	}
	return deliverEarly(ctx, m.run)
}

// tally adds up the work on disks in parallel. It is safe for concurrent use.
type tally struct {
	mu     sync.Mutex // guards the other fields
	missed []missedOf // changes that change tracking did not report, by disk
	migrate.Round
}

// missedOf counts the changes of a disk that change tracking did not report.
type missedOf struct {
	disk int32 // device key
	n    int64 // bytes
}

// addResult adds the bytes of a copy.
func (t *tally) addResult(res blockcopy.Result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Read += res.Read
	t.Copied += res.Written
}

// noteComparison records whether job compares the whole disk.
func (t *tally) noteComparison(job transport.Job) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Compared = t.Compared || job.Compare
}

// changesJob returns the transfer of the changes of a disk since Warm.Since, and of the chunks that its
// manifest lacks. An empty snapshot means the powered-off VM.
func (m *migration) changesJob(ctx context.Context, img targets.Image, c *image.Copying, ledger manifest.Ledger, snapshot inventory.MoRef) (job transport.Job, err error) {
	d, ok := m.record.Facts.VM.Disk(img.Key)
	if !ok {
		return job, fault.New(fault.Internal, "an image belongs to no disk of VM %s", m.record.Facts.VM.Name)
	}
	vm, err := m.whereNow(ctx)
	if err != nil {
		return job, err
	}
	job = transport.Job{
		Disk:   transport.Disk{VM: vm, Disk: d, Snapshot: snapshot},
		Target: c.Target, Manifest: ledger, Progress: m.record.Meter(img.Key).Copying, Pace: m.run.Env.Pace, Free: m.run.Env.Free,
		ReadBack: func(ctx context.Context) (disk.Source, error) { return m.run.Env.Target.ReadUnfinished(ctx, img) },
		Partial:  len(m.record.Facts.Warm.Rounds) == 0 && c.Log.Missing() < c.Log.Chunks(),
	}
	if c.Log.Missing() < c.Log.Chunks() {
		job.Changed, err = m.changedGrains(ctx, d, snapshot)
		job.Compare = job.Changed == nil
	}
	return job, err
}

// whereNow returns the VM on its current host: a running VM can move at any time, and each host has
// separate networks and memory.
func (m *migration) whereNow(ctx context.Context) (*inventory.VM, error) {
	now, err := m.run.VM.Planned(ctx)
	if err != nil {
		return nil, err
	}
	vm := *m.record.Facts.VM
	vm.Host = now.Host
	return &vm, nil
}

// fromWhat describes what a transfer reads, for users.
func (m *migration) fromWhat(job transport.Job, c *image.Copying) string {
	switch {
	case job.Compare && m.record.Facts.Warm.Grew(job.Disk.Disk.Key):
		return afterGrowth(m.record, job.Disk.Disk.Key)
	case job.Compare && len(m.record.Facts.Warm.Rounds) > 0:
		return fmt.Sprintf("the whole disk is read and compared, because its changes are unknown; the first round took %v", m.record.Facts.Warm.Rounds[0].Duration.Round(time.Second))
	case job.Compare:
		return "the whole disk is read and compared, because its changes are unknown"
	case job.Changed != nil && c.Log.Complete():
		return "copying the changes"
	}
	return c.From()
}

// changedGrains returns the grains of a disk that changed since Warm.Since; nil if they are unknown.
func (m *migration) changedGrains(ctx context.Context, d *inventory.Disk, snapshot inventory.MoRef) (*bitmap.Bitmap, error) {
	live, err := liveOf(m.run)
	if err != nil {
		return nil, err
	}
	since := m.record.Facts.Warm.Since[d.Key]
	if w := m.record.Facts.Warm; w.Untracked || w.Found || since == "" || m.record.Facts.Warm.Grew(d.Key) {
		return nil, nil
	}
	grains := bitmap.New(d.Capacity, blockcopy.PatchGrain)
	err = live.Changed(ctx, m.record.Facts.VM.Ref, snapshot, d, since, func(a disk.Range) { grains.Set(a) })
	if fault.Is(err, fault.Unsupported) {
		m.record.Warn(inventory.Warning{
			Code: "changes-unknown", Text: fmt.Sprintf("the changes of disk %d are unknown (%v): the whole disk was compared", d.Key, err),
		})
		return nil, nil
	}
	return grains, err
}
