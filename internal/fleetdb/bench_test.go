package fleetdb

import (
	"fmt"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/bottleneck"
)

func benchBoth(b *testing.B, bench func(*testing.B, *testDatabase)) {
	b.Helper()
	b.Run("sqlite", func(b *testing.B) { bench(b, newSQLite(b)) })
	b.Run("postgres", func(b *testing.B) { bench(b, newPostgres(b)) })
}

// BenchmarkAddVMs queues a plan of 10,000 VMs.
func BenchmarkAddVMs(b *testing.B) {
	benchBoth(b, func(b *testing.B, p *testDatabase) {
		ctx, r := b.Context(), p.open()
		n := 0
		for b.Loop() {
			name := fmt.Sprint("p", n)
			n++
			ok(r.Plans.Add(ctx, Plan{Name: name}))(b)
			must(b, r.VMs.Add(ctx, someVMs(name, 10_000)))
		}
	})
}

// newFullFleet returns a fleet with 10,000 VMs that are done, 10,000 that wait, and 200 that run on w1.
func newFullFleet(b *testing.B, p *testDatabase) (*fleet, []Claim) {
	b.Helper()
	ctx := b.Context()
	f := newFleet(b, p.open(), 200)
	for _, name := range []string{"done", "waits"} {
		ok(f.Plans.Add(ctx, Plan{Name: name}))(b)
		must(b, f.VMs.Add(ctx, someVMs(name, 10_000)))
	}
	must(b, f.db.write(ctx, "end", 1, func(x *tx) error {
		_, err := x.exec(`UPDATE vms SET state = 'done', rev = $1 WHERE plan = 'done'`, x.rev)
		return err
	}))
	var given []Granted
	for n := range 200 {
		given = append(given, Granted{Key: key(n + 1), Worker: "w1", Expected: time.Hour})
	}
	var claims []Claim
	for _, v := range ok(f.Scheduling.Grant(ctx, f.sched, given))(b) {
		claims = append(claims, Claim{v.Key, "w1", v.Epoch})
	}
	if len(claims) != len(given) {
		b.Fatalf("granted %d VMs, want %d", len(claims), len(given))
	}
	return f, claims
}

// BenchmarkReport reports the progress of 200 VMs, as a worker does once a second.
func BenchmarkReport(b *testing.B) {
	benchBoth(b, func(b *testing.B, p *testDatabase) {
		f, claims := newFullFleet(b, p)
		reported := make([]Progress, len(claims))
		for i, c := range claims {
			reported[i] = Progress{Key: c.Key, Total: 1 << 40, Done: 1 << 39, Rate: 300 << 20, Busy: bottleneck.Busy{Source: 1}}
		}
		for b.Loop() {
			must(b, f.Progress.Report(b.Context(), f.workers["w1"], reported, nil))
		}
	})
}

// BenchmarkPlans counts 20,200 VMs, without and after a change.
func BenchmarkPlans(b *testing.B) {
	benchBoth(b, func(b *testing.B, p *testDatabase) {
		f, claims := newFullFleet(b, p)
		b.Run("same", func(b *testing.B) {
			for b.Loop() {
				ok(f.Plans.List(b.Context()))(b)
			}
		})
		b.Run("changed", func(b *testing.B) {
			for n := 0; b.Loop(); n++ {
				must(b, f.Claims.SetStep(b.Context(), claims[0], fmt.Sprint(n), ""))
				ok(f.Plans.List(b.Context()))(b)
			}
		})
	})
}

// BenchmarkStep changes the step of one VM of 20,200, and reads the change.
func BenchmarkStep(b *testing.B) {
	benchBoth(b, func(b *testing.B, p *testDatabase) {
		f, claims := newFullFleet(b, p)
		since := ok(f.Feed.Changes(b.Context(), 1<<60))(b).Rev
		for n := 0; b.Loop(); n++ {
			must(b, f.Claims.SetStep(b.Context(), claims[n%len(claims)], fmt.Sprint(n), ""))
			c := ok(f.Feed.Changes(b.Context(), since))(b)
			if len(c.VMs) != 1 {
				b.Fatalf("%d VMs changed, want 1", len(c.VMs))
			}
			since = c.Rev
		}
	})
}

// BenchmarkLife writes all changes of one VM from its grant to its end, without progress.
func BenchmarkLife(b *testing.B) {
	benchBoth(b, func(b *testing.B, p *testDatabase) {
		ctx := b.Context()
		f := newFleet(b, p.open(), 1)
		for b.Loop() {
			c := f.runVM(1, "w1")
			must(b, f.Claims.SetStep(ctx, c, "copy", ""))
			must(b, f.Claims.EndTransfer(ctx, c))
			must(b, f.Claims.SetStep(ctx, c, "verify", ""))
			must(b, f.Claims.Finish(ctx, c, End{State: Queued}))
		}
	})
}

// BenchmarkPoll polls for changes, as an idle process does four times a second.
func BenchmarkPoll(b *testing.B) {
	benchBoth(b, func(b *testing.B, p *testDatabase) {
		f, _ := newFullFleet(b, p)
		_, newer := f.db.revisions.newestKnown()
		for b.Loop() {
			f.db.revisions.polled = time.Time{}
			must(b, f.Feed.pollRevision(b.Context(), newer))
		}
	})
}
