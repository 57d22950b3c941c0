package manifest

import "context"

// A Ledger is what those who fill an image need of its manifest: which chunks are safe. A
// Log is one; several images that are filled at once have one of their own.
type Ledger interface {
	// Info says which disk it is of, Chunks how many chunks that has.
	Info() Info
	Chunks() int64

	// Has reports whether a chunk is safe, Missing how many are not.
	Has(chunk int64) bool
	Missing() int64
	Complete() bool

	// Hash returns the hash of a safe chunk, and false if there is none to tell.
	Hash(chunk int64) (Hash, bool, error)

	// Append lists runs as safe, Drop and DropAll take chunks back, durably: see Log.
	Append(ctx context.Context, runs []Run) error
	Drop(first, n int64) error
	DropAll(chunks []int64) error
}

var _ Ledger = (*Log)(nil)
