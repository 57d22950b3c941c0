// Package budgettest helps to test readers of guest content.
package budgettest

import (
	"io"
	"runtime"
	"testing"

	"github.com/decamp/decamp/internal/guest/budget"
)

// New returns a Budget with the limits of an examination.
func New(t testing.TB) *budget.Budget {
	t.Helper()
	b, cancel := budget.New(t.Context(), budget.Examination())
	t.Cleanup(cancel)
	return b
}

// Reader returns r with a separate Budget.
func Reader(t testing.TB, r io.ReaderAt) budget.Reader {
	t.Helper()
	return New(t).Reader(r)
}

// ReadWriter returns d with a separate Budget.
func ReadWriter(t testing.TB, d interface {
	io.ReaderAt
	io.WriterAt
}) budget.ReadWriter {
	t.Helper()
	return New(t).ReadWriter(d)
}

// Charged begins to count allocations. The returned function fails the test if the allocations exceed
// what the charges to b since then can explain, or if b was charged beyond its limits.
func Charged(t testing.TB, b *budget.Budget) (check func()) {
	t.Helper()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	return func() {
		t.Helper()
		var after runtime.MemStats
		runtime.ReadMemStats(&after)
		u, l := b.Used(), budget.Examination()
		const free = 2 << 20 // buffers, whatever the input is
		if got, most := int64(after.TotalAlloc-before.TotalAlloc), free+4*u.Read+1024*u.Steps+4*u.Total+2*u.Unpacked; got > most {
			t.Errorf("%d bytes are allocated, %d are explained by %+v", got, most, u)
		}
		if u.Peak > l.Memory || (u.Read > l.Read || u.Steps > l.Steps) && b.Err() == nil {
			t.Errorf("beyond the limits: %+v", u)
		}
	}
}
