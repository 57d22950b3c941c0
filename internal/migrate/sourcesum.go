package migrate

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/transport"
)

// SourceSum is the hash of a disk as the host itself read it.
type SourceSum struct {
	Algorithm string        `json:"algorithm"` // sha256 or md5, whichever the host has
	Hex       string        `json:"hex"`       // lower case
	By        string        `json:"by"`        // the file that was hashed, on the host
	Elapsed   time.Duration `json:"elapsed"`   // nanoseconds
}

// readBoth reads an image back and compares it with its manifest. Meanwhile it compares a sample of the
// source with the manifest, and has the host hash the whole disk if that was asked for.
func (r *verifier) readBoth(ctx context.Context, img targets.Image) (v Verified, err error) {
	var sum *SourceSum
	var reread manifest.Reread
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { v, err = r.readBack(ctx, img); return err })
	g.Go(func() (err error) {
		if reread, err = r.reread(ctx, img); err != nil { // a disk that is read over NFC cannot be opened on its host
			return err
		}
		sum, err = r.sourceSum(ctx, img)
		return err
	})
	if err := g.Wait(); err != nil {
		return v, err
	}
	v.Reread = &reread
	if sum == nil {
		return v, nil
	}
	v.Source = sum
	return v, sum.compare(img.Key, v)
}

// sourceSum has the host hash the disk of an image; nil if that was not asked for.
func (v *verifier) sourceSum(ctx context.Context, img targets.Image) (*SourceSum, error) {
	if !v.permit.SourceHash {
		return nil, nil
	}
	d, ok := v.record.Facts.VM.Disk(img.Key)
	if !ok || v.rig.Sum == nil {
		return nil, fault.New(fault.Internal, "disk %d cannot be hashed at its source", img.Key)
	}
	var sum SourceSum
	err := v.retry.Do(ctx, img.Key, func() (_ bool, err error) {
		sum, err = v.rig.Sum(ctx, transport.Disk{VM: v.record.Facts.VM, Disk: d})
		return false, err
	})
	if err != nil {
		return nil, fmt.Errorf("hash disk %d at its source: %w", img.Key, err)
	}
	return &sum, nil
}

// compare holds the host's hash against the image's.
func (s *SourceSum) compare(key int32, v Verified) error {
	ours := map[string]string{"sha256": v.SHA256, "md5": v.MD5}[s.Algorithm]
	switch {
	case ours == "":
		return fault.New(fault.Internal, "disk %d: the host hashes by %q, which is not known here", key, s.Algorithm)
	case ours != s.Hex:
		return &differsError{fault.New(fault.Corrupt, "disk %d: the image is not the source: %s of %s is %s on the host, the image's is %s", key, s.Algorithm, s.By, s.Hex, ours)}
	}
	return nil
}
