package budget

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

const mib = 1 << 20

// A puller is a transfer with several readers that takes all it gets.
type puller struct {
	flow  *Flow
	bytes atomic.Int64
}

// pull starts a transfer that goes on until ctx ends.
func pull(ctx context.Context, t *testing.T, b *Budgets, run string, readers int, request int64, names ...string) *puller {
	p := &puller{flow: b.Join(run, 1, names...)}
	for range readers {
		go func() {
			for p.flow.Wait(ctx, request) == nil {
				p.bytes.Add(request)
				if b.unlimited(names) {
					time.Sleep(time.Millisecond) // nothing else takes time here
				}
			}
		}()
	}
	t.Cleanup(func() { p.flow.Leave() })
	return p
}

func (s *Budgets) unlimited(names []string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		if s.bucketNamed(name).rate != Unlimited {
			return false
		}
	}
	return true
}

// over returns what p takes in d, in MiB/s.
func (p *puller) over(d time.Duration) float64 {
	before := p.bytes.Load()
	time.Sleep(d)
	synctest.Wait()
	return float64(p.bytes.Load()-before) / mib / d.Seconds()
}

func set(t *testing.T, b *Budgets, name string, rate int64) {
	t.Helper()
	if err := b.Set(name, Week{Rate: rate, Zone: time.UTC}); err != nil {
		t.Fatal(err)
	}
}

func near(t *testing.T, what string, got, want, part float64) {
	t.Helper()
	t.Logf("%s: %.2f MiB/s, budget %.2f", what, got, want)
	if math.Abs(got-want) > part*want {
		t.Errorf("%s: %.2f MiB/s, want %.2f within %.0f %%", what, got, want, part*100)
	}
}

// bubble runs f in virtual time, with a context that ends all it started.
func bubble(t *testing.T, f func(t *testing.T, ctx context.Context, b *Budgets)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer func() {
			stop()
			time.Sleep(time.Second)
		}()
		f(t, ctx, New(Wall()))
	})
}

func TestBudgetIsKeptWithinThreePercent(t *testing.T) {
	for _, rate := range []int64{1, 20, 300, 3000} {
		for _, request := range []int64{64 << 10, 512 << 10, 16 << 20} {
			bubble(t, func(t *testing.T, ctx context.Context, b *Budgets) {
				set(t, b, "link:wan", rate*mib)
				p := pull(ctx, t, b, "r", 16, request, "link:wan")
				p.over(time.Duration(16*request/mib/rate+1) * time.Second) // what the readers hold at first
				before, d := b.States()[0].Passed, time.Duration(100*request/mib/rate+5)*time.Second
				time.Sleep(d)
				near(t, "16 readers", float64(b.States()[0].Passed-before)/mib/d.Seconds(), float64(rate), 0.03)
			})
		}
	}
}

func TestNewRateCountsWithinASecond(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, b *Budgets) {
		set(t, b, "link:wan", 100<<10) // a piece is ten seconds of debt
		p := pull(ctx, t, b, "r", 4, mib, "link:wan")
		p.over(30 * time.Second)
		for _, rate := range []int64{200, 5, 80, 20} {
			set(t, b, "link:wan", rate*mib)
			p.over(time.Second)
			near(t, "after one second", p.over(20*time.Second), float64(rate), 0.03)
		}
		set(t, b, "link:wan", 0)
		p.over(time.Second)
		if got := p.over(time.Hour / 2); got != 0 {
			t.Errorf("%.2f MiB/s at rate 0", got)
		}
		set(t, b, "link:wan", Unlimited)
		if got := p.over(time.Second); got < 500 {
			t.Errorf("%.2f MiB/s without a limit", got)
		}
	})
}

// Runs share by run, whatever their readers, disks and request sizes.
func TestRunsShareFairly(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, b *Budgets) {
		set(t, b, "link:wan", 90*mib)
		many := pull(ctx, t, b, "many", 32, 4*mib, "link:wan")
		few := pull(ctx, t, b, "few", 2, 256<<10, "link:wan")
		disk1 := pull(ctx, t, b, "disks", 4, mib, "link:wan")
		disk2 := pull(ctx, t, b, "disks", 4, mib, "link:wan")
		few.over(10 * time.Second)
		before := [4]int64{many.bytes.Load(), few.bytes.Load(), disk1.bytes.Load(), disk2.bytes.Load()}
		few.over(2 * time.Minute)
		rate := func(p *puller, i int) float64 { return float64(p.bytes.Load()-before[i]) / mib / 120 }
		near(t, "32 readers", rate(many, 0), 30, 0.05)
		near(t, "2 readers", rate(few, 1), 30, 0.05)
		near(t, "two disks", rate(disk1, 2)+rate(disk2, 3), 30, 0.05)
	})
}

func TestWeightsAreKept(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, b *Budgets) {
		set(t, b, "link:wan", 40*mib)
		light := pull(ctx, t, b, "light", 4, mib, "link:wan")
		heavy := pull(ctx, t, b, "heavy", 4, mib, "link:wan")
		b.Join("heavy", 3, "link:wan")
		light.over(10 * time.Second)
		near(t, "weight 1", light.over(time.Minute), 10, 0.05)
		near(t, "weight 3", heavy.over(time.Minute), 30, 0.05)
	})
}

// A run that is held up by its host takes nothing away from the others on the link.
func TestNarrowHostLeavesTheLinkToOthers(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, b *Budgets) {
		set(t, b, "link:wan", 100*mib)
		set(t, b, "host:slow", 10*mib)
		slow := pull(ctx, t, b, "slow", 8, mib, "link:wan", "host:slow")
		fast := pull(ctx, t, b, "fast", 8, mib, "link:wan", "host:free")
		fast.over(10 * time.Second)
		near(t, "slow host", slow.over(time.Minute), 10, 0.03)
		near(t, "the rest", fast.over(time.Minute), 90, 0.03)
	})
}

// The night begins while transfers wait, and ends while they run.
func TestHoursTurnWhileTransfersWait(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, b *Budgets) {
		week := Week{Rate: 0, Zone: time.UTC, Rules: []Rule{{Days: Always, From: 22 * Hour, To: 6 * Hour, Rate: mib}}}
		if err := b.Set("link:wan", week); err != nil {
			t.Fatal(err)
		}
		time.Sleep(21*time.Hour - time.Duration(time.Now().UTC().Hour())*time.Hour)
		p := pull(ctx, t, b, "r", 4, mib, "link:wan")
		if got := p.over(time.Hour - time.Second); got != 0 {
			t.Errorf("%.2f MiB/s before 22 h", got)
		}
		near(t, "at night", p.over(8*time.Hour), 1, 0.03)
		p.over(2 * time.Second)
		if got := p.over(15 * time.Hour); got != 0 {
			t.Errorf("%.2f MiB/s after 6 h", got)
		}
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, b *Budgets) {
		set(t, b, "link:wan", 0)
		short, stop := context.WithTimeout(ctx, time.Minute)
		defer stop()
		f := b.Join("r", 1, "link:wan")
		if err := f.Wait(short, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait: %v", err)
		}
		f.Leave()
		if s := b.States(); s[0].Waiting != 0 || s[0].Runs != 0 {
			t.Errorf("left: %+v", s)
		}
	})
}

func TestStatesSayWhatPasses(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context, b *Budgets) {
		set(t, b, "link:wan", 10*mib)
		p := pull(ctx, t, b, "r", 2, mib, "link:wan", "host:esx1")
		p.over(time.Minute)
		s := b.States()
		if len(s) != 2 || s[0].Name != "host:esx1" || s[0].Rate != Unlimited || s[1].Rate != 10*mib || s[1].Waiting == 0 || s[1].Runs != 1 {
			t.Errorf("%+v", s)
		}
		near(t, "passed", float64(s[1].Passed)/mib/60, 10, 0.03)
	})
}

func TestWrongBudgetsAreRefused(t *testing.T) {
	b := New(Wall())
	for _, w := range []Week{
		{Rate: -2},
		{Rules: []Rule{{Days: Always, From: 24 * Hour, To: 6 * Hour}}},
		{Rules: []Rule{{Days: Always, From: 1 * Hour, To: 25 * Hour}}},
		{Rules: []Rule{{From: 1 * Hour, To: 2 * Hour}}},
		{Rules: []Rule{{Days: 1 << 7, From: 1 * Hour, To: 2 * Hour}}},
		{Rules: []Rule{{Days: Always, From: 1 * Hour, To: 2 * Hour, Rate: -7}}},
	} {
		if err := b.Set("link:wan", w); !fault.Is(err, fault.Invalid) {
			t.Errorf("%+v: %v", w, err)
		}
	}
	if err := b.Set("", Week{}); !fault.Is(err, fault.Invalid) {
		t.Errorf("no name: %v", err)
	}
}
