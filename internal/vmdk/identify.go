package vmdk

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	"github.com/decamp/decamp/internal/disk"
)

// headSize is the number of bytes that identify a file, in bytes: the size of the longest header.
const headSize = 2048

// identifyFile determines the format of a file by its signature, and returns its first bytes (up to
// headSize). The format is empty for a descriptor or a flat file.
func identifyFile(ctx context.Context, name string, src disk.Source) (Format, []byte, error) {
	head := make([]byte, min(headSize, src.Size()))
	if err := src.ReadAt(ctx, head, 0); err != nil {
		return "", nil, fmt.Errorf("read %s: %w", name, err)
	}
	return formatOf(head), head, nil
}

// formatOf returns the format whose signature is at the beginning of head, or "" for a descriptor or a
// flat file.
func formatOf(head []byte) Format {
	switch {
	case bytes.HasPrefix(head, []byte(sparseMagic)):
		return FormatSparse
	case bytes.HasPrefix(head, []byte(cowdMagic)):
		return FormatCOWD
	case len(head) >= 8 && binary.LittleEndian.Uint64(head) == seMagic:
		return FormatSESparse
	}
	return ""
}

// readText reads a descriptor file. A file of more than MaxDescriptor bytes is fault.Corrupt.
func readText(ctx context.Context, name string, src disk.Source) ([]byte, error) {
	if src.Size() > MaxDescriptor {
		return nil, corruptFile(name, "it has %d bytes and no signature: it is neither a descriptor nor a sparse file", src.Size()).
			WithHint("name the small x.vmdk, not x-flat.vmdk or another data file")
	}
	text := make([]byte, src.Size())
	if err := src.ReadAt(ctx, text, 0); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return text, nil
}

// embeddedText reads the descriptor that is embedded in a hosted sparse file. head is the beginning of
// the file. It returns nil if the header does not name a descriptor.
func embeddedText(ctx context.Context, f *file, head []byte) ([]byte, error) {
	h, err := parseSparseHeader(head)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.name, err)
	}
	if h.descriptor == 0 && h.descriptorSize == 0 {
		return nil, nil
	}
	if h.descriptor == 0 || h.descriptorSize == 0 {
		return nil, lostText(f.name, "its header names a descriptor of %d sectors at sector %d", h.descriptorSize, h.descriptor)
	}
	size := h.descriptorSize * disk.SectorSize
	if h.descriptorSize > MaxDescriptor/disk.SectorSize {
		return nil, corruptFile(f.name, "its descriptor has %d bytes, more than the %d one can have", size, MaxDescriptor)
	}
	text := make([]byte, size)
	if err := f.readWhole(ctx, text, h.descriptor*disk.SectorSize); err != nil {
		return nil, err
	}
	if text[0] == 0 {
		return nil, lostText(f.name, "its header names a descriptor at sector %d, which has no text", h.descriptor)
	}
	return text, nil
}

// lostText returns the error for a sparse file whose descriptor is missing. Without the descriptor, the
// parent and the other pieces of the disk are unknown.
func lostText(name, format string, args ...any) error {
	return corruptFile(name, format, args...).
		WithHint("if it is a piece of a disk, name the disk's descriptor x.vmdk; otherwise %s", damagedHint)
}
