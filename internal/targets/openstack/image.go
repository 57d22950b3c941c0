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

// uploadTries is the maximum number of uploads of an image that are aborted or arrive damaged.
const uploadTries = 3

// newID returns a random UUID (version 4). Glance accepts the ID of an image from the client, so that
// the image can be
// found after a lost answer.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it cannot fail
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// imageSender uploads images to Glance and verifies them.
type imageSender struct{ *delivery }

// uploadVerified uploads the image of the i-th disk and returns its ID after Glance's hash of it is
// equal.
//
// After an aborted or damaged upload it removes the image and tries again with a new ID, up to
// uploadTries times.
func (w imageSender) uploadVerified(ctx context.Context, i int) (string, error) {
	if err := w.removeLeftovers(ctx, i); err != nil {
		return "", err
	}
	for try := 1; ; try++ {
		id := newID()
		err := w.uploadOnce(ctx, id, i)
		if err == nil {
			return id, nil
		}
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
		removed := w.remover.removeImage(late, w.session, id)
		cancel()
		if try == uploadTries || removed != nil || !(isTemporary(err) || errors.Is(err, errDiffers)) {
			return "", errors.Join(err, removed)
		}
		if err := w.cloud.wait(ctx, pause); err != nil {
			return "", err
		}
	}
}

// removeLeftovers deletes images of a disk from a crashed delivery, whose content is unknown.
func (w imageSender) removeLeftovers(ctx context.Context, i int) error {
	there, err := w.finder.imagesOf(ctx, w.session, w.VM)
	if err != nil {
		return err
	}
	for _, img := range there {
		if textProperties(img)[diskKey] == fmt.Sprint(w.VM.Disks[i].Key) {
			if err := w.remover.removeImage(ctx, w.session, img.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// uploadOnce is one attempt of an upload: it creates the image object, sends the data and verifies
// Glance's hash.
// If the token expires during the upload, the error is fault.Transient.
func (w imageSender) uploadOnce(ctx context.Context, id string, i int) error {
	body, err := openBody(ctx, w.Delivery, w.imageOf(i), w.opts.Format, w.progress.Sent)
	if err != nil {
		return err
	}
	defer body.Close()
	if err := w.createImage(ctx, id, i, body.format); err != nil {
		return err
	}
	// A new token expires as late as possible: some stores use it again at the end of the upload.
	if err := w.renewToken(ctx, ""); err != nil {
		return err
	}
	client := w.cloud.withoutReauth(w.session.image)
	token := client.Token()
	var status error
	err = w.cloud.callOnce(ctx, "upload an image", func(ctx context.Context) error {
		status = imagedata.Upload(ctx, client, id, body).ExtractErr()
		return status
	})
	if broken := body.readError(); broken != nil {
		return broken
	}
	if gophercloud.ResponseCodeIs(status, http.StatusUnauthorized) {
		if err := w.renewToken(ctx, token); err != nil {
			return err
		}
		return fault.New(fault.Transient, "the token expired during an upload").WithHint("try again")
	}
	if err != nil {
		return err
	}
	return w.verifyImage(ctx, id, body)
}

// renewToken replaces the session's token if it still is the given one. An empty token stands for any.
func (w imageSender) renewToken(ctx context.Context, token string) error {
	return w.cloud.retryCall(ctx, "log in again", func(ctx context.Context) error {
		return w.session.image.Reauthenticate(ctx, token)
	})
}

// createImage creates the image object before the upload. If it exists, an earlier call has created it
// and its answer was
// lost.
func (w imageSender) createImage(ctx context.Context, id string, i int, format string) error {
	private := images.ImageVisibilityPrivate
	o := images.CreateOpts{
		ID: id, Name: volumeName(w.machine.name, i), Tags: []string{imageTag(w.VM)}, Visibility: &private,
		ContainerFormat: "bare", DiskFormat: format, Properties: maps.Clone(w.machine.properties),
	}
	if w.opts.Boot == fromImage {
		o.MinDisk = gibibytes(w.VM.Disks[i].Capacity)
		items, _ := tagMetadata(w.VM)
		maps.Copy(o.Properties, items)
	}
	maps.Copy(o.Properties, w.partMetadata(i))
	err := w.cloud.retryCall(ctx, "create an image", func(ctx context.Context) error {
		_, err := images.Create(ctx, w.session.image, o).Extract()
		return err
	})
	if fault.Is(err, fault.Conflict) {
		return nil
	}
	return err
}

// errDiffers marks the error for an image that differs from the sent data.
var errDiffers = errors.New("the image differs from the sent data")

// verifyImage waits until Glance has stored an image, and compares its hash with the sent data. If
// Glance deletes the
// image, or does not store it within an hour, the error is fault.Transient.
func (w imageSender) verifyImage(ctx context.Context, id string, body *body) error {
	for look := 0; look < shortWait; look++ {
		img, err := w.readImage(ctx, id)
		if err != nil {
			return err
		}
		switch img.Status {
		case images.ImageStatusActive:
			return w.compareHash(img, body)
		case images.ImageStatusKilled, images.ImageStatusDeleted, images.ImageStatusPendingDelete, images.ImageStatusDeactivated:
			return fault.New(fault.Transient, "image %s has the status %s after its upload", id, img.Status).WithHint("the cloud's administrator can find the cause in Glance's log")
		}
		if err := w.cloud.wait(ctx, poll); err != nil {
			return err
		}
	}
	return fault.New(fault.Transient, "image %s does not become active", id).WithHint("the cloud's administrator can find the cause in Glance's log")
}

// compareHash compares length and hash. A difference is fault.Corrupt and errDiffers. If Glance uses an
// algorithm that
// decamp does not compute, it adds a warning and compares only the length.
func (w imageSender) compareHash(img *images.Image, body *body) error {
	algorithm, _ := img.Properties["os_hash_algo"].(string)
	theirs, _ := img.Properties["os_hash_value"].(string)
	ours, known := body.sumBy(algorithm)
	if img.SizeBytes != body.size() || known && theirs != ours {
		return fault.New(fault.Corrupt, "%w: Glance has %d bytes of %d, with %s %.16s…, and the sent data has %.16s…",
			errDiffers, img.SizeBytes, body.size(), fault.Line(algorithm), fault.Line(theirs), ours).
			WithHint("check proxies, memory and Glance's store for data corruption")
	}
	if !known {
		w.warn("image-hash", "no action is required; to verify the content, compare a checksum in the guest",
			"Glance uses the hash algorithm %q, which decamp does not support: only the length of the image is verified", fault.Line(algorithm))
	}
	return nil
}

// readImage reads the image object.
func (w imageSender) readImage(ctx context.Context, id string) (img *images.Image, err error) {
	err = w.cloud.retryCall(ctx, "read an image", func(ctx context.Context) error {
		img, err = images.Get(ctx, w.session.image, id).Extract()
		return err
	})
	return img, err
}

// makeImage uploads the only disk as the record, for boot=image. It sets the final name and the mark of
// completion in
// one request.
func (w *delivery) makeImage(ctx context.Context) error {
	id, err := (imageSender{w}).uploadVerified(ctx, 0)
	if err != nil {
		return fmt.Errorf("upload: %w", err)
	}
	w.record = id
	w.progress.Finish(w.VM.Disks[0].Capacity)
	err = w.cloud.retryCall(ctx, "complete an image", func(ctx context.Context) error {
		return images.Update(ctx, w.session.image, id, images.UpdateOpts{
			images.ReplaceImageName{NewName: w.machine.name},
			images.UpdateImageProperty{Op: images.AddOp, Name: completeKey, Value: w.contents},
		}).Err
	})
	if fault.Is(err, fault.Conflict) { // the property exists: the answer to an earlier call was lost
		return nil
	}
	return err
}
