package image

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/manifest"
)

// How much of an image is read before its manifest is trusted: enough to notice an image
// that was replaced, cut or lost its last writes, little enough to take no time. Verify
// reads all of it later anyway.
const (
	sampleRecent = 32 // number of chunks from the newest records of the manifest, which a crash of the storage affects first
	sampleRandom = 32 // number of random chunks
	sampleSource = 16 // number of random chunks that are read from the source again

	// number of chunks of a sample that are read at the same time. On a busy source, a read waits for the
	// 16 MiB before it on its connection: half a second at 200 MB/s.
	sampleAtOnce = 8
)

// checkResumed compares a sample of the manifest's chunks with the image: after a difference the whole
// image is copied again. Then it compares a sample with the source, if there is a second way to read
// it: a difference is a Conflict.
func (j Job) checkResumed(ctx context.Context, log *manifest.Log) error {
	if log.Missing() == log.Chunks() {
		return nil
	}
	bad, err := j.checkImage(ctx, log)
	if err != nil {
		return fmt.Errorf("check image before resuming: %w", err)
	}
	if bad >= 0 {
		j.reportRestart(fmt.Sprintf("chunk %d differs from its manifest", bad))
		return log.Drop(0, log.Chunks())
	}
	if j.Source == nil || log.Complete() {
		return nil
	}
	if err := j.checkSource(ctx, log); err != nil {
		return fmt.Errorf("check source before resuming: %w", err)
	}
	return nil
}

// checkImage returns the first chunk of the sample that differs, or -1.
func (j Job) checkImage(ctx context.Context, log *manifest.Log) (bad int64, err error) {
	src, err := j.Opener.ReadUnfinished(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	sample := append(log.Recent(sampleRecent), j.randomChunks(log, sampleRandom)...)
	return firstDifferent(ctx, log, src, sample)
}

// checkSource reads some chunks of the source again. A difference is fault.Conflict: the disk was
// written since the start of the copy, or one of the two readings was wrong. The first chunks contain
// the fields in which file systems record that they were mounted.
func (j Job) checkSource(ctx context.Context, log *manifest.Log) (err error) {
	src, err := j.Source(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	bad, err := firstDifferent(ctx, log, src, append([]int64{0, 1, 2, 3}, j.randomChunks(log, sampleSource)...))
	if err == nil && bad >= 0 {
		return fault.New(fault.Conflict, "disk %s: chunk %d at the source differs from the copied data", j.Info.Disk, bad).
			WithHint("the disk was written since the start of the copy, or one of the two readings was wrong; %s", j.GiveUp)
	}
	return err
}

// randomChunks returns up to n durable chunks in disk order. Seed determines the choice.
func (j Job) randomChunks(log *manifest.Log, n int) []int64 {
	rnd := rand.New(rand.NewPCG(j.Seed, uint64(log.Chunks())))
	var chunks []int64
	for range 4 * n {
		if c := rnd.Int64N(log.Chunks()); log.Has(c) && len(chunks) < n {
			chunks = append(chunks, c)
		}
	}
	slices.Sort(chunks)
	return slices.Compact(chunks)
}

// firstDifferent returns the first of the chunks for which src differs from log, or -1. It ignores
// chunks that are not durable, and reads each chunk once.
func firstDifferent(ctx context.Context, log *manifest.Log, src disk.Source, chunks []int64) (int64, error) {
	chunks = slices.Compact(slices.Sorted(slices.Values(chunks)))
	differs := make([]bool, len(chunks))
	var taken atomic.Int64 // number of chunks that were compared or are being compared
	g, ctx := errgroup.WithContext(ctx)
	for range min(sampleAtOnce, len(chunks)) {
		g.Go(func() (err error) {
			buf := make([]byte, manifest.ChunkSize)
			for i := taken.Add(1) - 1; err == nil && i < int64(len(chunks)); i = taken.Add(1) - 1 {
				differs[i], err = differsAt(ctx, log, src, chunks[i], buf)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	if i := slices.Index(differs, true); i >= 0 {
		return chunks[i], nil
	}
	return -1, nil
}

// differsAt reports whether a chunk of src differs from log. It returns false for a chunk that is not
// durable. buf has room for a chunk.
func differsAt(ctx context.Context, log *manifest.Log, src disk.Source, chunk int64, buf []byte) (bool, error) {
	want, safe, err := log.Hash(chunk)
	if err != nil || !safe {
		return false, err
	}
	at := log.Info().Chunk(chunk)
	buf = buf[:at.Len]
	if err := src.ReadAt(ctx, buf, at.Off); err != nil {
		return false, err
	}
	return manifest.HashOf(buf) != want, nil
}
