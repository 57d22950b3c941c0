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

// sum is the SHA-256 of 1 MiB of a volume, or zeros if the bytes are all zeros. Manifests use BLAKE3,
// which the node
// does not have.
type sum [sha256.Size]byte

// zeros is the sum of a chunk of zeros.
var zeros sum

// sumOfBytes returns the sum that the node computes for p.
func sumOfBytes(p []byte) sum {
	for _, b := range p {
		if b != 0 {
			return sha256.Sum256(p)
		}
	}
	return zeros
}

// readSums has the node read r and returns a sum for each MiB from its start. If the node has no block
// device for the volume
// (RBD), the data is transferred instead.
func (b *nodeVolume) readSums(ctx context.Context, r disk.Range) ([]sum, error) {
	if b.sums.how == "remote" {
		return b.readOver(ctx, r)
	}
	stop := context.AfterFunc(ctx, func() { _ = b.sums.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := fmt.Fprintf(b.sums, "%d %d\n", r.Off, r.Len); err != nil {
		return nil, b.sumError(ctx, err)
	}
	all := make([]sum, 0, (r.Len+manifest.ChunkSize-1)/manifest.ChunkSize)
	for range cap(all) {
		text, err := b.sums.ReadSlice('\n')
		if err != nil {
			return nil, b.sumError(ctx, err)
		}
		each, err := parseSum(string(text))
		if err != nil {
			return nil, err
		}
		all = append(all, each)
	}
	return all, nil
}

// sumError returns ctx.Err() if ctx has ended, else the error for a broken session.
func (b *nodeVolume) sumError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return noAnswer(err)
}

// parseSum parses a line of node.pl: a sum in hex, "z" for zeros, or "e" with an error.
func parseSum(text string) (s sum, err error) {
	text = strings.TrimSuffix(text, "\n")
	if text == "z" {
		return s, nil
	}
	if words, ok := strings.CutPrefix(text, "e "); ok {
		return s, fault.New(fault.Corrupt, "the node cannot read the volume: %s", fault.Line(words)).
			WithHint("check its storage for errors, on the node: dmesg -T | tail, smartctl -H; then run the same command again")
	}
	if n, err := hex.Decode(s[:], []byte(text[:min(len(text), 2*len(s))])); err != nil || n != len(s) || len(text) != 2*len(s) {
		return zeros, fault.New(fault.Corrupt, "the node sent %q instead of a sum", fault.Line(text)).WithHint("remove the output of its shell at login: ssh NODE true")
	}
	return s, nil
}

// readOver reads r over NBD and computes the sums locally.
func (b *nodeVolume) readOver(ctx context.Context, r disk.Range) ([]sum, error) {
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
