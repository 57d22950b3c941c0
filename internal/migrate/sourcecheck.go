package migrate

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/transport"
)

// A sourceCheck compares the copied data with the source, which is read a second time or hashed by its
// host.
type sourceCheck struct {
	record *Record      // hashes of the first reading, and events
	vm     *SourceVM    // VM at its source
	images *Images      // images of the run
	retry  *Retrier     // repeats failed reads
	rig    *Environment // second connection to the source
	permit Permit       // size of the sample
}

// rereadSample reads a sample of the disk's chunks from the source a second time, over another
// connection, and compares them with the hashes of the first reading. If no second reading is possible,
// it returns the reason in NotRead and no error.
func (c *sourceCheck) rereadSample(ctx context.Context, img targets.Image) (manifest.Reread, error) {
	none := manifest.Reread{Of: c.record.Info(img).Chunks()}
	d, ok := c.record.Facts.VM.Disk(img.Key)
	switch {
	case !ok:
		return none, fault.New(fault.Internal, "no disk %d", img.Key)
	case c.permit.Spot.None:
		none.NotRead = "turned off by the user"
		return none, nil
	case c.rig.Reread == nil:
		none.NotRead = "this source can be read only once"
		return none, nil
	}
	sample := manifest.Sample{First: c.permit.Spot.First, Random: cmp.Or(c.permit.Spot.Random, RandomChunks), Metadata: c.record.Facts.Metadata[img.Key]}
	if _, err := rand.Read(sample.Seed[:]); err != nil {
		return none, err
	}
	began, report := false, none
	err := c.retry.Do(ctx, img.Key, func() (_ bool, err error) {
		report, err = c.rereadOnce(ctx, img, transport.Disk{VM: c.record.Facts.VM, Disk: d}, sample, &began)
		return false, err
	})
	if !began && cannotOpen(err) {
		none.NotRead = err.Error()
		c.record.Warn(inventory.Warning{
			Code: "not-read-again", Text: fmt.Sprintf("no part of disk %d was read from the source a second time: %v", img.Key, err),
			Remedy: "use --source-hash if the host can hash the disk; otherwise compare files in the guest",
		})
		return none, nil
	}
	if err != nil {
		return none, fmt.Errorf("read a sample of the source again: %w", err)
	}
	c.record.Report(journal.Event{Kind: journal.SourceReread, Disk: img.Key, Reread: &report, Message: fmt.Sprintf("disk %d: source re-read (%s): %v", img.Key, report.By, report)})
	return report, nil
}

// RereadTime returns the maximum time of the second reading of all disks, at a rate in bytes per
// second; 0 if it is off.
func RereadTime(r *Run, rate int64) time.Duration {
	if r.Permit.Spot.None || r.Env.Reread == nil {
		return 0
	}
	var n int64
	for _, img := range r.Record.Facts.Images {
		chunks := int64(2 + cmp.Or(r.Permit.Spot.Random, RandomChunks) + MostMetadata(r.Record.Info(img).Chunks()))
		n += min(img.Size, r.Permit.Spot.First+chunks*manifest.ChunkSize)
	}
	return TimeFor(n, rate)
}

// cannotOpen reports whether a disk that another transport has copied cannot be opened for the second
// reading, by its format or by the permissions of the account.
func cannotOpen(err error) bool {
	return fault.Is(err, fault.Unsupported) || fault.Is(err, fault.Denied) && !errors.Is(err, fault.ErrLogin)
}

// rereadOnce makes one attempt at the second reading. It journals the chosen chunks before it reads the
// first of them, so that a failed run has them on record. began is set then, and a later attempt does
// not journal them again.
func (c *sourceCheck) rereadOnce(ctx context.Context, img targets.Image, d transport.Disk, sample manifest.Sample, began *bool) (report manifest.Reread, err error) {
	source, by, err := c.rig.Reread(ctx, d)
	if err != nil {
		if changed := c.vm.checkUnchanged(ctx); fault.Is(changed, fault.Conflict) { // a disk that was resized does not open as it was
			return report, changed
		}
		return report, err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	m, err := manifest.Load(img.Manifest)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	if !*began {
		*began = true
		chunks, choice := sample.Of(m.Info())
		choice.By = by
		c.record.Report(journal.Event{Kind: journal.SourceReread, Disk: img.Key, Reread: &choice, Message: fmt.Sprintf("disk %d: %d of %d chunks are read from the source again (%s)", img.Key, len(chunks), choice.Of, by)})
	}
	report, err = sample.Compare(ctx, source, m, c.rig.Pace)
	report.By = by
	if fault.Is(err, fault.Corrupt) {
		return report, &differsError{err}
	}
	return report, err
}

// A differsError reports that the source differs from the copy.
type differsError struct{ error }

// Unwrap returns the fault.
func (e *differsError) Unwrap() error { return e.error }

// invalidateIfDiffers returns found. If it is a differsError, the next attempt copies the whole disk
// again: the sample is too small to show which other chunks are wrong, and another sample may miss the
// one that was found.
func (c *sourceCheck) invalidateIfDiffers(img targets.Image, found error) (err error) {
	if !errors.As(found, new(*differsError)) {
		return found
	}
	log, err := manifest.Open(img.Manifest)
	if err != nil {
		return errors.Join(found, err)
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	if err := errors.Join(log.Drop(0, log.Chunks()), image.RemoveVerifiedRecord(img.Manifest)); err != nil {
		return errors.Join(found, err)
	}
	c.images.reportRestart(img, "the source differs from the copy")
	return fault.New(fault.Corrupt, "%w", found).
		WithHint("nothing was published. Check that the VM at the source did not run since the copy began; then run the same command again with --source-hash, which copies the whole disk again. If the disks differ again, use another --transport, and check the host's memory and storage")
}

// hashOnHost returns the hash of an image's disk that the host computes; nil if it was not requested.
func (c *sourceCheck) hashOnHost(ctx context.Context, img targets.Image) (*SourceSum, error) {
	if !c.permit.SourceHash {
		return nil, nil
	}
	d, ok := c.record.Facts.VM.Disk(img.Key)
	if !ok || c.rig.Sum == nil {
		return nil, fault.New(fault.Internal, "disk %d cannot be hashed at its source", img.Key)
	}
	var sum SourceSum
	err := c.retry.Do(ctx, img.Key, func() (_ bool, err error) {
		sum, err = c.rig.Sum(ctx, transport.Disk{VM: c.record.Facts.VM, Disk: d})
		return false, err
	})
	if err != nil {
		return nil, fmt.Errorf("hash disk %d at its source: %w", img.Key, err)
	}
	return &sum, nil
}

// compareWith returns a differsError if the host's hash differs from that of the image of disk key.
func (s *SourceSum) compareWith(key int32, v Verified) error {
	ours := map[string]string{"sha256": v.SHA256, "md5": v.MD5}[s.Algorithm]
	switch {
	case ours == "":
		return fault.New(fault.Internal, "disk %d: the host uses the hash algorithm %q, which decamp does not support", key, s.Algorithm)
	case ours != s.Hex:
		return &differsError{fault.New(fault.Corrupt, "disk %d: the image differs from the source: %s of %s is %s on the host, and %s in the image", key, s.Algorithm, s.By, s.Hex, ours)}
	}
	return nil
}
