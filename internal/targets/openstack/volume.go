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
	// volumeTries is the maximum number of volumes that end in an error.
	volumeTries = 2

	// longCopy is the number of polls while Cinder fills a volume: one day.
	longCopy = 24 * 720

	// shortWait is the number of polls for operations that take minutes: one hour.
	shortWait = 720
)

// imageOf returns the staged image of the i-th disk, or the zero Image if it is missing.
func (w *delivery) imageOf(i int) targets.Image {
	at := slices.IndexFunc(w.Images, func(img targets.Image) bool { return img.Key == w.VM.Disks[i].Key })
	if at < 0 {
		return targets.Image{}
	}
	return w.Images[at]
}

// ensureVolume creates or finds the volume of the i-th disk, and returns its ID. It uploads the image
// only if there is no
// usable volume. It fails after volumeTries volumes have ended in an error.
func (w *delivery) ensureVolume(ctx context.Context, i int) (string, error) {
	failed, uploaded := 0, ""
	for try := 1; ; try++ {
		v, bad, err := w.settleVolumes(ctx, i)
		if err != nil {
			return "", err
		}
		if v != nil {
			return v.ID, w.finishVolume(ctx, *v, i)
		}
		if failed += bad; failed >= volumeTries || try > createTries {
			return "", fault.New(fault.Transient, "Cinder created no volume of %d GiB", gibibytes(w.VM.Disks[i].Capacity)).
				WithHint("find the cause: openstack%s volume message list; another type may have space: volumeType=TYPE", w.cloud.cloudOption())
		}
		if uploaded == "" {
			if uploaded, err = (imageSender{w}).uploadVerified(ctx, i); err != nil {
				return "", fmt.Errorf("upload: %w", err)
			}
		}
		if err := w.createVolume(ctx, i, uploaded); err != nil && !isTemporary(err) {
			return "", err
		} else if err != nil { // it may exist: Cinder does not list new volumes at once
			if err := w.cloud.wait(ctx, pause); err != nil {
				return "", err
			}
		}
	}
}

// volumeName returns the name of the volume of a VM's i-th disk, and of its image.
func volumeName(vm string, i int) string { return fmt.Sprintf("%s-disk%d", vm, max(i, 0)) }

// volumeType returns the type of the i-th disk's volume. i is -1 for the empty volume of a VM without
// disks.
func (w *delivery) volumeType(i int) string {
	if i < 0 {
		return w.opts.VolumeType
	}
	return w.opts.volumeType(w.VM.Disks[i])
}

// createVolume sends one request for the i-th disk's volume.
func (w *delivery) createVolume(ctx context.Context, i int, image string) error {
	o := volumes.CreateOpts{
		Name: volumeName(w.machine.name, i), Description: volumeDescription(w.VM), Size: 1, ImageID: image,
		VolumeType: w.volumeType(i), AvailabilityZone: w.zone, Metadata: w.partMetadata(i),
	}
	if i >= 0 {
		o.Size = gibibytes(w.VM.Disks[i].Capacity)
	}
	return w.cloud.callOnce(ctx, "create a volume", func(ctx context.Context) error {
		_, err := volumes.Create(ctx, w.session.volume, o, nil).Extract()
		return err
	})
}

// settleVolumes waits until no volume of the i-th disk changes its state, and returns the usable one,
// or nil. A volume is
// usable if it is available and was created from the same plan. All others are deleted; bad counts
// those with an error.
func (w *delivery) settleVolumes(ctx context.Context, i int) (v *volumes.Volume, bad int, err error) {
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
			case isChanging(each.Status):
				busy = true
			case v == nil && each.Status == "available" && each.Metadata[planKey] == w.planHash(i):
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
			return nil, bad, fault.New(fault.Transient, "a volume does not become available").WithHint("check its state: openstack%s volume list", w.cloud.cloudOption())
		}
		if err := w.cloud.wait(ctx, poll); err != nil {
			return nil, bad, err
		}
	}
}

// isChanging reports whether a volume is in a transient status.
func isChanging(status string) bool {
	return slices.Contains([]string{"creating", "downloading", "deleting", "uploading", "detaching", "attaching", "retyping", "backing-up", "restoring-backup"}, status)
}

// finishVolume sets the properties that Cinder did not copy from the image, and deletes the image. On
// Ceph the volume may
// depend on the image; then the image stays, and a warning is added.
func (w *delivery) finishVolume(ctx context.Context, v volumes.Volume, i int) error {
	if i == w.machine.boot {
		if err := w.makeBootable(ctx, v); err != nil {
			return err
		}
	}
	there, err := w.finder.imagesOf(ctx, w.session, w.VM)
	if err != nil {
		return err
	}
	for _, img := range there {
		if i >= 0 && textProperties(img)[diskKey] != fmt.Sprint(w.VM.Disks[i].Key) {
			continue
		}
		err := w.remover.removeImage(ctx, w.session, img.ID)
		if fault.Is(err, fault.Conflict) { // the volume is a clone of the image, as on Ceph
			w.warn("image-kept", "keep it as long as the volume exists; after that: openstack image delete "+img.ID,
				"image %s is kept: the volume of disk %d depends on it", img.ID, i)
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// makeBootable marks the volume as bootable and sets the properties for Nova.
func (w *delivery) makeBootable(ctx context.Context, v volumes.Volume) error {
	if v.Bootable != "true" {
		err := w.cloud.retryCall(ctx, "make a volume bootable", func(ctx context.Context) error {
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
	return w.cloud.retryCall(ctx, "set a volume's properties", func(ctx context.Context) error {
		return volumes.SetImageMetadata(ctx, w.session.volume, v.ID, volumes.ImageMetadataOpts{Metadata: lacking}).ExtractErr()
	})
}

// completeRecord marks the boot volume as the complete record. Nova creates no server without a volume
// or image, so a VM
// without disks gets an empty volume.
func (w *delivery) completeRecord(ctx context.Context) error {
	boot := w.machine.boot
	if boot >= 0 {
		w.record = w.volumes[boot]
	} else {
		id, err := w.createEmptyVolume(ctx)
		if err != nil {
			return err
		}
		w.record = id
	}
	m := w.partMetadata(boot)
	m[completeKey] = w.contents
	items, _ := tagMetadata(w.VM)
	maps.Copy(m, items)
	return w.cloud.retryCall(ctx, "complete a volume", func(ctx context.Context) error {
		return volumes.Update(ctx, w.session.volume, w.record, volumes.UpdateOpts{Metadata: m}).Err
	})
}

// createEmptyVolume creates or finds the volume of a VM without disks.
func (w *delivery) createEmptyVolume(ctx context.Context) (string, error) {
	w.warn("no-disks", "delete the volume if the VM boots from the network only and has been started", "the VM has no disks, so decamp adds an empty volume of 1 GiB: Nova creates no server without a volume")
	for try := 1; ; try++ {
		v, _, err := w.settleVolumes(ctx, -1)
		if err != nil {
			return "", err
		}
		if v != nil {
			return v.ID, w.makeBootable(ctx, *v)
		}
		if err := w.createVolume(ctx, -1, ""); err != nil && (!isTemporary(err) || try == createTries) {
			return "", err
		}
	}
}
