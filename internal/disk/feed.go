package disk

import (
	"context"
	"errors"
)

// A Feed is a disk that is delivered once, from front to back: the body of an export, or a pipe. It
// cannot seek. Lost data must be sent again from the start.
type Feed interface {
	// Size returns the virtual size in bytes. It never changes.
	Size() int64

	// Next returns the next part that may hold data: the bytes [n*window, (n+1)*window) of the disk for
	// some n, less at its end. Parts come in ascending order; the gaps are zeros. window is a multiple
	// of 1 MiB and the same in every call.
	//
	// io.EOF means that the feed is complete and was verified, which is more than the end of its bytes.
	// One goroutine calls it, and it may wait for bytes; closing their origin ends that wait, ending
	// ctx need not.
	Next(ctx context.Context, window int64) (Part, error)
}

// A Part is a window of a disk that a Feed delivered. Its methods may run while the Feed continues.
type Part interface {
	// Range returns the bytes of the disk that the part is.
	Range() Range

	// Fill fills p, which is as long as the range. It is called once at most.
	Fill(ctx context.Context, p []byte) error

	// Release returns the memory of the part to the feed. It must be called once, as the last method.
	Release()
}

// ErrRecalled is part of an error of Feed.Next that concerns earlier parts as well: they may lack data,
// and must be discarded.
var ErrRecalled = errors.New("earlier parts of the feed may be incomplete")
