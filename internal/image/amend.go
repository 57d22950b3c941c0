package image

import (
	"context"
	"errors"
	"fmt"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/manifest"
)

// An Amendment replaces the content of a few chunks of an image.
type Amendment struct {
	Source disk.Source // source of the whole disk; only the chunks are read
	Chunks []int64     // numbers of the chunks, in order, each once
}

// Amend writes the chunks of a into the finished image, and their hashes into its manifest. It returns
// the new root. The manifest must list all other chunks, else Amend fails with fault.Corrupt.
//
// The chunks are removed from the manifest before their first byte changes, and added after the sync. A
// crash in between leaves an unsealed manifest that lacks only these chunks: Amend with the same
// Amendment continues. At the end the chunks are read back from the medium, and a bad one is removed
// from the manifest again.
func (j Job) Amend(ctx context.Context, a Amendment) (root manifest.Hash, err error) {
	if err := j.dropChunks(a.Chunks); err != nil {
		return root, err
	}
	j.Source = nil // the verified chunks differ from the source now
	if root, err = j.writeAmendment(ctx, a); err != nil {
		return root, err
	}
	return root, j.readBack(ctx, a.Chunks)
}

// dropChunks removes chunks from the manifest, so that the image counts as incomplete.
func (j Job) dropChunks(chunks []int64) (err error) {
	log, err := manifest.Open(j.Manifest)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	return log.DropAll(chunks)
}

// writeAmendment writes the chunks, syncs the image, completes the manifest and seals it.
func (j Job) writeAmendment(ctx context.Context, a Amendment) (root manifest.Hash, err error) {
	c, err := j.openCopying(ctx)
	if err != nil {
		return root, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if c.Log.Missing() != int64(len(a.Chunks)) {
		return root, fault.New(fault.Corrupt, "image %s lacks %d chunks, expected %d: the manifest does not list all of it", j.Path, c.Log.Missing(), len(a.Chunks)).
			WithHint("run the same command again: it copies the missing chunks")
	}
	runs, err := a.writeChunks(ctx, j.Info, c.Target)
	if err != nil {
		return root, fmt.Errorf("write to the image: %w", err)
	}
	if err := c.Target.Sync(ctx); err != nil {
		return root, fmt.Errorf("sync image: %w", err)
	}
	if err := c.Log.Append(ctx, runs); err != nil {
		return root, err
	}
	return c.finishAndSeal(ctx)
}

// writeChunks writes the chunks to t, and returns their runs for the manifest.
func (a Amendment) writeChunks(ctx context.Context, info manifest.Info, t disk.Target) ([]manifest.Run, error) {
	b := disk.AlignedMemory(manifest.ChunkSize)
	var runs []manifest.Run
	for _, chunk := range a.Chunks {
		r := info.Chunk(chunk)
		p := b[:r.Len]
		if err := a.Source.ReadAt(ctx, p, r.Off); err != nil {
			return nil, err
		}
		if err := writeSparse(ctx, t, p, r.Off); err != nil {
			return nil, err
		}
		runs = append(runs, manifest.Run{First: chunk, Hashes: []manifest.Hash{manifest.HashOf(p)}})
	}
	return runs, nil
}

// zeroGrain is the smallest run of zeros that is not written to an image, in bytes: a qcow2 cluster.
const zeroGrain = 64 << 10

// writeSparse writes p at off, a multiple of zeroGrain. Runs of zeros are not written, because a
// trimmed file system of a guest has many of them.
func writeSparse(ctx context.Context, t disk.Target, p []byte, off int64) error {
	for len(p) > 0 {
		zeros := disk.AllZero(p[:min(zeroGrain, len(p))])
		n := min(zeroGrain, len(p))
		for n < len(p) && disk.AllZero(p[n:min(n+zeroGrain, len(p))]) == zeros {
			n = min(n+zeroGrain, len(p))
		}
		var err error
		if zeros {
			err = t.Zero(ctx, disk.Range{Off: off, Len: int64(n)})
		} else {
			err = t.WriteAt(ctx, p[:n], off)
		}
		if err != nil {
			return err
		}
		p, off = p[n:], off+int64(n)
	}
	return nil
}

// readBack compares chunks of the finished image with its manifest. It reads them from the medium.
func (j Job) readBack(ctx context.Context, chunks []int64) (err error) {
	s, err := manifest.Load(j.Manifest)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	src, err := j.Opener.Read(ctx)
	if err != nil {
		return fmt.Errorf("open image to read it back: %w", err)
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	if _, err := checkTables(ctx, src, j.Info.Size); err != nil {
		return j.reopenDamaged(err)
	}
	fresh := map[int64]bool{}
	for _, c := range chunks {
		fresh[c] = true
	}
	report, err := manifest.Verify(ctx, src, s, manifest.VerifyOptions{MaxBad: maxBad, Verified: func(c int64) bool { return !fresh[c] }})
	if report.BadChunks > 0 {
		return j.dropBadChunks(report, err)
	}
	return err
}
