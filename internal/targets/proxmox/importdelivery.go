package proxmox

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"

	"github.com/decamp/decamp/internal/targets/platform"
)

// importDelivery delivers a VM with the API alone. It uploads each image to a storage of the node,
// which imports it.
type importDelivery struct {
	*delivery
	importStorage string // storage that the user named; empty for the one with the most space
	uploadStorage string // storage for uploads, set by prepare
}

// newImportDelivery returns a delivery of d. It sends no request.
func newImportDelivery(c clients, o Options, d platform.Delivery) (*importDelivery, error) {
	machine, err := Config(d.Definition, o)
	if err != nil {
		return nil, err
	}
	w := &delivery{clients: c, Delivery: d, machine: machine, warnings: machine.Warnings}
	return &importDelivery{delivery: w, importStorage: o.Import}, nil
}

// deliver creates the guest. After an error it removes what it created. A finished guest is never
// removed.
func (w *importDelivery) deliver(ctx context.Context) (platform.Receipt, error) {
	if err := w.prepare(ctx); err != nil {
		return platform.Receipt{}, err
	}
	g, err := w.guests.findGuest(ctx, w.VM)
	if err != nil {
		return platform.Receipt{}, err
	}
	if g != nil && g.plan == "" { // a complete guest is never removed
		return w.newReceipt(g), w.checkImages(g)
	}
	if g, err = w.completeGuest(ctx, g); err != nil {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		return platform.Receipt{}, errors.Join(err, w.removeGuest(late, false))
	}
	return w.newReceipt(g), nil
}

// prepare reads the sizes of the images and chooses the storage for uploads.
func (w *importDelivery) prepare(ctx context.Context) error {
	for _, img := range w.Images {
		info, err := os.Stat(img.Path)
		if err != nil {
			return fmt.Errorf("read the image of disk %d: %w", img.Key, err)
		}
		w.total += info.Size()
	}
	w.images = imagesHash(w.Images)
	w.plan = w.machine.planHash(w.images)
	list, err := w.storages.list(ctx)
	if err != nil {
		return err
	}
	w.noteClock()
	uploads, err := w.storages.forUploads(w.importStorage, list)
	w.uploadStorage = uploads.ID
	return err
}

// completeGuest creates the guest, or the missing parts of the unfinished guest g. If g has another
// definition, it is
// removed first.
func (w *importDelivery) completeGuest(ctx context.Context, g *found) (_ *found, err error) {
	if g != nil && g.plan != w.plan {
		if err := w.guests.destroyGuest(ctx, g); err != nil {
			return nil, err
		}
		if g.isDirect() { // the earlier delivery used SSH
			if err := w.volumes.removeAll(ctx, w.VM); err != nil {
				return nil, err
			}
		}
		g = nil
	}
	if g != nil {
		err = w.awaitLeftTasks(ctx, g)
	} else {
		g, err = w.createGuest(ctx, w.machine.Base, w.plan)
	}
	if err != nil {
		return nil, err
	}
	for _, d := range w.machine.Disks {
		if err := w.deliverDisk(ctx, g, d); err != nil {
			return nil, fmt.Errorf("disk %d of guest %d: %w", w.Images[d.Image].Key, g.vmid, err)
		}
	}
	if err := w.uploads.removeAll(ctx, w.VM); err != nil { // a crashed delivery may have left some
		return nil, err
	}
	return g, w.finishGuest(ctx, g)
}

// awaitLeftTasks waits for the node's tasks of a crashed delivery: copies of uploads and imports.
func (w *importDelivery) awaitLeftTasks(ctx context.Context, g *found) error {
	if err := w.uploads.awaitCopies(ctx, w.VM); err != nil {
		return err
	}
	return w.api.awaitTasks(ctx, g.node, url.Values{"vmid": {fmt.Sprint(g.vmid)}})
}

// deliverDisk uploads an image and imports it, unless the guest has the disk. It removes the upload in
// any case.
func (w *importDelivery) deliverDisk(ctx context.Context, g *found, d Disk) (err error) {
	if has, err := w.hasDisk(ctx, g, d.Slot); err != nil || has {
		return err
	}
	img := w.Images[d.Image]
	u := upload{path: img.Path, storage: w.uploadStorage, name: fmt.Sprintf("%s-%s.%s", ownTag(w.VM), d.Slot, img.Format)}
	if u.sum, err = sumOf(ctx, u.path); err != nil {
		return err
	}
	defer func() {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		err = errors.Join(err, w.storages.removeContent(late, u.volumeID(), u.storage))
	}()
	if err := w.uploads.uploadFile(ctx, u, w.addProgress); err != nil {
		return fmt.Errorf("upload: %w", err)
	}
	return w.importDisk(ctx, g, d, u)
}

// importDisk imports an upload as a disk of the guest. After a lost answer it waits for the node's
// tasks, and checks the
// guest before it tries again.
func (w *importDelivery) importDisk(ctx context.Context, g *found, d Disk, u upload) error {
	value := fmt.Sprintf("%s:0,import-from=%s%s", d.On, u.volumeID(), d.Words)
	for try := 1; ; try++ {
		warned, err := w.api.runTask(ctx, http.MethodPost, guestPath(g.node, g.vmid)+"/config", []Param{{d.Slot, value}})
		w.noteTask(warned, "given "+d.Slot)
		if err == nil || try == diskTries || !isTemporary(err) {
			return err
		}
		if err := w.api.awaitTasks(ctx, g.node, url.Values{"vmid": {fmt.Sprint(g.vmid)}}); err != nil {
			return err
		}
		if has, err := w.hasDisk(ctx, g, d.Slot); err != nil || has {
			return err
		}
	}
}

// hasDisk reports whether the guest has a disk in a slot.
func (w *importDelivery) hasDisk(ctx context.Context, g *found, slot string) (bool, error) {
	config, err := w.guests.readConfig(ctx, g.node, g.vmid)
	return config[slot] != "", err
}
