package manifest

import "context"

// A Ledger is the part of a manifest that a writer of an image needs. Log implements it. Images that
// are written together have another implementation.
type Ledger interface {
	// Info identifies the disk.
	Info() Info
	Chunks() int64 // Chunks returns the number of chunks of the disk.

	// Has reports whether a chunk is durable.
	Has(chunk int64) bool
	Missing() int64 // Missing returns the number of chunks that are not durable.
	Complete() bool // Complete reports whether all chunks are durable.

	// Hash returns the hash of a durable chunk, and false if the chunk has none.
	Hash(chunk int64) (Hash, bool, error)

	// Append durably lists runs.
	Append(ctx context.Context, runs []Run) error
	Drop(first, n int64) error    // Drop durably removes n chunks from first.
	DropAll(chunks []int64) error // DropAll durably removes chunks, given in order.
}

var _ Ledger = (*Log)(nil)
