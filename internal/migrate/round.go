package migrate

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
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/plan"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/transport"
)

// freeze takes the snapshot of the next round. The moment of the first one is on record
// before a byte of it is copied.
func freeze(ctx context.Context, r *Run) error {
	if err := r.takeTurnToFreeze(ctx); err != nil {
		return err
	}
	frozen, _, err := r.freeze(ctx)
	if err != nil {
		return err
	}
	w := r.Facts.Warm
	if w.Since != nil {
		return nil
	}
	w.Since = frozen.IDs
	return r.probe(ctx, r.Facts.VM, frozen.Snapshot)
}

// freeze finds the round's snapshot, or takes it. It reports whether disks became larger, which
// is in the facts then. Whether there is room for them is seen before anything is frozen; those
// that grew in between are what the snapshot says.
func (r *Run) freeze(ctx context.Context) (frozen Frozen, grew bool, err error) {
	vm, err := r.plannedVM(ctx)
	if err != nil {
		return frozen, false, err
	}
	if err := sameShape(grownTo(r.Facts.VM, vm), vm); err != nil {
		return frozen, false, err
	}
	before, err := r.follow(ctx, vm)
	if err != nil {
		return frozen, false, err
	}
	if frozen, err = r.findSnapshot(ctx); err != nil {
		return frozen, false, err
	}
	since, err := r.follow(ctx, withSizes(r.Facts.VM, frozen.Sizes))
	return frozen, before || since, err
}

// findSnapshot finds the round's snapshot, or takes it. One that is of a smaller disk is of
// another time, and makes room.
func (r *Run) findSnapshot(ctx context.Context) (frozen Frozen, err error) {
	live, err := r.live()
	if err != nil {
		return frozen, err
	}
	err = r.retryBusy(ctx, func() (err error) {
		frozen, err = live.Freeze(ctx, r.Facts.VM.Ref, r.snapshot())
		if err != nil || len(larger(withSizes(r.Facts.VM, frozen.Sizes), r.Facts.VM)) == 0 {
			return err
		}
		old := fault.New(fault.Transient, "snapshot %q is of a smaller disk", r.snapshot())
		return errors.Join(old, live.Thaw(ctx, r.Facts.VM.Ref, r.snapshot()))
	})
	return frozen, err
}

// sameShape is sameDisks for a VM that runs: its files and moments change with snapshots.
func sameShape(was, is *inventory.VM) error {
	strip := func(vm *inventory.VM) *inventory.VM {
		c := *vm
		c.Disks = make([]inventory.Disk, len(vm.Disks))
		for i, d := range vm.Disks {
			c.Disks[i] = inventory.Disk{Key: d.Key, Capacity: d.Capacity, UUID: d.UUID}
		}
		return &c
	}
	return sameDisks(strip(was), strip(is))
}

// round brings the images up to the snapshot, and removes it. If a disk turns out to have grown
// the round is not done: it is to be done again, in the same turn.
func round(ctx context.Context, r *Run) error {
	if err := r.takeTurnToFreeze(ctx); err != nil {
		return err
	}
	frozen, done, err := r.catchUp(ctx)
	if errors.Is(err, errGrew) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := r.thaw(ctx); err != nil {
		return err
	}
	r.turn.back()
	r.stand.done()
	w := r.Facts.Warm
	w.Since, w.Rounds, w.Grown, w.Found = frozen.IDs, append(w.Rounds, done), nil, false
	o := r.outlook(r.opts.Now())
	r.tell(plan.Event{Kind: plan.RoundDone, Message: r.describeRound(done, o), Outlook: &o})
	return nil
}

// errGrew is catching up with a disk whose size is in the facts, but not on record yet.
var errGrew = errors.New("a disk has grown")

// snapshotsLost is how many snapshots may be removed under one round before it gives up.
const snapshotsLost = 3

// catchUp brings the images up to the snapshot. If that is gone, because somebody removed it
// or cleaned up after a crash, there is another of a later moment, which is as good: what
// changed is asked for since the moment on record.
func (r *Run) catchUp(ctx context.Context) (frozen Frozen, _ Round, err error) {
	r.stand.moves()
	for lost := 0; ; lost++ {
		var grew bool
		if frozen, grew, err = r.freeze(ctx); err == nil && grew {
			err = errGrew
		}
		if err != nil {
			return frozen, Round{}, err
		}
		done := tally{Round: Round{Began: r.opts.Now()}}
		err = r.eachImage(ctx, func(ctx context.Context, img *targets.Image) error {
			return r.advance(ctx, img, frozen, &done)
		})
		if err == nil {
			done.Took = r.opts.Now().Sub(done.Began)
			return frozen, done.Round, nil
		}
		live, lerr := r.live()
		if lerr != nil || ctx.Err() != nil || lost == snapshotsLost {
			return frozen, Round{}, err
		}
		if there, terr := live.Frozen(ctx, r.Facts.VM.Ref, r.snapshot()); terr != nil || there == frozen.Snapshot {
			return frozen, Round{}, err
		}
		r.opts.Log.Warn("snapshot was removed by somebody else", "run", r.Plan.ID, "snapshot", r.snapshot(), "err", err)
	}
}

// letGoWait bounds what a run that stops waits for a snapshot to be merged; the host goes
// on without us.
const letGoWait = 2 * time.Minute

// letGo removes the snapshot of a run that stops: it would grow until somebody comes back,
// and the next round takes another. Where that fails it is on record as left over.
func (m *Migrator) letGo(ctx context.Context, p plan.Plan, a *attendance) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), letGoWait)
	defer cancel()
	facts, err := m.facts(ctx, p.ID)
	if err != nil || facts.Warm == nil {
		return
	}
	r := &Run{Plan: p, Facts: facts, Rig: a.rig, opts: m.opts, m: m}
	live, err := r.live()
	if err == nil {
		err = live.Thaw(ctx, facts.VM.Ref, r.snapshot())
	}
	if err != nil {
		m.opts.Log.Warn("snapshot is left", "run", p.ID, "snapshot", r.snapshot(), "err", err)
	}
}

// eachImage calls do for all of them, in parallel.
func (r *Run) eachImage(ctx context.Context, do func(context.Context, *targets.Image) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(r.opts.Disks)
	for i := range r.Facts.Images {
		g.Go(func() error { return do(ctx, &r.Facts.Images[i]) })
	}
	return g.Wait()
}

// advance brings one image up to a frozen moment, again and again while it fails for
// reasons that pass. It is not finished.
func (r *Run) advance(ctx context.Context, img *targets.Image, frozen Frozen, done *tally) error {
	var total blockcopy.Result
	missing := int64(-1)
	job := r.job(*img)
	job.Source = nil // what is proven is of an earlier moment: it may well differ
	err := r.retry(ctx, img.Key, func() (bool, error) {
		left, err := job.Advance(ctx, func(ctx context.Context, c *image.Copying) (err error) {
			ledger, saved, err := r.proving(*img, c)
			if err != nil {
				return err
			}
			defer saved()
			job, err := r.changesJob(ctx, *img, c, ledger, frozen.Snapshot)
			if err != nil {
				return err
			}
			if r.Facts.Warm.Blind || !r.grew(img.Key) && !r.Facts.Warm.Found { // those are for once
				done.compares(job)
			}
			r.tell(plan.Event{Kind: plan.DiskBegan, Disk: img.Key, Message: r.fromWhat(job, c)})
			res, err := r.Rig.Transport.Transfer(ctx, job)
			total = total.Then(res)
			return err
		})
		further := left >= 0 && left < missing
		missing = left
		return further, err
	})
	done.add(total)
	if total.Rotten > 0 {
		r.tell(plan.Event{Kind: plan.ChunkBad, Disk: img.Key, Message: fmt.Sprintf(
			"%d chunks of the image were not what was written there; they were copied again: look at the target's storage (dmesg, smartctl)", total.Rotten)})
	}
	if err != nil {
		return fmt.Errorf("disk %d: %w", img.Key, err)
	}
	return nil
}

// proving returns the manifest for somebody who writes to the image, and what saves the record
// of what is proven when that is over.
func (r *Run) proving(img targets.Image, c *image.Copying) (_ manifest.Ledger, saved func(), err error) {
	p, err := image.OpenProven(img.Manifest, r.info(img))
	if err != nil {
		return nil, nil, err
	}
	ledger, err := p.Ledger(c.Log)
	return ledger, func() {
		if err := p.Save(); err != nil { // without it more is read back, nothing worse
			r.opts.Log.Warn("record of what is proven", "run", r.Plan.ID, "disk", img.Key, "err", err)
		}
	}, err
}

// prove reads back what was written since the last time, while the VM still runs: in the
// outage only what the last round wrote is left to be read. What is found wrong is copied
// again by the next round. What is not looked into yet is not delivered: the look may end the run.
func prove(ctx context.Context, r *Run) error {
	began := r.opts.Now()
	err := r.eachImage(ctx, func(ctx context.Context, img *targets.Image) error {
		report, err := r.job(*img).Prove(ctx, r.meter(img.Key).verifying)
		for _, b := range report.Bad {
			r.tell(plan.Event{Kind: plan.ChunkBad, Disk: img.Key, Message: b.String()})
		}
		if err != nil {
			return fmt.Errorf("read disk %d back: %w", img.Key, err)
		}
		r.opts.Log.Info("read back", "run", r.Plan.ID, "disk", img.Key, "len", report.Read)
		return nil
	})
	rounds := r.Facts.Warm.Rounds
	rounds[len(rounds)-1].Proved = r.opts.Now().Sub(began)
	if err != nil || r.Facts.Warm.ToLook {
		return err
	}
	return r.deliverEarly(ctx)
}

// tally sums up what is done to disks in parallel.
type tally struct {
	mu     sync.Mutex
	missed []missedOf
	Round
}

// missedOf is how much of a disk had changed without being told.
type missedOf struct {
	disk int32
	n    int64 // bytes
}

func (t *tally) add(res blockcopy.Result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Read += res.Read
	t.Copied += res.Written
}

func (t *tally) compares(job transport.Job) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Compared = t.Compared || job.Compare
}

// changesJob moves what changed of a disk since Warm.Since, and what its manifest lacks. An
// empty snapshot means the powered-off VM.
func (r *Run) changesJob(ctx context.Context, img targets.Image, c *image.Copying, ledger manifest.Ledger, snapshot inventory.MoRef) (job transport.Job, err error) {
	d, ok := r.Facts.VM.Disk(img.Key)
	if !ok {
		return job, fault.New(fault.Internal, "image is of no disk of VM %s", r.Facts.VM.Name)
	}
	vm, err := r.whereNow(ctx)
	if err != nil {
		return job, err
	}
	job = transport.Job{
		Disk:   transport.Disk{VM: vm, Disk: d, Snapshot: snapshot},
		Target: c.Target, Manifest: ledger, Progress: r.meter(img.Key).copying, Pace: r.Rig.Pace, Free: r.Rig.Free,
		ReadBack: placed{r.Rig.Target, img, nil}.ReadUnfinished,
		Partial:  len(r.Facts.Warm.Rounds) == 0 && c.Log.Missing() < c.Log.Chunks(),
	}
	if c.Log.Missing() < c.Log.Chunks() {
		job.Changed, err = r.changed(ctx, d, snapshot)
		job.Compare = job.Changed == nil
	}
	return job, err
}

// whereNow is the VM on the host that it is on now: one that runs may be moved at any time, and
// each host has networks and memory of its own.
func (r *Run) whereNow(ctx context.Context) (*inventory.VM, error) {
	now, err := r.plannedVM(ctx)
	if err != nil {
		return nil, err
	}
	vm := *r.Facts.VM
	vm.Host = now.Host
	return &vm, nil
}

// fromWhat says in words what a transfer begins with.
func (r *Run) fromWhat(job transport.Job, c *image.Copying) string {
	switch {
	case job.Compare && r.grew(job.Disk.Disk.Key):
		return r.afterGrowth(job.Disk.Disk.Key)
	case job.Compare && len(r.Facts.Warm.Rounds) > 0:
		return fmt.Sprintf("all of it is read and compared: nobody knows what changed; the first round took %v", r.Facts.Warm.Rounds[0].Took.Round(time.Second))
	case job.Compare:
		return "all of it is read and compared: nobody knows what changed"
	case job.Changed != nil && c.Log.Complete():
		return "with what changed"
	}
	return c.From()
}

// changed returns the grains of a disk that changed since Warm.Since; nil if nobody knows.
func (r *Run) changed(ctx context.Context, d *inventory.Disk, snapshot inventory.MoRef) (*bitmap.Bitmap, error) {
	live, err := r.live()
	if err != nil {
		return nil, err
	}
	since := r.Facts.Warm.Since[d.Key]
	if w := r.Facts.Warm; w.Blind || w.Found || since == "" || r.grew(d.Key) {
		return nil, nil
	}
	grains := bitmap.New(d.Capacity, blockcopy.PatchGrain)
	err = live.Changed(ctx, r.Facts.VM.Ref, snapshot, d, since, func(a disk.Range) { grains.Set(a) })
	if fault.Is(err, fault.Unsupported) {
		r.warn(inventory.Warning{
			Code: "changes-unknown", Text: fmt.Sprintf("what changed of disk %d is not known (%v): all of it was compared", d.Key, err),
		})
		return nil, nil
	}
	return grains, err
}

// lastRound brings the images up to the VM as it is now, off, and completes them. If a disk
// turns out to have grown it is not done: it is to be done again.
func lastRound(ctx context.Context, r *Run) error {
	r.stand.stop(errCutover)
	if err := r.takeTurn(ctx, AtCutover); err != nil {
		return err
	}
	vm, err := r.plannedVM(ctx)
	if err != nil {
		return err
	}
	if err := r.unchangedSince(grownTo(r.Facts.VM, vm), vm); err != nil {
		return err
	}
	if grew, err := r.follow(ctx, vm); err != nil || grew {
		return err
	}
	began := r.opts.Now()
	done := tally{Round: Round{Began: began}}
	err = r.eachImage(ctx, func(ctx context.Context, img *targets.Image) error {
		if err := r.advance(ctx, img, Frozen{}, &done); err != nil {
			return err
		}
		if err := r.doubt(ctx, img, &done); err != nil {
			return err
		}
		root, err := r.job(*img).Complete(ctx)
		if err != nil {
			return fmt.Errorf("disk %d: %w", img.Key, err)
		}
		img.Root = root.String()
		r.tell(plan.Event{Kind: plan.DiskDone, Disk: img.Key, Message: img.Root})
		return nil
	})
	for _, m := range done.missed {
		if m.n > 0 {
			r.warn(inventory.Warning{Code: "changes-missed", Text: fmt.Sprintf("change tracking had not told of %d bytes of disk %d that changed; they were copied by comparing all of it", m.n, m.disk)})
		}
	}
	done.Took = r.opts.Now().Sub(began)
	r.Facts.Warm.Rounds = append(r.Facts.Warm.Rounds, done.Round)
	r.turn.back()
	return err
}

// doubt compares all of a disk with the image that is to be the same, for people who do not
// take the host's word for what changed.
func (r *Run) doubt(ctx context.Context, img *targets.Image, done *tally) error {
	if !r.Permit.Paranoid || r.grew(img.Key) { // that was compared a moment ago
		return nil
	}
	missed := tally{}
	doubting := *r
	warm := *r.Facts.Warm
	warm.Blind, doubting.Facts.Warm = true, &warm // a run that knows of no changes compares
	if err := doubting.advance(ctx, img, Frozen{}, &missed); err != nil {
		return err
	}
	done.mu.Lock()
	defer done.mu.Unlock()
	done.Read += missed.Read
	done.Copied += missed.Copied
	done.missed = append(done.missed, missedOf{img.Key, missed.Copied})
	return nil
}

// powerOffForCutover begins the outage, as soon as the last round may begin; not if a disk of a VM that runs has grown: it is
// compared before that. One that grows while the guest shuts down is compared in the outage.
func powerOffForCutover(ctx context.Context, r *Run) error {
	if err := r.takeTurn(ctx, AtCutover); err != nil {
		return err
	}
	vm, err := r.plannedVM(ctx)
	if err != nil {
		return err
	}
	if err := sameShape(grownTo(r.Facts.VM, vm), vm); err != nil {
		return err
	}
	missed, err := r.missed(vm)
	if err != nil {
		return err
	}
	if missed || r.toCompareFirst(vm) {
		r.turn.back()
		return nil
	}
	if err := r.refuse(vm, Permit{PowerOff: true, Warm: true}); err != nil { // before the outage, not in it
		return err
	}
	r.stand.stop(errCutover)
	if vm.Power == inventory.PoweredOn {
		r.Facts.Warm.Off = r.opts.Now()
	}
	off, err := r.powerOff(ctx, vm)
	if err != nil {
		return err
	}
	if _, err := r.follow(ctx, off); err != nil {
		return err
	}
	r.Facts.VM = off
	return r.refuse(off, Permit{})
}

// toCompareFirst reports whether there is to be another round before the cutover, because a
// disk of a VM that runs has grown, and the facts say so then. That round takes long: what
// gathers meanwhile is better copied by yet another.
func (r *Run) toCompareFirst(vm *inventory.VM) bool {
	if vm.Power != inventory.PoweredOn || len(larger(r.Facts.VM, vm)) == 0 {
		return false
	}
	r.Facts.Warm.Cutover, r.Facts.Warm.Approached = false, false
	return true
}
