package migrate

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/convert/virtv2v"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/guest/linux"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/plan"
	"github.com/decamp/decamp/internal/qcow2"
	"github.com/decamp/decamp/internal/targets"
)

// workOf is the overlay that virt-v2v writes to: it changes what it likes, and what matters of that
// is put into the overlay that is kept.
func workOf(img targets.Image) string { return img.Path + ".v2v" }

// v2vLog is the name of virt-v2v's log in the run's folder.
const v2vLog = "virt-v2v.log"

// byV2V has virt-v2v change the guest on overlays beside the images. A Linux gets names that do not
// hang on its hardware before. Which bus it boots from then is seen in what virt-v2v left.
func (c *converter) byV2V(ctx context.Context) (err error) {
	if c.rig.V2V == nil {
		return fault.New(fault.NotFound, "virt-v2v-in-place is not installed here").WithHint(virtv2v.InstallHint)
	}
	if err := TakenByV2V(c.record.Facts.Guest, c.rig.Keys); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.dropWork()) }()
	if err := c.dropWork(); err != nil {
		return err
	}
	result, err := c.prepare(ctx)
	if err != nil {
		return err
	}
	report, err := c.rig.V2V(ctx, c.job())
	if err != nil {
		return err
	}
	c.record.AddStage(plan.Stage{Name: "virt-v2v", Elapsed: report.Elapsed})
	result.Engine = "virt-v2v " + report.Version
	result.Notes = append(result.Notes, report.Warnings...)
	unseen := targets.VirtioBlk
	if report.SCSI {
		unseen = targets.Virtio
	}
	return c.takeWork(ctx, result, unseen)
}

// TakenByV2V refuses what virt-v2v would find out after minutes, and say in other words: volumes that no
// key opens, dynamic and dirty ones.
func TakenByV2V(reports []guest.Report, keys []virtv2v.Key) error {
	for _, l := range lockedIn(reports) {
		if !l.Opened(keys) {
			return noKey(l)
		}
	}
	for _, g := range reports {
		if g.Windows != nil && g.Windows.Dynamic {
			return fault.New(fault.Unsupported, "the Windows is on a dynamic disk, which virt-v2v does not write").WithHint("use the compat profile, which changes nothing in the guest")
		}
		for _, w := range g.Warnings {
			if w.Code == "ntfs-dirty" {
				return fault.New(fault.Conflict, "virt-v2v does not take the guest: %s", w.Text).
					WithHint("in the guest, at the source: chkdsk /f, and restart; then shut it down and copy it again")
			}
		}
	}
	return nil
}

// prepare makes the overlays that virt-v2v writes to, above the images. They have what Prepare
// changed, if the guest is one for that.
func (c *converter) prepare(ctx context.Context) (_ convert.Result, err error) {
	disks, closeAll, err := c.overlays.open(ctx)
	if err != nil {
		return convert.Result{}, err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	var result convert.Result
	if c.rig.Prepare != nil && WindowsOf(c.record.Facts.Guest) == nil {
		var refusal error
		if result, refusal = c.rig.Prepare(ctx, disks, c.options()); refusal != nil {
			if !refused(refusal) {
				return result, refusal
			}
			result = convert.Result{Notes: []string{fmt.Sprintf("names of disks and cards are left as virt-v2v leaves them: %v", refusal)}}
		}
	}
	for i, img := range c.record.Facts.Images {
		beneath := qcow2.Backing{Path: filepath.Base(img.Path), Format: string(img.Format)}
		if err := qcow2.WriteAbove(ctx, workOf(img), beneath, disks[i].Overlay, disks[i].Overlay.Changed()); err != nil {
			return result, err
		}
	}
	return result, nil
}

// WindowsOf is the Windows that drivers are for; nil if there is none. Of one within BitLocker nothing
// is known.
func WindowsOf(reports []guest.Report) *virtv2v.Windows {
	for _, g := range reports {
		if w := g.Windows; w != nil {
			return &virtv2v.Windows{Build: w.Build, Arch: w.Arch, Server: strings.Contains(w.Product, "Server")}
		}
	}
	if slices.ContainsFunc(lockedIn(reports), func(l virtv2v.Locked) bool { return l.Kind == string(guest.BitLocker) }) {
		return &virtv2v.Windows{}
	}
	return nil
}

func (c *converter) job() virtv2v.Job {
	vm := c.record.Facts.VM
	j := virtv2v.Job{
		Name: vm.Name, MemoryMiB: vm.MemoryMiB, CPUs: vm.CPUs, EFI: vm.Firmware == inventory.EFI,
		Log: filepath.Join(c.folder, v2vLog),
		Tell: func(doing string) {
			c.record.Tell(plan.Event{Kind: plan.Noted, Message: "virt-v2v: " + doing})
		},
	}
	j.Windows = WindowsOf(c.record.Facts.Guest)
	j.Keys, j.Locked = c.rig.Keys, lockedIn(c.record.Facts.Guest)
	for _, img := range c.record.Facts.Images {
		j.Disks = append(j.Disks, workOf(img))
	}
	return j
}

// takeWork keeps what is different in virt-v2v's overlays, for the hardware that boots it: unseen where
// that cannot be seen.
func (c *converter) takeWork(ctx context.Context, result convert.Result, unseen targets.Hardware) (err error) {
	began := c.opts.Now()
	var disks []changedDisk
	defer func() {
		for _, d := range disks {
			err = errors.Join(err, d.Close())
		}
	}()
	for _, img := range c.record.Facts.Images {
		d, err := c.openWork(ctx, img)
		if err != nil {
			return fmt.Errorf("what virt-v2v left of disk %d: %w", img.Key, err)
		}
		disks = append(disks, d)
	}
	hardware, err := hardwareOf(ctx, disks, unseen)
	if err != nil {
		return err
	}
	c.record.Tell(plan.Event{Kind: plan.Noted, Message: fmt.Sprintf("converted by %s: %d MiB change; the disks go on %s", result.Engine, changedMiB(disks), busNames[hardware])})
	if err := c.keepConverted(ctx, result, disks, hardware); err != nil {
		return err
	}
	c.record.AddStage(plan.Stage{Name: "keep what virt-v2v changed", Elapsed: c.opts.Now().Sub(began)})
	return nil
}

var busNames = map[targets.Hardware]linux.Bus{targets.Virtio: linux.VirtioSCSI, targets.VirtioBlk: linux.VirtioBlk}

func changedMiB(disks []changedDisk) (n int) {
	for _, d := range disks {
		n += len(d.chunks)
	}
	return n * (manifest.ChunkSize >> 20)
}

// hardwareOf looks into the disks for what they boot from. What cannot be looked into gets what
// virt-v2v itself defines, unseen.
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
	return "", fault.New(fault.Unsupported, "virt-v2v left the guest without a driver for virtio that starts at boot").
		WithHint("look for its warnings in %s; for a Windows, give it a virtio-win that has its drivers: --virtio-win PATH", v2vLog)
}

// openWork opens an image with what virt-v2v wrote above it, and finds the chunks that differ.
func (c *converter) openWork(ctx context.Context, img targets.Image) (_ changedDisk, err error) {
	beneath, err := c.rig.Target.Read(ctx, img)
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
		return changedDisk{}, fault.New(fault.Corrupt, "it has %d bytes, and the disk %d", src.Size(), img.Size)
	}
	own, err := src.Own(ctx, disk.Range{Len: src.Size()})
	if err != nil {
		return changedDisk{}, err
	}
	chunks, err := differing(ctx, src, c.record.Info(img), img, chunksOf(own))
	return changedDisk{src, chunks}, err
}

// differing returns those of the chunks that are others than the image's manifest lists: much of what
// is written to a file system is what was there.
func differing(ctx context.Context, src disk.Source, info manifest.Info, img targets.Image, chunks []int64) (out []int64, err error) {
	sealed, err := manifest.Load(img.Manifest)
	if err != nil {
		return nil, err
	}
	defer sealed.Close()
	listed, old := sealed.Hashes(), make([]manifest.Hash, 1)
	next := int64(0) // whose hash is read next
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

// dropWork removes what virt-v2v wrote to.
func (c *converter) dropWork() error {
	var errs []error
	for _, img := range c.record.Facts.Images {
		errs = append(errs, removeOverlay(workOf(img)))
	}
	return errors.Join(errs...)
}
