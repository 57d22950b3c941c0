package platform

import (
	"context"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/signature"
	"github.com/decamp/decamp/internal/fault"
)

// CheckRaw returns fault.Unsupported if the disk begins like a file of an image format. A receiver that
// detects formats would convert the image in it instead of storing its bytes. The guest can cause
// this. receiver and remedy appear in the message. CheckRaw ignores read errors.
func CheckRaw(ctx context.Context, src disk.Source, receiver, remedy string) error {
	first := disk.Range{Len: min(signature.HeadSize, src.Size())}
	head := disk.AlignedMemory(signature.HeadSize)[:first.Len]
	extents, err := src.Extents(ctx, first)
	if hole := err == nil && len(extents) == 1 && extents[0].Kind == disk.Zero; hole {
		return nil
	}
	if src.ReadAt(ctx, head, 0) != nil {
		return nil // the caller reads the disk next, and reports the error
	}
	if format := signature.Identify(head, nil); format != "" {
		return fault.New(fault.Unsupported, "the guest's disk begins with the signature of the format %s: %s would not read it as raw", format, receiver).WithHint("%s", remedy)
	}
	return nil
}
