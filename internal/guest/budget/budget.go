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
	"time"
)

// Limits bound one examination of all disks of a VM.
type Limits struct {
	Read     int64         // bytes read from the disks
	Steps    int64         // operations, of some 100 ns each
	Memory   int64         // bytes that readers keep at the same time
	Unpacked int64         // bytes decompressed
	Time     time.Duration // limit by the clock; 0 means unlimited
}

// Examination returns the limits for looking into the disks of a VM.
func Examination() Limits {
	return Limits{Read: 1 << 30, Steps: 4 << 20, Memory: 72 << 20, Unpacked: 4 << 30, Time: 5 * time.Minute}
}

// Conversion returns the limits for changing a guest. A conversion reads more than an
// examination: modules, and the initramfs of all kernels as a whole.
func Conversion() Limits {
	return Limits{Read: 8 << 30, Steps: 32 << 20, Memory: 1 << 30, Unpacked: 8 << 30}
}

const (
	// ReadSteps is what one read of a disk counts for, in steps.
	ReadSteps = 8

	sector     = 512 // a read of less counts as much
	checkEvery = 256 // steps between two looks at the context
)

// An Error reports that a limit was reached, so that content was not examined.
type Error struct{ Cause string }

func (e *Error) Error() string { return "not examined: " + e.Cause }

// Exceeded returns an Error for a limit of one reader, which leaves the Budget usable.
func Exceeded(format string, args ...any) *Error { return &Error{fmt.Sprintf(format, args...)} }

// Used has the charges so far.
type Used struct {
	Read     int64 // bytes
	Steps    int64
	Memory   int64 // bytes held now
	Peak     int64 // highest value of Memory
	Total    int64 // bytes held in all, released ones included
	Unpacked int64 // bytes
}

// A Budget counts the cost of one examination. It is for one goroutine at a time.
type Budget struct {
	ctx    context.Context
	limits Limits
	used   Used
	err    error // first limit that was reached, or the end of ctx
	check  int64 // value of used.Steps at which ctx is looked at again
}

// New returns a Budget. The returned function releases its timer.
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

// Err returns nil as long as the Budget can be charged: later an *Error, or the reason why the
// caller's context ended.
func (b *Budget) Err() error {
	if b.err == nil && b.ctx.Err() != nil {
		b.err = context.Cause(b.ctx)
	}
	return b.err
}

// Step charges n operations.
func (b *Budget) Step(n int64) error {
	if b.err != nil {
		return b.err
	}
	if b.used.Steps += max(n, 0); b.used.Steps >= b.check {
		b.check = b.used.Steps + checkEvery
		if err := b.Err(); err != nil {
			return err
		}
	}
	if b.used.Steps > b.limits.Steps {
		b.err = Exceeded("it takes more than %d operations", b.limits.Steps)
	}
	return b.err
}

// Read charges one read of n bytes.
func (b *Budget) Read(n int64) error {
	if err := b.Step(ReadSteps); err != nil {
		return err
	}
	if b.used.Read += max(n, sector); b.used.Read > b.limits.Read {
		b.err = Exceeded("more than %d MiB would be read", b.limits.Read>>20)
	}
	return b.err
}

// Hold charges n bytes that a reader keeps. Freed memory must be passed to Release, unless it is kept
// until the examination ends.
func (b *Budget) Hold(n int64) error {
	if b.err != nil {
		return b.err
	}
	if n < 0 || n > b.limits.Memory-b.used.Memory {
		b.err = Exceeded("it takes more than %d MiB of memory", b.limits.Memory>>20)
		return b.err
	}
	b.used.Memory, b.used.Total = b.used.Memory+n, b.used.Total+n
	b.used.Peak = max(b.used.Peak, b.used.Memory)
	return b.Step(n >> 12) // fresh memory is cleared
}

// Release takes back n bytes of Hold.
func (b *Budget) Release(n int64) { b.used.Memory -= n }

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
	Budget() *Budget
}

// Reader charges the reads of r.
func (b *Budget) Reader(r io.ReaderAt) Reader { return charged{r, b} }

type charged struct {
	r io.ReaderAt
	b *Budget
}

func (c charged) Budget() *Budget { return c.b }

func (c charged) ReadAt(p []byte, off int64) (int, error) {
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

// ReadWriter charges the reads of d.
func (b *Budget) ReadWriter(d interface {
	io.ReaderAt
	io.WriterAt
}) ReadWriter {
	return chargedWriter{charged{d, b}, d}
}

type chargedWriter struct {
	charged
	io.WriterAt
}
