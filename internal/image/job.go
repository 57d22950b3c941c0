package image

import (
	"context"
	"errors"
	"fmt"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/manifest"
)

// A Opener opens one image: a File, or an image at a target.
type Opener interface {
	// Open creates the image, or opens an unfinished one after a crash. created reports a new image,
	// which reads as zeros everywhere.
	Open(ctx context.Context) (t disk.Target, created bool, err error)

	// Read opens the finished image for verification.
	Read(ctx context.Context) (disk.Source, error)

	// ReadUnfinished opens the image that Open returned and that is not finished.
	ReadUnfinished(ctx context.Context) (disk.Source, error)
}

// A Job fills one image, with as many attempts as necessary.
type Job struct {
	Opener   Opener        // location of the image
	Path     string        // path of the image, for errors
	Manifest string        // path of the manifest
	Info     manifest.Info // disk that the image and the manifest belong to

	// Source opens the disk again to compare a sample with chunks of an earlier attempt. nil means no
	// comparison.
	Source func(ctx context.Context) (disk.Source, error)

	// Grow durably enlarges an image to Info.Size bytes. The image is of a disk that was smaller once, but
	// had at least so many bytes. The added part reads as zeros. If there is no image, or it has that
	// size, Grow does nothing. nil means that the disk does not grow while it is copied.
	Grow func(ctx context.Context, least int64) error

	// Anew is called with the reason if an image is copied from its start again. It may be nil.
	Anew func(why string)

	// GiveUp is the remedy for starting again: "remove x and begin again".
	GiveUp string

	// Seed determines the random chunks of samples.
	Seed uint64
}

// A Copying is an image that is open for writing, with its manifest.
type Copying struct {
	Target disk.Target   // image; closed after the attempt
	Log    *manifest.Log // manifest of the image
}

// From describes the start of the copy for the user.
func (c *Copying) From() string {
	if had := c.Log.Chunks() - c.Log.Missing(); had > 0 {
		return fmt.Sprintf("with %d of %d chunks durable", had, c.Log.Chunks())
	}
	return "from its beginning"
}

// close closes the image and the manifest, also after an error.
func (c *Copying) close() error { return errors.Join(c.Target.Close(), c.Log.Close()) }

// finishAndSeal finishes the image and then seals the manifest. Both may have been done before. It
// returns the root.
func (c *Copying) finishAndSeal(ctx context.Context) (root manifest.Hash, err error) {
	if err := c.Target.Finish(ctx); err != nil {
		return root, fmt.Errorf("finish image: %w", err)
	}
	return c.Log.Seal(ctx)
}

// Fill makes one attempt. It calls fill unless the image was completed, even if the manifest lacks
// nothing: a host that pushes the disk may not have sent everything, as a half-received chunk is listed
// as well. Only fill can determine that nothing is missing, by returning nil.
//
// Fill returns the root of the sealed manifest, and after a failed attempt the number of missing
// chunks, -1 if that is unknown.
func (j Job) Fill(ctx context.Context, fill func(context.Context, *Copying) error) (root manifest.Hash, missing int64, err error) {
	if root, ok := j.finishedRoot(ctx); ok {
		return root, 0, nil
	}
	c, err := j.openCopying(ctx)
	if err != nil {
		return root, -1, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if err = fill(ctx, c); err == nil {
		root, err = c.finishAndSeal(ctx)
	}
	return root, c.Log.Missing(), err
}

// Advance makes one attempt to update the image to a state of the disk that is not the last. The image
// stays unfinished and the manifest open. It returns the number of missing chunks, -1 if that is
// unknown.
func (j Job) Advance(ctx context.Context, fill func(context.Context, *Copying) error) (missing int64, err error) {
	c, err := j.openCopying(ctx)
	if err != nil {
		return -1, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	err = fill(ctx, c)
	return c.Log.Missing(), err
}

// Complete finishes an image that Advance has filled. It fails if the manifest lacks a chunk.
func (j Job) Complete(ctx context.Context) (root manifest.Hash, err error) {
	root, _, err = j.Fill(ctx, func(_ context.Context, c *Copying) error {
		if n := c.Log.Missing(); n > 0 {
			return fault.New(fault.Internal, "%d chunks are missing", n)
		}
		return nil
	})
	return root, err
}

// finishedRoot returns the root if an earlier attempt completed the image.
func (j Job) finishedRoot(ctx context.Context) (root manifest.Hash, ok bool) {
	s, err := manifest.Load(j.Manifest)
	if err != nil {
		return root, false
	}
	defer s.Close()
	src, err := j.Opener.Read(ctx)
	if err != nil {
		return root, false
	}
	return s.Root(), src.Close() == nil && s.Info() == j.Info
}

// openCopying opens or creates the image and its manifest, and makes them consistent: see the package
// comment.
func (j Job) openCopying(ctx context.Context) (_ *Copying, err error) {
	if err := j.growToDisk(ctx); err != nil {
		return nil, fmt.Errorf("image of a disk that grew: %w", err)
	}
	t, created, err := j.Opener.Open(ctx)
	if err != nil {
		return nil, fmt.Errorf("open image: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	if t.Size() != j.Info.Size {
		return nil, fault.New(fault.Conflict, "image %s has %d bytes, the disk %d", j.Path, t.Size(), j.Info.Size).
			WithHint("%s", j.GiveUp)
	}
	log, err := j.openManifest(created)
	if err != nil {
		return nil, err
	}
	if err := j.checkResumed(ctx, log); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return &Copying{Target: t, Log: log}, nil
}

// openManifest opens the manifest. It creates a new one if the image is new, or if the manifest is
// missing, damaged or of another disk.
func (j Job) openManifest(created bool) (*manifest.Log, error) {
	if created {
		return j.newManifest()
	}
	log, err := manifest.Open(j.Manifest)
	switch {
	case fault.Is(err, fault.NotFound):
		return j.newManifest()
	case fault.Is(err, fault.Corrupt):
		j.reportRestart(err.Error())
		return j.newManifest()
	case err != nil:
		return nil, err
	}
	if log.Info() != j.Info {
		j.reportRestart(fmt.Sprintf("its manifest is of %v", log.Info()))
		return j.renewManifest(log)
	}
	return log, nil
}

// renewManifest closes old and replaces it by an empty manifest.
func (j Job) renewManifest(old *manifest.Log) (*manifest.Log, error) {
	if err := old.Close(); err != nil {
		return nil, err
	}
	return j.newManifest()
}

// newManifest replaces the manifest by an empty one.
func (j Job) newManifest() (*manifest.Log, error) {
	if err := manifest.Remove(j.Manifest); err != nil {
		return nil, err
	}
	return manifest.Create(j.Manifest, j.Info)
}

// reportRestart calls Job.Anew unless it is nil.
func (j Job) reportRestart(why string) {
	if j.Anew != nil {
		j.Anew(why)
	}
}
