package platform

import (
	"context"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/signature"
	"github.com/decamp/decamp/internal/fault"
)

// CheckRaw refuses to send a disk as raw bytes to a receiver that guesses formats, if its guest
// has made it begin like an image of another format: the receiver would convert that image
// instead. remedy is what to do.
func CheckRaw(ctx context.Context, src disk.Source, receiver, remedy string) error {
	first := disk.Range{Len: min(signature.HeadSize, src.Size())}
	head := disk.AlignedMemory(signature.HeadSize)[:first.Len]
	extents, err := src.Extents(ctx, first)
	if hole := err == nil && len(extents) == 1 && extents[0].Kind == disk.Zero; hole {
		return nil
	}
	if src.ReadAt(ctx, head, 0) != nil {
		return nil // the caller reads it again, and reports that
	}
	if format := signature.Identify(head, nil); format != "" {
		return fault.New(fault.Unsupported, "the guest's disk begins like a file of the format %s: %s would take it for one", format, receiver).WithHint("%s", remedy)
	}
	return nil
}
