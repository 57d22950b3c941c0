package openstack

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/http"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/imagedata"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/images"

	"github.com/decamp/decamp/internal/fault"
)

// uploadTries is how often an upload is begun that was cut off or arrived damaged.
const uploadTries = 3

// newID is a random UUID. Glance takes one for the ID of an image, so that an answer that was lost need not
// be guessed at.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it cannot fail
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// An imageSender uploads images of disks to Glance, and proves what arrived.
type imageSender struct{ *delivery }

// upload makes an image of a disk, and returns its ID once Glance has shown that it has each byte of it.
func (w imageSender) upload(ctx context.Context, i int) (string, error) {
	if err := w.removeLeftovers(ctx, i); err != nil {
		return "", err
	}
	for try := 1; ; try++ {
		id := newID()
		err := w.send(ctx, id, i)
		if err == nil {
			return id, nil
		}
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
		removed := w.remover.removeImage(late, w.session, id)
		cancel()
		if try == uploadTries || removed != nil || !(passes(err) || errors.Is(err, errDiffers)) {
			return "", errors.Join(err, removed)
		}
		if err := w.cloud.wait(ctx, pause); err != nil {
			return "", err
		}
	}
}

// removeLeftovers deletes the images of a disk that a crash left: of what is in them nothing is known.
func (w imageSender) removeLeftovers(ctx context.Context, i int) error {
	there, err := w.finder.imagesOf(ctx, w.session, w.VM)
	if err != nil {
		return err
	}
	for _, img := range there {
		if properties(img)[diskKey] == fmt.Sprint(w.VM.Disks[i].Key) {
			if err := w.remover.removeImage(ctx, w.session, img.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// send is one try.
func (w imageSender) send(ctx context.Context, id string, i int) error {
	body, err := openBody(ctx, w.Delivery, w.image(i), w.opts.Format, w.progress.Sent)
	if err != nil {
		return err
	}
	defer body.Close()
	if err := w.createImage(ctx, id, i, body.format); err != nil {
		return err
	}
	// So that it lasts for as long as it can: some stores need it again when all is there.
	if err := w.renew(ctx, ""); err != nil {
		return err
	}
	client := w.cloud.without(w.session.image)
	token := client.Token()
	var status error
	err = w.cloud.once(ctx, "upload an image", func(ctx context.Context) error {
		status = imagedata.Upload(ctx, client, id, body).ExtractErr()
		return status
	})
	if broken := body.broken(); broken != nil {
		return broken
	}
	if gophercloud.ResponseCodeIs(status, http.StatusUnauthorized) {
		if err := w.renew(ctx, token); err != nil {
			return err
		}
		return fault.New(fault.Transient, "the token ended while an image was uploaded").WithHint("try again")
	}
	if err != nil {
		return err
	}
	return w.proveImage(ctx, id, body)
}

// renew has the next call use another token than the one that is given.
func (w imageSender) renew(ctx context.Context, token string) error {
	return w.cloud.ask(ctx, "log in again", func(ctx context.Context) error {
		return w.session.image.Reauthenticate(ctx, token)
	})
}

// createImage says what is going to be uploaded. That it is there was our own call, whose answer was lost.
func (w imageSender) createImage(ctx context.Context, id string, i int, format string) error {
	private := images.ImageVisibilityPrivate
	o := images.CreateOpts{
		ID: id, Name: volumeName(w.machine.name, i), Tags: []string{tag(w.VM)}, Visibility: &private,
		ContainerFormat: "bare", DiskFormat: format, Properties: maps.Clone(w.machine.properties),
	}
	if w.opts.Boot == fromImage {
		o.MinDisk = gibibytes(w.VM.Disks[i].Capacity)
		items, _ := inscriptions(w.VM)
		maps.Copy(o.Properties, items)
	}
	maps.Copy(o.Properties, w.metadata(i))
	err := w.cloud.ask(ctx, "make an image", func(ctx context.Context) error {
		_, err := images.Create(ctx, w.session.image, o).Extract()
		return err
	})
	if fault.Is(err, fault.Conflict) {
		return nil
	}
	return err
}

// errDiffers is part of the error for an image that is not what was sent.
var errDiffers = errors.New("the image is not what was sent")

// proveImage waits until Glance has stored an image, and compares its hash with that of what was sent.
func (w imageSender) proveImage(ctx context.Context, id string, body *body) error {
	for look := 0; look < shortWait; look++ {
		img, err := w.readImage(ctx, id)
		if err != nil {
			return err
		}
		switch img.Status {
		case images.ImageStatusActive:
			return w.compare(img, body)
		case images.ImageStatusKilled, images.ImageStatusDeleted, images.ImageStatusPendingDelete, images.ImageStatusDeactivated:
			return fault.New(fault.Transient, "image %s became %s", id, img.Status).WithHint("ask who runs the cloud what its Glance says of it")
		}
		if err := w.cloud.wait(ctx, poll); err != nil {
			return err
		}
	}
	return fault.New(fault.Transient, "image %s does not get active", id).WithHint("ask who runs the cloud what its Glance says of it")
}

func (w imageSender) compare(img *images.Image, body *body) error {
	algorithm, _ := img.Properties["os_hash_algo"].(string)
	theirs, _ := img.Properties["os_hash_value"].(string)
	ours, known := body.sum(algorithm)
	if img.SizeBytes != body.size() || known && theirs != ours {
		return fault.New(fault.Corrupt, "%w: Glance has %d bytes of %d, with %s %.16s…, and it was %.16s…",
			errDiffers, img.SizeBytes, body.size(), fault.Line(algorithm), fault.Line(theirs), ours).
			WithHint("look for what changes data on the way: proxies, memory, the store of Glance")
	}
	if !known {
		w.warn("image-hash", "nothing has to be done; compare a checksum in the guest if you want to be sure",
			"Glance hashes by %q, which decamp does not know: what arrived is known by its length only", fault.Line(algorithm))
	}
	return nil
}

func (w imageSender) readImage(ctx context.Context, id string) (img *images.Image, err error) {
	err = w.cloud.ask(ctx, "look at an image", func(ctx context.Context) error {
		img, err = images.Get(ctx, w.session.image, id).Extract()
		return err
	})
	return img, err
}

// makeImage is what makes the record with boot=image.
func (w *delivery) makeImage(ctx context.Context) error {
	id, err := (imageSender{w}).upload(ctx, 0)
	if err != nil {
		return fmt.Errorf("upload: %w", err)
	}
	w.record = id
	w.progress.Finish(w.VM.Disks[0].Capacity)
	err = w.cloud.ask(ctx, "complete an image", func(ctx context.Context) error {
		return images.Update(ctx, w.session.image, id, images.UpdateOpts{
			images.ReplaceImageName{NewName: w.machine.name},
			images.UpdateImageProperty{Op: images.AddOp, Name: completeKey, Value: w.contents},
		}).Err
	})
	if fault.Is(err, fault.Conflict) { // it has the property: an answer was lost
		return nil
	}
	return err
}
