// Package budgettest helps to test readers of guest content.
package budgettest

import (
	"io"
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

// Reader returns r with a Budget of its own.
func Reader(t testing.TB, r io.ReaderAt) budget.Reader {
	t.Helper()
	return New(t).Reader(r)
}

// ReadWriter returns d with a Budget of its own.
func ReadWriter(t testing.TB, d interface {
	io.ReaderAt
	io.WriterAt
}) budget.ReadWriter {
	t.Helper()
	return New(t).ReadWriter(d)
}

// Within fails the test if the cost of b exceeds limit.
func Within(t testing.TB, b *budget.Budget, limit budget.Used) {
	t.Helper()
	u := b.Used()
	if u.Read > limit.Read || u.Steps > limit.Steps || u.Peak > limit.Peak || u.Unpacked > limit.Unpacked {
		t.Errorf("cost %+v, limit %+v", u, limit)
	}
}
