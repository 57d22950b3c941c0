package migrate

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/convert/virtv2v"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/guest/linux"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/qcow2"
	"github.com/decamp/decamp/internal/targets"
)

// v2vLog is the name of virt-v2v's log in the run's folder.
const v2vLog = "virt-v2v.log"

// A v2vEngine changes the guest of a run with virt-v2v, on overlays beside the images.
type v2vEngine struct {
	record   *Record      // results and events of the run
	overlays *overlays    // images of the run
	rig      *Environment // virt-v2v, and encryption keys
	opts     *Options     // options of the Migrator
	folder   string       // folder of virt-v2v's log
}

// keepFunc stores the changes of an engine on disks, for the hardware that boots the result.
type keepFunc func(ctx context.Context, result convert.Result, disks []changedDisk, h targets.Hardware) error

// convertGuest changes the guest with virt-v2v on overlays beside the images, and stores the changes
// with keep. Before that, a Linux gets device names that do not depend on its hardware. The bus that it
// boots from is read from the result.
func (e *v2vEngine) convertGuest(ctx context.Context, o convert.Options, keep keepFunc) (err error) {
	if e.rig.V2V == nil {
		return fault.New(fault.NotFound, "virt-v2v-in-place is not installed on this machine").WithHint(virtv2v.InstallHint)
	}
	if err := TakenByV2V(e.record.Facts.Guest, e.rig.Keys); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.dropWork()) }()
	if err := e.dropWork(); err != nil {
		return err
	}
	result, err := e.prepareOverlays(ctx, o)
	if err != nil {
		return err
	}
	report, err := e.rig.V2V(ctx, e.newJob())
	if err != nil {
		return err
	}
	e.record.AddStage(journal.StageTime{Name: "virt-v2v", Elapsed: report.Elapsed})
	result.Engine = "virt-v2v " + report.Version
	result.Notes = append(result.Notes, report.Warnings...)
	unseen := targets.VirtioBlk
	if report.SCSI {
		unseen = targets.Virtio
	}
	return e.keepWork(ctx, result, unseen, keep)
}

// prepareOverlays creates the overlays that virt-v2v writes to, on top of the images. They contain the
// changes of Environment.Prepare, if it accepts the guest.
func (e *v2vEngine) prepareOverlays(ctx context.Context, o convert.Options) (_ convert.Result, err error) {
	disks, closeAll, err := e.overlays.openDisks(ctx)
	if err != nil {
		return convert.Result{}, err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	var result convert.Result
	if e.rig.Prepare != nil && WindowsOf(e.record.Facts.Guest) == nil {
		var refusal error
		if result, refusal = e.rig.Prepare(ctx, disks, o); refusal != nil {
			if !isRefusal(refusal) {
				return result, refusal
			}
			result = convert.Result{Notes: []string{fmt.Sprintf("decamp does not change the names of disks and cards after virt-v2v: %v", refusal)}}
		}
	}
	for i, img := range e.record.Facts.Images {
		beneath := qcow2.Backing{Path: filepath.Base(img.Path), Format: string(img.Format)}
		if err := qcow2.WriteAbove(ctx, workOf(img), beneath, disks[i].Overlay, disks[i].Overlay.Changed()); err != nil {
			return result, err
		}
	}
	return result, nil
}

// newJob returns the description of the VM for virt-v2v.
func (e *v2vEngine) newJob() virtv2v.Job {
	vm := e.record.Facts.VM
	j := virtv2v.Job{
		Name: vm.Name, MemoryMiB: vm.MemoryMiB, CPUs: vm.CPUs, EFI: vm.Firmware == inventory.EFI,
		Log: filepath.Join(e.folder, v2vLog),
		Report: func(doing string) {
			e.record.Report(journal.Event{Kind: journal.Noted, Message: "virt-v2v: " + doing})
		},
	}
	j.Windows = WindowsOf(e.record.Facts.Guest)
	j.Keys, j.Locked = e.rig.Keys, lockedIn(e.record.Facts.Guest)
	for _, img := range e.record.Facts.Images {
		j.Disks = append(j.Disks, workOf(img))
	}
	return j
}

// keepWork stores the changes in virt-v2v's overlays, for the hardware that boots the result; unseen is
// used if that cannot be determined.
func (e *v2vEngine) keepWork(ctx context.Context, result convert.Result, unseen targets.Hardware, keep keepFunc) (err error) {
	began := e.opts.Now()
	var disks []changedDisk
	defer func() {
		for _, d := range disks {
			err = errors.Join(err, d.Close())
		}
	}()
	for _, img := range e.record.Facts.Images {
		d, err := e.openWork(ctx, img)
		if err != nil {
			return fmt.Errorf("read the result of virt-v2v for disk %d: %w", img.Key, err)
		}
		disks = append(disks, d)
	}
	hardware, err := hardwareOf(ctx, disks, unseen)
	if err != nil {
		return err
	}
	e.record.Report(journal.Event{Kind: journal.Noted, Message: fmt.Sprintf("converted by %s: %d MiB changed; the disks are on %s", result.Engine, changedMiB(disks), busNames[hardware])})
	if err := keep(ctx, result, disks, hardware); err != nil {
		return err
	}
	e.record.AddStage(journal.StageTime{Name: "store the changes of virt-v2v", Elapsed: e.opts.Now().Sub(began)})
	return nil
}

// busNames are the buses of the virtio profiles, for users.
var busNames = map[targets.Hardware]linux.Bus{targets.Virtio: linux.VirtioSCSI, targets.VirtioBlk: linux.VirtioBlk}

// changedMiB returns the size of the changed chunks, in MiB.
func changedMiB(disks []changedDisk) (n int) {
	for _, d := range disks {
		n += len(d.chunks)
	}
	return n * (manifest.ChunkSize >> 20)
}

// hardwareOf reads from the disks which hardware they boot from. If that is not visible it returns
// unseen, the hardware that virt-v2v itself defines.
func hardwareOf(ctx context.Context, disks []changedDisk, unseen targets.Hardware) (targets.Hardware, error) {
	var srcs []disk.Source
	for _, d := range disks {
		srcs = append(srcs, d.Source)
	}
	reports, err := guest.DetectAll(ctx, srcs)
	if err != nil {
		return "", err
	}
	switch bus, known := guest.VirtioBus(reports); {
	case !known:
		return unseen, nil
	case bus == linux.VirtioSCSI:
		return targets.Virtio, nil
	case bus == linux.VirtioBlk:
		return targets.VirtioBlk, nil
	}
	return "", fault.New(fault.Unsupported, "after virt-v2v the guest has no driver for virtio that starts at boot").
		WithHint("see its warnings in %s; for Windows, set a virtio-win with its drivers: --virtio-win PATH", v2vLog)
}

// openWork opens an image with virt-v2v's overlay, and finds the chunks that differ from the image. The
// caller closes the disk.
func (e *v2vEngine) openWork(ctx context.Context, img targets.Image) (_ changedDisk, err error) {
	beneath, err := e.rig.Target.Read(ctx, img)
	if err != nil {
		return changedDisk{}, err
	}
	src, err := qcow2.OpenOver(workOf(img), beneath)
	if err != nil {
		return changedDisk{}, errors.Join(err, beneath.Close())
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, src.Close())
		}
	}()
	if src.Size() != img.Size {
		return changedDisk{}, fault.New(fault.Corrupt, "the image has %d bytes, and the disk %d", src.Size(), img.Size)
	}
	own, err := src.Own(ctx, disk.Range{Len: src.Size()})
	if err != nil {
		return changedDisk{}, err
	}
	chunks, err := differingChunks(ctx, src, e.record.Info(img), img, chunksOf(own))
	return changedDisk{src, chunks}, err
}

// differingChunks returns those of chunks that differ from the image's manifest: many writes to a file
// system repeat existing data. chunks must be in order.
func differingChunks(ctx context.Context, src disk.Source, info manifest.Info, img targets.Image, chunks []int64) (out []int64, err error) {
	sealed, err := manifest.Load(img.Manifest)
	if err != nil {
		return nil, err
	}
	defer sealed.Close()
	listed, old := sealed.Hashes(), make([]manifest.Hash, 1)
	next := int64(0) // chunk whose hash is read next
	for _, c := range chunks {
		for ; next <= c; next++ {
			if err := listed.Next(old); err != nil {
				return nil, fmt.Errorf("chunk %d of its manifest: %w", c, err)
			}
		}
		now, err := hashesOf(ctx, src, info, []int64{c})
		if err != nil {
			return nil, err
		}
		if now[0] != old[0] {
			out = append(out, c)
		}
	}
	return out, nil
}

// dropWork removes the overlays that virt-v2v wrote to.
func (e *v2vEngine) dropWork() error {
	var errs []error
	for _, img := range e.record.Facts.Images {
		errs = append(errs, removeOverlay(workOf(img)))
	}
	return errors.Join(errs...)
}
