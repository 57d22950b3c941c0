package migrate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/decamp/decamp/internal/atomicfile"
	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/convert/overlay"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/qcow2"
	"github.com/decamp/decamp/internal/targets"
)

const (
	// maxOverlay is the limit of what a conversion writes to one disk, in bytes of memory.
	maxOverlay = 256 << 20

	// maxConverted is the limit of chunks that a conversion changes in one image: their numbers are
	// recorded.
	maxConverted = 64 << 10
)

// A changedDisk is an image with the changes of an engine.
type changedDisk struct {
	disk.Source
	chunks []int64 // chunks that may have changed, in order
}

// overlayOf returns the path of an image's overlay.
func overlayOf(img targets.Image) string { return img.Path + ".overlay" }

// overlays stores the changes of a conversion beside the images, until commit writes them into the
// images.
type overlays struct {
	record *Record // conversion of the run
	images *Images // images of the run
}

// openDisks opens the images for a conversion, each with an overlay in memory. It does not write to
// them. closeAll closes the disks.
func (o *overlays) openDisks(ctx context.Context) (disks []convert.Disk, closeAll func() error, err error) {
	closeAll = func() error {
		var errs []error
		for _, d := range disks {
			errs = append(errs, d.Overlay.Close())
		}
		return errors.Join(errs...)
	}
	for i, img := range o.record.Facts.Images {
		src, err := o.images.target.Read(ctx, img)
		if err != nil {
			return nil, nil, errors.Join(fmt.Errorf("image of disk %d: %w", img.Key, err), closeAll())
		}
		disks = append(disks, convert.Disk{Overlay: overlay.New(src, maxOverlay), Report: o.record.Facts.Guest[i]})
	}
	return disks, closeAll, nil
}

// saveChanges stores the changes of a conversion durably. disks are in the order of Facts.Images.
func (o *overlays) saveChanges(ctx context.Context, result convert.Result, disks []changedDisk) (*Conversion, error) {
	c := &Conversion{Result: result}
	for i, img := range o.record.Facts.Images {
		if len(disks[i].chunks) == 0 {
			continue
		}
		kept, err := keepOverlay(ctx, img, disks[i], o.record.Info(img))
		if err != nil {
			return nil, fmt.Errorf("save the changes of disk %d: %w", img.Key, err)
		}
		c.Images = append(c.Images, kept)
	}
	return c, nil
}

// keepOverlay writes the changed chunks of o to the overlay of img, durably.
func keepOverlay(ctx context.Context, img targets.Image, o changedDisk, info manifest.Info) (ConvertedImage, error) {
	c := ConvertedImage{Key: img.Key, Overlay: overlayOf(img), Chunks: o.chunks}
	if len(c.Chunks) > maxConverted {
		return c, fault.New(fault.Unsupported, "%d MiB of the disk would be changed, more than %d", len(c.Chunks), maxConverted)
	}
	hashes, err := hashesOf(ctx, o, info, c.Chunks)
	if err != nil {
		return c, err
	}
	if c.Sum, c.Root, err = rootWith(img, c.Chunks, hashes); err != nil {
		return c, err
	}
	ranges := make([]disk.Range, len(c.Chunks))
	for i, chunk := range c.Chunks {
		ranges[i] = info.Chunk(chunk)
	}
	beneath := qcow2.Backing{Path: filepath.Base(img.Path), Format: string(img.Format)}
	if err := qcow2.WriteAbove(ctx, c.Overlay, beneath, o, ranges); err != nil {
		return c, fault.Room(filepath.Dir(c.Overlay), err)
	}
	return c, errors.Join(atomicfile.Sync(c.Overlay), atomicfile.Sync(filepath.Dir(c.Overlay)))
}

// chunksOf returns the chunks that ranges overlap, in order. ranges must be in order.
func chunksOf(ranges []disk.Range) (chunks []int64) {
	for _, r := range ranges {
		for c := r.Off / manifest.ChunkSize; c*manifest.ChunkSize < r.End(); c++ {
			if n := len(chunks); n == 0 || chunks[n-1] < c {
				chunks = append(chunks, c)
			}
		}
	}
	return chunks
}

// hashesOf returns the hashes of chunks of src. A chunk of zeros has the hash of a hole.
func hashesOf(ctx context.Context, src disk.Source, info manifest.Info, chunks []int64) ([]manifest.Hash, error) {
	b := disk.AlignedMemory(manifest.ChunkSize)
	hashes := make([]manifest.Hash, len(chunks))
	for i, c := range chunks {
		r := info.Chunk(c)
		if err := src.ReadAt(ctx, b[:r.Len], r.Off); err != nil {
			return nil, err
		}
		if disk.AllZero(b[:r.Len]) { // trimmed
			hashes[i] = manifest.ZeroHash(int(r.Len))
			continue
		}
		hashes[i] = manifest.HashOf(b[:r.Len])
	}
	return hashes, nil
}

// sumOf returns one hash of all hashes.
func sumOf(hashes []manifest.Hash) string {
	var all []byte
	for _, h := range hashes {
		all = append(all, h[:]...)
	}
	return manifest.HashOf(all).String()
}

// rootWith returns the sum of the hashes of some chunks, and the root of the image's manifest with
// these hashes.
func rootWith(img targets.Image, chunks []int64, hashes []manifest.Hash) (sum, root string, err error) {
	s, err := manifest.Load(img.Manifest)
	if err != nil {
		return "", "", err
	}
	defer s.Close()
	other := make(map[int64]manifest.Hash, len(chunks))
	for i, c := range chunks {
		other[c] = hashes[i]
	}
	h, err := s.RootWith(other)
	return sumOf(hashes), h.String(), err
}

// isIntact reports whether the overlay exists and its chunks have the recorded hashes.
func (c *ConvertedImage) isIntact(ctx context.Context, info manifest.Info) bool {
	src, err := qcow2.OpenAbove(c.Overlay)
	if err != nil {
		return false
	}
	defer src.Close()
	hashes, err := hashesOf(ctx, src, info, c.Chunks)
	return err == nil && sumOf(hashes) == c.Sum
}

// isUnconverted reports whether an image is the complete copy, and the overlay with its changes is
// intact.
func (o *overlays) isUnconverted(ctx context.Context, img targets.Image) bool {
	c := o.record.Facts.Conversion.forDisk(img.Key)
	return isSealed(img) && (c == nil || c.isIntact(ctx, o.record.Info(img)))
}

// isAmending reports whether commit has begun to change an image, and is done or can continue.
func (o *overlays) isAmending(ctx context.Context, img targets.Image) bool {
	c := o.record.Facts.Conversion.forDisk(img.Key)
	if c == nil {
		return false
	}
	changed := img
	changed.Root = c.Root
	if isSealed(changed) {
		return true
	}
	log, err := manifest.Open(img.Manifest)
	if err != nil {
		return false
	}
	defer log.Close()
	rest := log.Missing()
	for _, chunk := range c.Chunks {
		if !log.Has(chunk) {
			rest--
		}
	}
	return rest == 0 && log.Info() == o.record.Info(img) && c.isIntact(ctx, o.record.Info(img))
}

// amendAll writes the converted chunks into the images. A sealed manifest covers each image before and
// after the change, with different roots.
func (o *overlays) amendAll(ctx context.Context) error {
	for i := range o.record.Facts.Images {
		img := &o.record.Facts.Images[i]
		c := o.record.Facts.Conversion.forDisk(img.Key)
		if c == nil {
			continue
		}
		if err := o.amendImage(ctx, *img, c); err != nil {
			return fmt.Errorf("write the conversion into the image of disk %d: %w", img.Key, err)
		}
		img.Copied, img.Root = img.Root, c.Root
	}
	return o.removeAll() // overlays are not published
}

// amendImage changes one image, unless it is changed already. A missing manifest means that the image
// was published, or Publish reports the missing image.
func (o *overlays) amendImage(ctx context.Context, img targets.Image, c *ConvertedImage) error {
	if !fileExists(img.Manifest) { // the image was published already, or Publish reports that it is missing
		return nil
	}
	changed := img
	changed.Root = c.Root
	if isSealed(changed) {
		return nil
	}
	return o.amendFrom(ctx, img, c)
}

// amendFrom writes the chunks of the overlay into an image, and compares the new root with the recorded
// one.
func (o *overlays) amendFrom(ctx context.Context, img targets.Image, c *ConvertedImage) (err error) {
	src, err := qcow2.OpenAbove(c.Overlay)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	root, err := o.images.Job(img).Amend(ctx, image.Amendment{Source: src, Chunks: c.Chunks})
	if err != nil {
		return err
	}
	if root.String() != c.Root {
		return fault.New(fault.Internal, "the image has the root %v, expected %s", root, c.Root)
	}
	o.record.Report(journal.Event{Kind: journal.Noted, Disk: img.Key, Message: fmt.Sprintf("disk %d: %d MiB of the image are replaced by the converted data", img.Key, len(c.Chunks))})
	return nil
}

// dropChangedChunks makes copy read the chunks from the source again that were changed in images, or
// may have been. An image without a valid manifest is copied as a whole anyway.
func (o *overlays) dropChangedChunks() error {
	for _, img := range o.record.Facts.Images {
		c := o.record.Facts.Conversion.forDisk(img.Key)
		if c == nil || isSealed(img) {
			continue
		}
		log, err := manifest.Open(img.Manifest)
		if fault.Is(err, fault.Corrupt) || fault.Is(err, fault.NotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if err := errors.Join(log.DropAll(c.Chunks), log.Close()); err != nil {
			return err
		}
	}
	return o.removeAll()
}

// dropUnrecorded handles overlays of a conversion whose record is lost: the image may contain its
// changes, so the chunks that the manifest and the overlay have in common are copied again.
func (o *overlays) dropUnrecorded(ctx context.Context) error {
	if o.record.Facts.Conversion != nil {
		return nil
	}
	for _, img := range o.record.Facts.Images {
		if !fileExists(overlayOf(img)) {
			continue
		}
		if err := o.dropConvertedChunks(ctx, img); err != nil {
			return fmt.Errorf("leftovers of an earlier run of disk %d: %w", img.Key, err)
		}
	}
	return o.removeAll()
}

// dropConvertedChunks removes the chunks from the manifest of img that are the same in its overlay. If
// the overlay is unreadable, it removes all chunks.
func (o *overlays) dropConvertedChunks(ctx context.Context, img targets.Image) (err error) {
	log, err := manifest.Open(img.Manifest)
	if fault.Is(err, fault.Corrupt) || fault.Is(err, fault.NotFound) {
		return nil // all of it is copied again
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	src, err := qcow2.OpenAbove(overlayOf(img))
	if err != nil || src.Size() != log.Info().Size {
		return log.Drop(0, log.Chunks())
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	var changed []int64
	for c := range log.Chunks() {
		same, err := isListed(ctx, log, src, c)
		if err != nil {
			return err
		}
		if same {
			changed = append(changed, c)
		}
	}
	return log.DropAll(changed)
}

// isListed reports whether an overlay contains a chunk, and the manifest has the hash of that content.
func isListed(ctx context.Context, log *manifest.Log, src disk.Source, c int64) (bool, error) {
	r := log.Info().Chunk(c)
	extents, err := src.Extents(ctx, r)
	if err != nil || !slices.ContainsFunc(extents, func(e disk.Extent) bool { return e.Kind == disk.Data }) {
		return false, err
	}
	hashes, err := hashesOf(ctx, src, log.Info(), []int64{c})
	if err != nil {
		return false, err
	}
	want, ok, err := log.Hash(c)
	return ok && want == hashes[0], err
}

// removeAll removes the overlays of an earlier conversion.
func (o *overlays) removeAll() error {
	var errs []error
	for _, img := range o.record.Facts.Images {
		errs = append(errs, removeOverlay(overlayOf(img)), removeOverlay(workOf(img)))
	}
	return errors.Join(errs...)
}

// removeOverlay removes a file durably. A missing file is not an error.
func removeOverlay(path string) error {
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, atomicfile.Sync(filepath.Dir(path)))
}

// newOverlays returns the overlays of a run.
func newOverlays(r *Run) *overlays { return &overlays{record: r.Record, images: r.Images} }

// fileExists reports whether path exists. An unreadable path counts as missing.
func fileExists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// workOf returns the path of the overlay that virt-v2v writes to. Its relevant changes are copied to
// the overlay that is kept.
func workOf(img targets.Image) string { return img.Path + ".v2v" }
