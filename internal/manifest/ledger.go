package manifest

import "context"

// A Ledger is the part of a manifest that a writer of an image needs: the durable chunks. Log
// implements it; several images that are written together have another implementation.
type Ledger interface {
	// Info identifies the disk; Chunks returns the number of its chunks.
	Info() Info
	Chunks() int64

	// Has reports whether a chunk is safe, Missing how many are not.
	Has(chunk int64) bool
	Missing() int64
	Complete() bool

	// Hash returns the hash of a durable chunk, and false if the chunk has none.
	Hash(chunk int64) (Hash, bool, error)

	// Append lists runs as safe, Drop and DropAll take chunks back, durably: see Log.
	Append(ctx context.Context, runs []Run) error
	Drop(first, n int64) error
	DropAll(chunks []int64) error
}

var _ Ledger = (*Log)(nil)
