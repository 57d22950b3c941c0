// Package budget bounds the work and the memory that reading a guest takes.
//
// A guest is hostile input. Every reader of guest content takes a Reader, or a Budget, and
// charges it before it reads, loops over a count from the disk, decompresses or keeps memory.
// A charge that exceeds its limit returns an *Error, and so does every later charge.
package budget

import (
	"context"
	"fmt"
	"io"
	"reflect"
	"time"
)

// Limits are the limits of one examination of all disks of a VM.
type Limits struct {
	Read     int64         // bytes read from the disks
	Steps    int64         // operations of about 100 ns each
	Memory   int64         // bytes of memory in use at the same time
	Unpacked int64         // bytes decompressed
	Time     time.Duration // elapsed time; 0 means unlimited
}

// Examination returns the limits for reading the disks of a VM.
func Examination() Limits {
	return Limits{Read: 1 << 30, Steps: 4 << 20, Memory: 72 << 20, Unpacked: 4 << 30, Time: 5 * time.Minute}
}

// Conversion returns the limits for changing a guest. They are higher, because a conversion reads
// modules and the initramfs of all kernels completely.
func Conversion() Limits {
	return Limits{Read: 8 << 30, Steps: 32 << 20, Memory: 1 << 30, Unpacked: 8 << 30}
}

const (
	// ReadSteps is the charge for one read of a disk, in steps.
	ReadSteps = 8

	sector     = 512 // minimum charge for a read, in bytes
	checkEvery = 256 // steps between two checks of the context
)

// An Error reports that a limit was reached, so that content was not examined.
type Error struct{ Cause string }

// Error returns the cause with a prefix.
func (e *Error) Error() string { return "not examined: " + e.Cause }

// Exceeded returns an Error for a limit that a single reader has reached. The Budget remains usable.
func Exceeded(format string, args ...any) *Error { return &Error{fmt.Sprintf(format, args...)} }

// Used contains the charges so far.
type Used struct {
	Read     int64 // bytes
	Steps    int64 // operations
	Memory   int64 // bytes in use now
	Peak     int64 // highest value of Memory
	Total    int64 // bytes charged by Hold, including released ones
	Unpacked int64 // bytes
}

// A Budget counts the cost of one examination. It is not safe for concurrent use.
type Budget struct {
	ctx       context.Context // context of all reads; it ends with the time limit
	limits    Limits          // limits that charges are compared with
	used      Used            // charges so far
	err       error           // first limit that was reached, or the cause of the end of ctx; permanent
	nextCheck int64           // value of used.Steps at which ctx is checked again
}

// New returns a Budget whose time limit starts now. The caller must call the returned function to
// release its timer.
func New(ctx context.Context, limits Limits) (*Budget, context.CancelFunc) {
	cancel := context.CancelFunc(func() {})
	if limits.Time > 0 {
		ctx, cancel = context.WithTimeoutCause(ctx, limits.Time, Exceeded("it takes longer than %v", limits.Time))
	}
	return &Budget{ctx: ctx, limits: limits}, cancel
}

// Context returns the context of all reads, which ends with the time limit.
func (b *Budget) Context() context.Context { return b.ctx }

// Used returns the charges so far.
func (b *Budget) Used() Used { return b.used }

// Err returns nil while the Budget can be charged. Later it returns an *Error, or the cause of the
// end of the caller's context.
func (b *Budget) Err() error {
	if b.err == nil && b.ctx.Err() != nil {
		b.err = context.Cause(b.ctx)
	}
	return b.err
}

// Step charges n operations. A negative n charges nothing.
func (b *Budget) Step(n int64) error {
	if b.err != nil {
		return b.err
	}
	if b.used.Steps += max(n, 0); b.used.Steps >= b.nextCheck {
		b.nextCheck = b.used.Steps + checkEvery
		if err := b.Err(); err != nil {
			return err
		}
	}
	if b.used.Steps > b.limits.Steps {
		b.err = Exceeded("it requires more than %d operations", b.limits.Steps)
	}
	return b.err
}

// Read charges one read of n bytes, at least a sector.
func (b *Budget) Read(n int64) error {
	if err := b.Step(ReadSteps); err != nil {
		return err
	}
	if b.used.Read += max(n, sector); b.used.Read > b.limits.Read {
		b.err = Exceeded("more than %d MiB would be read", b.limits.Read>>20)
	}
	return b.err
}

// Hold charges n bytes of memory before they are allocated. The caller must pass freed memory to
// Release, unless it is in use until the examination ends.
func (b *Budget) Hold(n int64) error {
	if b.err != nil {
		return b.err
	}
	if n < 0 || n > b.limits.Memory-b.used.Memory {
		b.err = Exceeded("it requires more than %d MiB of memory", b.limits.Memory>>20)
		return b.err
	}
	b.used.Memory, b.used.Total = b.used.Memory+n, b.used.Total+n
	b.used.Peak = max(b.used.Peak, b.used.Memory)
	return b.Step(n >> 12) // fresh memory is cleared
}

// Release returns n bytes that were charged by Hold.
func (b *Budget) Release(n int64) { b.used.Memory -= n }

// Grow returns s with room for n more elements. If it needs a new array, Grow charges that before it
// allocates it, and releases the old one, which the caller must not use anymore. A new array has at least
// twice the size of the old one. s must be nil or a result of Grow.
func Grow[T any](b *Budget, s []T, n int) ([]T, error) {
	if n <= cap(s)-len(s) {
		return s, nil
	}
	most := max(len(s)+n, 2*cap(s))
	if err := b.Hold(arraySize[T](most)); err != nil {
		return s, err
	}
	grown := append(make([]T, 0, most), s...)
	ReleaseSlice(b, s)
	return grown, nil
}

// ReleaseSlice returns the memory of s, which must be nil or a result of Grow.
func ReleaseSlice[T any](b *Budget, s []T) { b.Release(arraySize[T](cap(s))) }

// arraySize returns the bytes of an array of n elements, without the memory that they refer to.
func arraySize[T any](n int) int64 { return int64(n) * int64(reflect.TypeFor[T]().Size()) }

// Unpack charges n decompressed bytes. Content that is not compressed can still be read after
// this limit.
func (b *Budget) Unpack(n int64) error {
	if err := b.Step(1 + n>>12); err != nil {
		return err
	}
	if b.used.Unpacked += n; b.used.Unpacked > b.limits.Unpacked {
		return Exceeded("more than %d MiB would be decompressed", b.limits.Unpacked>>20)
	}
	return nil
}

// A Reader is guest content. Each of its reads is charged to its Budget.
type Reader interface {
	io.ReaderAt
	Budget() *Budget // Budget returns the budget that reads are charged to.
}

// Reader returns a Reader that charges the reads of r to b.
func (b *Budget) Reader(r io.ReaderAt) Reader { return chargedReader{r, b} }

// A chargedReader charges each read before it reads.
type chargedReader struct {
	r io.ReaderAt // content of the guest
	b *Budget     // budget to charge
}

// Budget implements Reader.
func (c chargedReader) Budget() *Budget { return c.b }

// ReadAt implements io.ReaderAt. It does not read if the budget is exhausted.
func (c chargedReader) ReadAt(p []byte, off int64) (int, error) {
	if err := c.b.Read(int64(len(p))); err != nil {
		return 0, err
	}
	return c.r.ReadAt(p, off)
}

// A ReadWriter is guest content that can be changed. Only reads are charged.
type ReadWriter interface {
	Reader
	io.WriterAt
}

// ReadWriter returns a ReadWriter that charges the reads of d to b.
func (b *Budget) ReadWriter(d interface {
	io.ReaderAt
	io.WriterAt
}) ReadWriter {
	return chargedWriter{chargedReader{d, b}, d}
}

// A chargedWriter is a chargedReader with uncharged writes.
type chargedWriter struct {
	chargedReader
	io.WriterAt
}
