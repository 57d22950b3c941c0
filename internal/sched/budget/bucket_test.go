package budget

import (
	"math/rand/v2"
	"testing"
	"time"
)

// FuzzBucket runs random changes of the rate, requests, cancellations and pauses. The bytes that pass never exceed the
// sum of the rates, a burst and a piece, and no piece waits while tokens are left.
func FuzzBucket(f *testing.F) {
	for seed := range uint64(10) {
		f.Add(randomBytes(seed))
	}
	f.Fuzz(runBucketOperations)
}

func TestBucketNeverExceedsRate(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for seed := range uint64(50) {
		runBucketOperations(t, randomBytes(seed))
	}
}

func randomBytes(seed uint64) []byte {
	rng := rand.New(rand.NewPCG(seed, 9))
	data := make([]byte, 300)
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	return data
}

func runBucketOperations(t *testing.T, data []byte) {
	now := time.Date(2026, 11, 20, 21, 0, 0, 0, time.UTC)
	b := &bucket{tokensAt: now, runs: map[string]*account{"a": {weight: 1}, "b": {weight: 3}}}
	var allowed, largest float64
	var tickets []*ticket
	b.setWeek(now, Week{Zone: time.UTC, Rate: 1000})
	for len(data) >= 2 {
		what, v := data[0]%5, int64(data[1])
		data = data[2:]
		switch what {
		case 0:
			b.setWeek(now, Week{Zone: time.UTC, Rate: v * v * 10, Rules: []Rule{{Days: Always, From: 22 * Hour, To: 23 * Hour, Rate: v}}})
		case 1, 2:
			tickets = append(tickets, b.enqueuePiece([]string{"a", "b"}[v%2], 1+v*16))
		case 3:
			if len(tickets) > 0 {
				b.removePiece(tickets[int(v)%len(tickets)])
			}
		case 4:
			until := now.Add(time.Duration(v*v) * 10 * time.Millisecond)
			for at := now; at.Before(until); at = at.Add(10 * time.Millisecond) {
				allowed += float64(b.week.At(at)) / 100
			}
			now = until
		}
		largest = max(largest, float64(b.week.Rate), float64(b.rate))
		next := b.releasePieces(now)
		if bound := allowed + largest*(Burst.Seconds()+0.01) + 1 + 255*16; float64(b.passed) > bound {
			t.Fatalf("%d bytes passed, want at most %.0f", b.passed, bound)
		}
		if (len(b.queue) > 0) != !next.IsZero() || !next.IsZero() && !next.After(now) {
			t.Fatalf("%d pieces wait at %v, next release at %v", len(b.queue), now, next)
		}
		if len(b.queue) > 0 && b.tokens > 0 {
			t.Fatalf("%d pieces wait with %.0f tokens", len(b.queue), b.tokens)
		}
	}
}
