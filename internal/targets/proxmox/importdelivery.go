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

// An importDelivery uploads each image to a storage of the node, and has it imported from there.
type importDelivery struct {
	*delivery
	importStorage string // the wanted one, or empty
	uploadStorage string // the one that is used
}

func newImportDelivery(c clients, o Options, d platform.Delivery) (*importDelivery, error) {
	machine, err := Config(d.Definition, o)
	if err != nil {
		return nil, err
	}
	w := &delivery{clients: c, Delivery: d, machine: machine, warnings: machine.Warnings}
	return &importDelivery{delivery: w, importStorage: o.Import}, nil
}

// deliver makes the guest. It removes what it made after an error.
func (w *importDelivery) deliver(ctx context.Context) (platform.Receipt, error) {
	if err := w.prepare(ctx); err != nil {
		return platform.Receipt{}, err
	}
	g, err := w.guests.find(ctx, w.VM)
	if err != nil {
		return platform.Receipt{}, err
	}
	if g != nil && g.plan == "" { // it was delivered: whatever is wrong, it stays
		return w.receipt(g), w.done(g)
	}
	if g, err = w.carryOut(ctx, g); err != nil {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
		defer cancel()
		return platform.Receipt{}, errors.Join(err, w.abandon(late, false))
	}
	return w.receipt(g), nil
}

// prepare looks at what there is on either side, before anything is made.
func (w *importDelivery) prepare(ctx context.Context) error {
	for _, img := range w.Images {
		info, err := os.Stat(img.Path)
		if err != nil {
			return fmt.Errorf("look at the image of disk %d: %w", img.Key, err)
		}
		w.total += info.Size()
	}
	w.images = contents(w.Images)
	w.plan = w.machine.plan(w.images)
	list, err := w.storages.list(ctx)
	if err != nil {
		return err
	}
	w.noteClock()
	uploads, err := w.storages.forUploads(w.importStorage, list)
	w.uploadStorage = uploads.ID
	return err
}

// carryOut makes the guest, or what is missing of g, which is not complete.
func (w *importDelivery) carryOut(ctx context.Context, g *found) (_ *found, err error) {
	if g != nil && g.plan != w.plan {
		if err := w.guests.destroy(ctx, g); err != nil {
			return nil, err
		}
		if g.direct() { // it was begun over SSH
			if err := w.volumes.removeAll(ctx, w.VM); err != nil {
				return nil, err
			}
		}
		g = nil
	}
	if g != nil {
		err = w.resume(ctx, g)
	} else {
		g, err = w.create(ctx, w.machine.Base, w.plan)
	}
	if err != nil {
		return nil, err
	}
	for _, d := range w.machine.Disks {
		if err := w.disk(ctx, g, d); err != nil {
			return nil, fmt.Errorf("disk %d of guest %d: %w", w.Images[d.Image].Key, g.vmid, err)
		}
	}
	if err := w.uploads.removeAll(ctx, w.VM); err != nil { // of one that crashed
		return nil, err
	}
	return g, w.finish(ctx, g)
}

// resume waits for what a crash left under way on the node: a copy of an upload, an import.
func (w *importDelivery) resume(ctx context.Context, g *found) error {
	if err := w.uploads.settle(ctx, w.VM); err != nil {
		return err
	}
	return w.api.settle(ctx, g.node, url.Values{"vmid": {fmt.Sprint(g.vmid)}})
}

// disk uploads an image and has it imported, unless that was done. What was uploaded is deleted
// either way.
func (w *importDelivery) disk(ctx context.Context, g *found, d Disk) (err error) {
	if has, err := w.has(ctx, g, d.Slot); err != nil || has {
		return err
	}
	img := w.Images[d.Image]
	u := upload{path: img.Path, storage: w.uploadStorage, name: fmt.Sprintf("%s-%s.%s", ownTag(w.VM), d.Slot, img.Format)}
	if u.sum, err = sumOf(ctx, u.path); err != nil {
		return err
	}
	defer func() {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
		defer cancel()
		err = errors.Join(err, w.storages.removeContent(late, u.volume(), u.storage))
	}()
	if err := w.uploads.upload(ctx, u, w.progress); err != nil {
		return fmt.Errorf("upload: %w", err)
	}
	return w.attach(ctx, g, d, u)
}

// attach imports what was uploaded. An answer that was lost may have been a yes: so the guest is
// looked at before it is tried again.
func (w *importDelivery) attach(ctx context.Context, g *found, d Disk, u upload) error {
	value := fmt.Sprintf("%s:0,import-from=%s%s", d.On, u.volume(), d.Words)
	for try := 1; ; try++ {
		warned, err := w.api.do(ctx, http.MethodPost, qemu(g.node, g.vmid)+"/config", []Param{{d.Slot, value}})
		w.note(warned, "given "+d.Slot)
		if err == nil || try == diskTries || !passes(err) {
			return err
		}
		if err := w.api.settle(ctx, g.node, url.Values{"vmid": {fmt.Sprint(g.vmid)}}); err != nil {
			return err
		}
		if has, err := w.has(ctx, g, d.Slot); err != nil || has {
			return err
		}
	}
}

// has reports whether the guest has a disk in a slot.
func (w *importDelivery) has(ctx context.Context, g *found, slot string) (bool, error) {
	config, err := w.guests.config(ctx, g.node, g.vmid)
	return config[slot] != "", err
}
