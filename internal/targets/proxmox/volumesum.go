package proxmox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/manifest"
)

// A sum is the SHA-256 of a MiB of a volume, and zeros where that is all zeros: the node has no BLAKE3,
// by which manifests go.
type sum [sha256.Size]byte

var zeros sum

// sumOfBytes is what the node answers for p.
func sumOfBytes(p []byte) sum {
	for _, b := range p {
		if b != 0 {
			return sha256.Sum256(p)
		}
	}
	return zeros
}

// read asks the node for the sums of r, one for each MiB from its beginning. What it cannot read by itself
// (RBD) comes over the wire.
func (b *both) read(ctx context.Context, r disk.Range) ([]sum, error) {
	if b.sums.how == "remote" {
		return b.readOver(ctx, r)
	}
	stop := context.AfterFunc(ctx, func() { _ = b.sums.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := fmt.Fprintf(b.sums, "%d %d\n", r.Off, r.Len); err != nil {
		return nil, b.unsummed(ctx, err)
	}
	all := make([]sum, 0, (r.Len+manifest.ChunkSize-1)/manifest.ChunkSize)
	for range cap(all) {
		text, err := b.sums.ReadSlice('\n')
		if err != nil {
			return nil, b.unsummed(ctx, err)
		}
		each, err := parseSum(string(text))
		if err != nil {
			return nil, err
		}
		all = append(all, each)
	}
	return all, nil
}

func (b *both) unsummed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return noAnswer(err)
}

// parseSum reads a line of the node's.
func parseSum(text string) (s sum, err error) {
	text = strings.TrimSuffix(text, "\n")
	if text == "z" {
		return s, nil
	}
	if words, ok := strings.CutPrefix(text, "e "); ok {
		return s, fault.New(fault.Corrupt, "the disk of the node fails: %s", fault.Line(words)).
			WithHint("look for errors of its storage, on the node: dmesg -T | tail, smartctl -H; then run the same command again")
	}
	if n, err := hex.Decode(s[:], []byte(text[:min(len(text), 2*len(s))])); err != nil || n != len(s) || len(text) != 2*len(s) {
		return zeros, fault.New(fault.Corrupt, "the node answers %q for a sum", fault.Line(text)).WithHint("see what its shell prints at login: ssh NODE true")
	}
	return s, nil
}

func (b *both) readOver(ctx context.Context, r disk.Range) ([]sum, error) {
	var all []sum
	p := make([]byte, manifest.ChunkSize)
	for off := r.Off; off < r.End(); off += manifest.ChunkSize {
		part := p[:min(manifest.ChunkSize, r.End()-off)]
		if err := b.ReadAt(ctx, part, off); err != nil {
			return nil, err
		}
		all = append(all, sumOfBytes(part))
	}
	return all, nil
}
