package migrate

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/plan"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/transport"
)

// RereadConnections is how many connections to a source are enough for the second reading: two with
// 55 MB/s each, as hosts give, read what is read of a disk of 100 GiB in 3 s.
const RereadConnections = 2

// MostMetadata bounds the chunks with metadata that are read again: one chunk in 512, but at least 64
// and at most 1024. With the other 66 chunks, 266 MiB of a disk of 100 GiB are read again.
func MostMetadata(chunks int64) int { return int(min(max(64, chunks/512), 1024)) }

// A chunkRecorder records which chunks of a disk are read, in the order of the first reads.
type chunkRecorder struct {
	disk.Source
	most int // chunks that are recorded; later ones are not

	mu     sync.Mutex
	seen   map[int64]bool
	chunks []int64
}

func newChunkRecorder(src disk.Source) *chunkRecorder {
	info := manifest.Info{Size: src.Size()}
	return &chunkRecorder{Source: src, most: MostMetadata(info.Chunks()), seen: map[int64]bool{}}
}

// ReadAt is part of disk.Source.
func (c *chunkRecorder) ReadAt(ctx context.Context, p []byte, off int64) error {
	c.record(off, int64(len(p)))
	return c.Source.ReadAt(ctx, p, off)
}

func (c *chunkRecorder) record(off, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for chunk := off / manifest.ChunkSize; chunk*manifest.ChunkSize < off+n && len(c.chunks) < c.most; chunk++ {
		if !c.seen[chunk] {
			c.seen[chunk] = true
			c.chunks = append(c.chunks, chunk)
		}
	}
}

// reread reads a sample of the disk's chunks from the source a second time, over another connection,
// and compares them with the hashes of the first reading.
func (v *verifier) reread(ctx context.Context, img targets.Image) (manifest.Reread, error) {
	none := manifest.Reread{Of: v.record.Info(img).Chunks()}
	d, ok := v.record.Facts.VM.Disk(img.Key)
	switch {
	case !ok:
		return none, fault.New(fault.Internal, "no disk %d", img.Key)
	case v.permit.Spot.None:
		none.NotRead = "turned off by the user"
		return none, nil
	case v.rig.Reread == nil:
		none.NotRead = "this source can be read only once"
		return none, nil
	}
	sample := manifest.Sample{First: v.permit.Spot.First, Random: cmp.Or(v.permit.Spot.Random, RandomChunks), Metadata: v.record.Facts.Metadata[img.Key]}
	if _, err := rand.Read(sample.Seed[:]); err != nil {
		return none, err
	}
	began, report := false, none
	err := v.retry.Do(ctx, img.Key, func() (_ bool, err error) {
		report, err = v.rereadOnce(ctx, img, transport.Disk{VM: v.record.Facts.VM, Disk: d}, sample, &began)
		return false, err
	})
	if !began && cannotOpen(err) {
		none.NotRead = err.Error()
		v.record.Warn(inventory.Warning{
			Code: "not-read-again", Text: fmt.Sprintf("no part of disk %d was read from the source a second time: %v", img.Key, err),
			Remedy: "use --source-hash if the host can hash the disk; otherwise compare files in the guest",
		})
		return none, nil
	}
	if err != nil {
		return none, fmt.Errorf("read a sample of the source again: %w", err)
	}
	v.record.Tell(plan.Event{Kind: plan.SourceReread, Disk: img.Key, Reread: &report, Message: fmt.Sprintf("disk %d: source re-read (%s): %v", img.Key, report.By, report)})
	return report, nil
}

// RereadTime is how long the second reading of all disks takes at most, at a rate in bytes per second.
func RereadTime(r *Run, rate int64) time.Duration {
	if r.Permit.Spot.None || r.Rig.Reread == nil {
		return 0
	}
	var n int64
	for _, img := range r.Record.Facts.Images {
		chunks := int64(2 + cmp.Or(r.Permit.Spot.Random, RandomChunks) + MostMetadata(r.Record.Info(img).Chunks()))
		n += min(img.Size, r.Permit.Spot.First+chunks*manifest.ChunkSize)
	}
	return TimeFor(n, rate)
}

// cannotOpen reports whether a disk that was copied by another transport cannot be opened for the second
// reading, or may not be by this account.
func cannotOpen(err error) bool {
	return fault.Is(err, fault.Unsupported) || fault.Is(err, fault.Denied) && !errors.Is(err, fault.ErrLogin)
}

// rereadOnce journals the choice of chunks before it reads the first of them: a run that fails has it
// on record, too.
func (v *verifier) rereadOnce(ctx context.Context, img targets.Image, d transport.Disk, sample manifest.Sample, began *bool) (report manifest.Reread, err error) {
	source, by, err := v.rig.Reread(ctx, d)
	if err != nil {
		if changed := v.vm.unchanged(ctx); fault.Is(changed, fault.Conflict) { // a disk that was resized does not open as it was
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
		v.record.Tell(plan.Event{Kind: plan.SourceReread, Disk: img.Key, Reread: &choice, Message: fmt.Sprintf("disk %d: %d of %d chunks are read from the source again (%s)", img.Key, len(chunks), choice.Of, by)})
	}
	report, err = sample.Compare(ctx, source, m, v.rig.Pace)
	report.By = by
	if fault.Is(err, fault.Corrupt) {
		return report, &differsError{err}
	}
	return report, err
}

// A differsError says that the source has other bytes than were copied.
type differsError struct{ error }

func (e *differsError) Unwrap() error { return e.error }

// distrust makes the next attempt copy the whole disk again if found is a differsError. The sample is
// too small to tell which other chunks are wrong, and another sample may miss the one that was found.
func (v *verifier) distrust(img targets.Image, found error) (err error) {
	if !errors.As(found, new(*differsError)) {
		return found
	}
	log, err := manifest.Open(img.Manifest)
	if err != nil {
		return errors.Join(found, err)
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	if err := errors.Join(log.Drop(0, log.Chunks()), image.ForgetProven(img.Manifest)); err != nil {
		return errors.Join(found, err)
	}
	v.images.anew(img, "the source differs from what was copied")
	return fault.New(fault.Corrupt, "%w", found).
		WithHint("nothing was published. Make sure that the VM at the source did not run since the copy began; then run the same command again, with --source-hash: it copies the whole disk again. If it happens again, use another --transport, and check the host's memory and storage")
}

// Checks returns what verify compared of each image. It is empty if an older decamp verified them.
func (f Facts) Checks() []targets.Check {
	var checks []targets.Check
	for _, v := range f.Verified {
		if v.Reread == nil {
			continue // verified by a decamp that did not record it
		}
		c := targets.Check{Key: v.Key, Reread: *v.Reread}
		if v.Source != nil {
			c.SourceHash = v.Source.Algorithm
		}
		checks = append(checks, c)
	}
	return checks
}
