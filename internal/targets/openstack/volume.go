package openstack

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2/openstack/blockstorage/v3/volumes"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/targets"
)

const (
	// volumeTries is how often a volume is made that ends with an error.
	volumeTries = 2

	// longCopy is how often a volume is asked after while Cinder fills it: for a day.
	longCopy = 24 * 720

	// shortWait is how often something is asked after that should take minutes: for an hour.
	shortWait = 720
)

// image is the stage's image of a disk.
func (w *delivery) image(i int) targets.Image {
	at := slices.IndexFunc(w.Images, func(img targets.Image) bool { return img.Key == w.VM.Disks[i].Key })
	if at < 0 {
		return targets.Image{}
	}
	return w.Images[at]
}

// volume makes the volume of a disk, or finds it, and returns its ID.
func (w *delivery) volume(ctx context.Context, i int) (string, error) {
	failed, uploaded := 0, ""
	for try := 1; ; try++ {
		v, bad, err := w.settle(ctx, i)
		if err != nil {
			return "", err
		}
		if v != nil {
			return v.ID, w.ready(ctx, *v, i)
		}
		if failed += bad; failed >= volumeTries || try > createTries {
			return "", fault.New(fault.Transient, "Cinder made no volume of %d GiB", gibibytes(w.VM.Disks[i].Capacity)).
				WithHint("see what it says: openstack%s volume message list; another type may have room: volumeType=TYPE", w.cloud.option())
		}
		if uploaded == "" {
			if uploaded, err = (imageSender{w}).upload(ctx, i); err != nil {
				return "", fmt.Errorf("upload: %w", err)
			}
		}
		if err := w.createVolume(ctx, i, uploaded); err != nil && !passes(err) {
			return "", err
		} else if err != nil { // it may be there: Cinder's databases do not show it at once
			if err := w.cloud.wait(ctx, pause); err != nil {
				return "", err
			}
		}
	}
}

// volumeName is the name of a disk's volume, and of its image.
func volumeName(vm string, i int) string { return fmt.Sprintf("%s-disk%d", vm, max(i, 0)) }

// volumeType is that of the i-th disk's volume; of the one that there is without disks it is the usual.
func (w *delivery) volumeType(i int) string {
	if i < 0 {
		return w.opts.VolumeType
	}
	return w.opts.volumeType(w.VM.Disks[i])
}

// createVolume asks for one, once.
func (w *delivery) createVolume(ctx context.Context, i int, image string) error {
	o := volumes.CreateOpts{
		Name: volumeName(w.machine.name, i), Description: description(w.VM), Size: 1, ImageID: image,
		VolumeType: w.volumeType(i), AvailabilityZone: w.zone, Metadata: w.metadata(i),
	}
	if i >= 0 {
		o.Size = gibibytes(w.VM.Disks[i].Capacity)
	}
	return w.cloud.once(ctx, "make a volume", func(ctx context.Context) error {
		_, err := volumes.Create(ctx, w.session.volume, o, nil).Extract()
		return err
	})
}

// settle waits until what there is of a disk's volumes is ready, and returns the one to go on with, nil if
// there is none. Others are deleted; bad says how many of those had an error.
func (w *delivery) settle(ctx context.Context, i int) (v *volumes.Volume, bad int, err error) {
	seen := map[string]bool{}
	for look := 0; ; look++ {
		list, err := w.finder.volumesOf(ctx, w.session, w.VM)
		if err != nil {
			return nil, bad, err
		}
		busy := false
		v = nil
		for _, each := range list {
			key := each.Metadata[diskKey]
			if i >= 0 && key != fmt.Sprint(w.VM.Disks[i].Key) || i < 0 && key != "" {
				continue
			}
			switch {
			case moving(each.Status):
				busy = true
			case v == nil && each.Status == "available" && each.Metadata[planKey] == w.plan(i):
				v = &each
			default:
				if strings.HasPrefix(each.Status, "error") && !seen[each.ID] {
					seen[each.ID], bad = true, bad+1
				}
				busy = true
				if err := w.remover.removeVolume(ctx, w.session, each); err != nil {
					return nil, bad, err
				}
			}
		}
		if !busy {
			return v, bad, nil
		}
		if look == longCopy {
			return nil, bad, fault.New(fault.Transient, "a volume does not get ready").WithHint("look at it: openstack%s volume list", w.cloud.option())
		}
		if err := w.cloud.wait(ctx, poll); err != nil {
			return nil, bad, err
		}
	}
}

// moving reports whether a volume is on its way to another status.
func moving(status string) bool {
	return slices.Contains([]string{"creating", "downloading", "deleting", "uploading", "detaching", "attaching", "retyping", "backing-up", "restoring-backup"}, status)
}

// ready gives a volume what Cinder did not take from its image, and deletes that.
func (w *delivery) ready(ctx context.Context, v volumes.Volume, i int) error {
	if i == w.machine.boot {
		if err := w.bootable(ctx, v); err != nil {
			return err
		}
	}
	there, err := w.finder.imagesOf(ctx, w.session, w.VM)
	if err != nil {
		return err
	}
	for _, img := range there {
		if i >= 0 && properties(img)[diskKey] != fmt.Sprint(w.VM.Disks[i].Key) {
			continue
		}
		err := w.remover.removeImage(ctx, w.session, img.ID)
		if fault.Is(err, fault.Conflict) { // its volume is a clone of it, as on Ceph
			w.warn("image-kept", "leave it as long as the volume is there; after that: openstack image delete "+img.ID,
				"image %s stays: the volume of disk %d was made of it and needs it", img.ID, i)
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// bootable sees to it that Nova boots from the volume, with the right hardware.
func (w *delivery) bootable(ctx context.Context, v volumes.Volume) error {
	if v.Bootable != "true" {
		err := w.cloud.ask(ctx, "make a volume bootable", func(ctx context.Context) error {
			return volumes.SetBootable(ctx, w.session.volume, v.ID, volumes.BootableOpts{Bootable: true}).ExtractErr()
		})
		if err != nil {
			return err
		}
	}
	lacking := maps.Clone(w.machine.properties)
	maps.DeleteFunc(lacking, func(key, value string) bool { return v.VolumeImageMetadata[key] == value })
	if len(lacking) == 0 {
		return nil
	}
	return w.cloud.ask(ctx, "say a volume's hardware", func(ctx context.Context) error {
		return volumes.SetImageMetadata(ctx, w.session.volume, v.ID, volumes.ImageMetadataOpts{Metadata: lacking}).ExtractErr()
	})
}

// complete makes the record of the volume that the VM boots from. Nova starts nothing without one, so a VM
// without disks gets one that is empty.
func (w *delivery) complete(ctx context.Context) error {
	boot := w.machine.boot
	if boot >= 0 {
		w.record = w.volumes[boot]
	} else {
		id, err := w.blank(ctx)
		if err != nil {
			return err
		}
		w.record = id
	}
	m := w.metadata(boot)
	m[completeKey] = w.contents
	items, _ := inscriptions(w.VM)
	maps.Copy(m, items)
	return w.cloud.ask(ctx, "complete a volume", func(ctx context.Context) error {
		return volumes.Update(ctx, w.session.volume, w.record, volumes.UpdateOpts{Metadata: m}).Err
	})
}

// blank makes the volume of a VM without disks.
func (w *delivery) blank(ctx context.Context) (string, error) {
	w.warn("no-disks", "a volume costs little; delete it if nothing is to boot from it", "the VM has no disks, and gets an empty volume of 1 GiB: Nova makes no server without one")
	for try := 1; ; try++ {
		v, _, err := w.settle(ctx, -1)
		if err != nil {
			return "", err
		}
		if v != nil {
			return v.ID, w.bootable(ctx, *v)
		}
		if err := w.createVolume(ctx, -1, ""); err != nil && (!passes(err) || try == createTries) {
			return "", err
		}
	}
}
