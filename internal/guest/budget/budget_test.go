package budget

import (
	"bytes"
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

func newBudget(t *testing.T, l Limits) *Budget {
	b, cancel := New(t.Context(), l)
	t.Cleanup(cancel)
	return b
}

// The charge that exceeds a limit returns an error with the cause.
func TestLimits(t *testing.T) {
	const quarter = 1 << 18
	for cause, once := range map[string]func(*Budget) error{
		"more than 1 MiB would be read":         func(b *Budget) error { return b.Read(quarter) },
		"more than 1048576 operations":          func(b *Budget) error { return b.Step(quarter) },
		"more than 1 MiB of memory":             func(b *Budget) error { return b.Hold(quarter) },
		"more than 1 MiB would be decompressed": func(b *Budget) error { return b.Unpack(quarter) },
	} {
		b := newBudget(t, Limits{Read: 1 << 20, Steps: 1 << 20, Memory: 1 << 20, Unpacked: 1 << 20})
		for i := range 4 {
			if err := once(b); err != nil {
				t.Fatalf("%s: charge %d: %v", cause, i, err)
			}
		}
		var e *Error
		if err := once(b); !errors.As(err, &e) || !strings.Contains(err.Error(), "not examined: ") || !strings.Contains(err.Error(), cause) {
			t.Errorf("got %v, want %q", err, cause)
		}
		if soft := strings.Contains(cause, "decompressed"); (b.Step(0) == nil) != soft || (b.Err() == nil) != soft {
			t.Errorf("%s: afterwards Err returns %v", cause, b.Err())
		}
	}
}

func TestHoldRefusesNumbersOutOfRange(t *testing.T) {
	for _, n := range []int64{-1, math.MinInt64, math.MaxInt64} {
		b := newBudget(t, Examination())
		if b.Hold(1) != nil || b.Hold(n) == nil {
			t.Errorf("Hold accepts %d bytes", n)
		}
	}
}

func TestReleaseFreesMemory(t *testing.T) {
	b := newBudget(t, Limits{Steps: 1000, Memory: 100})
	for range 3 {
		if err := b.Hold(80); err != nil {
			t.Fatal(err)
		}
		b.Release(80)
	}
	if u := b.Used(); u.Memory != 0 || u.Peak != 80 || u.Total != 240 {
		t.Errorf("usage %+v", u)
	}
}

// A slice is charged with the bytes of its array. During a copy both arrays are charged.
func TestGrow(t *testing.T) {
	b := newBudget(t, Limits{Steps: 1000, Memory: 8 * (64 + 32)})
	var s []int64
	for i := range int64(64) {
		grown, err := Grow(b, s, 1)
		if err != nil {
			t.Fatal(err)
		}
		if s = append(grown, i); cap(s) != cap(grown) || b.Used().Memory != 8*int64(cap(s)) {
			t.Fatalf("%d elements, capacity %d, charged: %+v", len(s), cap(s), b.Used())
		}
	}
	for i, v := range s {
		if int64(i) != v {
			t.Fatalf("element %d is %d", i, v)
		}
	}
	if u := b.Used(); u.Peak != 8*(64+32) || u.Total != 8*(1+2+4+8+16+32+64) {
		t.Errorf("usage %+v", u)
	}
	ReleaseSlice(b, s)
	exact, err := Grow(b, []int64(nil), 50)
	if err != nil || cap(exact) != 50 || b.Used().Memory != 400 {
		t.Errorf("capacity %d, want 50, %+v, %v", cap(exact), b.Used(), err)
	}
	var e *Error
	if same, err := Grow(b, exact, 51); !errors.As(err, &e) || cap(same) != 50 || b.Used().Memory != 400 {
		t.Errorf("capacity %d, want 50, %+v, %v", cap(same), b.Used(), err)
	}
}

// A small read is charged as a sector, so that the number of small reads is limited.
func TestReaderCharges(t *testing.T) {
	b := newBudget(t, Examination())
	r := b.Reader(bytes.NewReader(make([]byte, 4096)))
	for _, n := range []int{1, 1024} {
		if _, err := r.ReadAt(make([]byte, n), 0); err != nil {
			t.Fatal(err)
		}
	}
	if u := b.Used(); u.Read != 512+1024 || u.Steps != 2*ReadSteps || r.Budget() != b {
		t.Errorf("usage %+v", u)
	}
}

// The time limit is an Error. A cancellation by the caller is not.
func TestTimeLimitIsDistinctFromCancellation(t *testing.T) {
	l := Examination()
	l.Time = time.Nanosecond
	b := newBudget(t, l)
	<-b.Context().Done()
	var e *Error
	if err := b.Read(1); !errors.As(err, &e) || e.Error() != "not examined: it takes longer than 1ns" {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	own, release := New(ctx, Examination())
	defer release()
	cancel()
	if err := own.Step(checkEvery); !errors.Is(err, context.Canceled) || errors.As(err, &e) {
		t.Error(err)
	}
}

// Step detects a cancellation, so that loops without reads end too.
func TestStepDetectsCancellation(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	b, release := New(ctx, Examination())
	defer release()
	steps := 0
	for ; steps < 10*checkEvery && b.Step(1) == nil; steps++ {
		if steps == checkEvery {
			cancel()
		}
	}
	cancel()
	if steps > 2*checkEvery {
		t.Errorf("the cancellation was detected after %d steps, want at most %d", steps, 2*checkEvery)
	}
}
