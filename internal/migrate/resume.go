package migrate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/transport"
)

// How much of an image is read before its manifest is trusted: enough to notice an image
// that was replaced, cut or lost its last writes, little enough to take no time. Verify
// reads all of it later anyway.
const (
	sampleRecent = 32 // chunks from the newest records
	sampleRandom = 32 // chunks from anywhere
	sampleSource = 16 // chunks read from the source again
)

// checkResumed compares a sample of the chunks that the manifest lists with the image:
// a difference makes the whole image untrusted, and all of it is copied again. Then it
// compares a sample with the source, where there is a second way to read it: a
// difference means that the VM ran in between, and is a Conflict.
func (r *Run) checkResumed(ctx context.Context, c *copying) error {
	if c.log.Missing() == c.log.Chunks() {
		return nil
	}
	bad, err := r.checkImage(ctx, c)
	if err != nil {
		return fmt.Errorf("check image before resuming: %w", err)
	}
	if bad >= 0 {
		r.anew(c.img, fmt.Sprintf("chunk %d is not what its manifest says", bad))
		return c.log.Drop(0, c.log.Chunks())
	}
	if r.Rig.Open == nil || c.log.Complete() {
		return nil
	}
	return r.checkSource(ctx, c)
}

// checkImage returns the first chunk of the sample that differs, or -1.
func (r *Run) checkImage(ctx context.Context, c *copying) (bad int64, err error) {
	src, err := r.Rig.Target.ReadUnfinished(ctx, c.img)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	sample := append(c.log.Recent(sampleRecent), r.pick(c.log, sampleRandom)...)
	return differing(ctx, c.log, src, sample)
}

// checkSource reads some chunks again. The first ones are where file systems note that
// they were mounted.
func (r *Run) checkSource(ctx context.Context, c *copying) (err error) {
	d, _ := r.Facts.VM.Disk(c.img.Key)
	src, err := r.Rig.Open(ctx, transport.Disk{VM: r.Facts.VM, Disk: d})
	if err != nil {
		return fmt.Errorf("check source before resuming: %w", err)
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	bad, err := differing(ctx, c.log, src, append([]int64{0, 1, 2, 3}, r.pick(c.log, sampleSource)...))
	if err != nil {
		return fmt.Errorf("check source before resuming: %w", err)
	}
	if bad >= 0 {
		return fault.New(fault.Conflict, "disk %d was written to since this run began: chunk %d at the source differs from what was copied", c.img.Key, bad).
			WithHint("the VM must have run in between; give this run up with --discard and begin again")
	}
	return nil
}

// pick returns up to n safe chunks from anywhere, by Options.Seed, in disk order.
func (r *Run) pick(log *manifest.Log, n int) []int64 {
	rnd := rand.New(rand.NewPCG(r.opts.Seed, uint64(log.Chunks())))
	var chunks []int64
	for range 4 * n {
		if c := rnd.Int64N(log.Chunks()); log.Has(c) && len(chunks) < n {
			chunks = append(chunks, c)
		}
	}
	slices.Sort(chunks)
	return slices.Compact(chunks)
}

// differing returns the first of the chunks that src does not hold as log says, or -1.
// Chunks that are not safe are passed over.
func differing(ctx context.Context, log *manifest.Log, src disk.Source, chunks []int64) (int64, error) {
	buf := make([]byte, manifest.ChunkSize)
	for _, c := range chunks {
		want, safe, err := log.Hash(c)
		if err != nil {
			return 0, err
		}
		if !safe {
			continue
		}
		at := log.Info().Chunk(c)
		if err := src.ReadAt(ctx, buf[:at.Len], at.Off); err != nil {
			return 0, err
		}
		if manifest.HashOf(buf[:at.Len]) != want {
			return c, nil
		}
	}
	return -1, nil
}
