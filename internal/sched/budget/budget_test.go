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

// A transfer is a flow with several readers that use the whole rate.
type transfer struct {
	flow  *Flow
	bytes atomic.Int64
}

// startTransfer starts a transfer that runs until ctx ends.
func startTransfer(ctx context.Context, t *testing.T, b *Budgets, run string, readers int, request int64, names ...string) *transfer {
	p := &transfer{flow: b.Join(run, 1, names...)}
	for range readers {
		go func() {
			for p.flow.Wait(ctx, request) == nil {
				p.bytes.Add(request)
				if b.areUnlimited(names) {
					time.Sleep(time.Millisecond) // Wait takes no time without a limit
				}
			}
		}()
	}
	t.Cleanup(func() { p.flow.Leave() })
	return p
}

func (s *Budgets) areUnlimited(names []string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		if s.bucketNamed(name).rate != Unlimited {
			return false
		}
	}
	return true
}

// rateOver returns the rate of the transfer in the next d, in MiB/s.
func (p *transfer) rateOver(d time.Duration) float64 {
	before := p.bytes.Load()
	time.Sleep(d)
	synctest.Wait()
	return float64(p.bytes.Load()-before) / mib / d.Seconds()
}

func setRate(t *testing.T, b *Budgets, name string, rate int64) {
	t.Helper()
	if err := b.Set(name, Week{Rate: rate, Zone: time.UTC}); err != nil {
		t.Fatal(err)
	}
}

func checkRate(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	t.Logf("%s: %.2f MiB/s, budget %.2f", what, got, want)
	if math.Abs(got-want) > tolerance*want {
		t.Errorf("%s: %.2f MiB/s, want %.2f within %.0f %%", what, got, want, tolerance*100)
	}
}

// runInBubble runs f in virtual time. The context ends after f.
func runInBubble(t *testing.T, f func(t *testing.T, ctx context.Context, b *Budgets)) {
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
			runInBubble(t, func(t *testing.T, ctx context.Context, b *Budgets) {
				setRate(t, b, "link:wan", rate*mib)
				p := startTransfer(ctx, t, b, "r", 16, request, "link:wan")
				p.rateOver(time.Duration(16*request/mib/rate+1) * time.Second) // the first requests of the readers
				before, d := b.States()[0].Passed, time.Duration(100*request/mib/rate+5)*time.Second
				time.Sleep(d)
				checkRate(t, "16 readers", float64(b.States()[0].Passed-before)/mib/d.Seconds(), float64(rate), 0.03)
			})
		}
	}
}

func TestRateChangeAppliesWithinOneSecond(t *testing.T) {
	runInBubble(t, func(t *testing.T, ctx context.Context, b *Budgets) {
		setRate(t, b, "link:wan", 100<<10) // a piece takes ten seconds
		p := startTransfer(ctx, t, b, "r", 4, mib, "link:wan")
		p.rateOver(30 * time.Second)
		for _, rate := range []int64{200, 5, 80, 20} {
			setRate(t, b, "link:wan", rate*mib)
			p.rateOver(time.Second)
			checkRate(t, "after one second", p.rateOver(20*time.Second), float64(rate), 0.03)
		}
		setRate(t, b, "link:wan", 0)
		p.rateOver(time.Second)
		if got := p.rateOver(time.Hour / 2); got != 0 {
			t.Errorf("%.2f MiB/s at rate 0", got)
		}
		setRate(t, b, "link:wan", Unlimited)
		if got := p.rateOver(time.Second); got < 500 {
			t.Errorf("%.2f MiB/s without a limit", got)
		}
	})
}

// Each run gets the same share, whatever its number of readers and disks, and the size of its requests.
func TestRunsShareFairly(t *testing.T) {
	runInBubble(t, func(t *testing.T, ctx context.Context, b *Budgets) {
		setRate(t, b, "link:wan", 90*mib)
		many := startTransfer(ctx, t, b, "many", 32, 4*mib, "link:wan")
		few := startTransfer(ctx, t, b, "few", 2, 256<<10, "link:wan")
		disk1 := startTransfer(ctx, t, b, "disks", 4, mib, "link:wan")
		disk2 := startTransfer(ctx, t, b, "disks", 4, mib, "link:wan")
		few.rateOver(10 * time.Second)
		before := [4]int64{many.bytes.Load(), few.bytes.Load(), disk1.bytes.Load(), disk2.bytes.Load()}
		few.rateOver(2 * time.Minute)
		rate := func(p *transfer, i int) float64 { return float64(p.bytes.Load()-before[i]) / mib / 120 }
		checkRate(t, "32 readers", rate(many, 0), 30, 0.05)
		checkRate(t, "2 readers", rate(few, 1), 30, 0.05)
		checkRate(t, "two disks", rate(disk1, 2)+rate(disk2, 3), 30, 0.05)
	})
}

func TestRunsShareByWeight(t *testing.T) {
	runInBubble(t, func(t *testing.T, ctx context.Context, b *Budgets) {
		setRate(t, b, "link:wan", 40*mib)
		light := startTransfer(ctx, t, b, "light", 4, mib, "link:wan")
		heavy := startTransfer(ctx, t, b, "heavy", 4, mib, "link:wan")
		b.Join("heavy", 3, "link:wan")
		light.rateOver(10 * time.Second)
		checkRate(t, "weight 1", light.rateOver(time.Minute), 10, 0.05)
		checkRate(t, "weight 3", heavy.rateOver(time.Minute), 30, 0.05)
	})
}

// The other runs on a link get the rate that a run does not use because its host is slow.
func TestSlowHostLeavesLinkRateToOthers(t *testing.T) {
	runInBubble(t, func(t *testing.T, ctx context.Context, b *Budgets) {
		setRate(t, b, "link:wan", 100*mib)
		setRate(t, b, "host:slow", 10*mib)
		slow := startTransfer(ctx, t, b, "slow", 8, mib, "link:wan", "host:slow")
		fast := startTransfer(ctx, t, b, "fast", 8, mib, "link:wan", "host:free")
		fast.rateOver(10 * time.Second)
		checkRate(t, "slow host", slow.rateOver(time.Minute), 10, 0.03)
		checkRate(t, "the rest", fast.rateOver(time.Minute), 90, 0.03)
	})
}

// The rate of a rule starts while transfers wait, and ends while they run.
func TestRateRulesChangeDuringTransfers(t *testing.T) {
	runInBubble(t, func(t *testing.T, ctx context.Context, b *Budgets) {
		week := Week{Rate: 0, Zone: time.UTC, Rules: []Rule{{Days: Always, From: 22 * Hour, To: 6 * Hour, Rate: mib}}}
		if err := b.Set("link:wan", week); err != nil {
			t.Fatal(err)
		}
		time.Sleep(21*time.Hour - time.Duration(time.Now().UTC().Hour())*time.Hour)
		p := startTransfer(ctx, t, b, "r", 4, mib, "link:wan")
		if got := p.rateOver(time.Hour - time.Second); got != 0 {
			t.Errorf("%.2f MiB/s before 22 h", got)
		}
		checkRate(t, "at night", p.rateOver(8*time.Hour), 1, 0.03)
		p.rateOver(2 * time.Second)
		if got := p.rateOver(15 * time.Hour); got != 0 {
			t.Errorf("%.2f MiB/s after 6 h", got)
		}
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	runInBubble(t, func(t *testing.T, ctx context.Context, b *Budgets) {
		setRate(t, b, "link:wan", 0)
		short, stop := context.WithTimeout(ctx, time.Minute)
		defer stop()
		f := b.Join("r", 1, "link:wan")
		if err := f.Wait(short, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait: got %v, want DeadlineExceeded", err)
		}
		f.Leave()
		if s := b.States(); s[0].Waiting != 0 || s[0].Runs != 0 {
			t.Errorf("states after Leave: %+v", s)
		}
	})
}

func TestStatesReportThePassedBytes(t *testing.T) {
	runInBubble(t, func(t *testing.T, ctx context.Context, b *Budgets) {
		setRate(t, b, "link:wan", 10*mib)
		p := startTransfer(ctx, t, b, "r", 2, mib, "link:wan", "host:esx1")
		p.rateOver(time.Minute)
		s := b.States()
		if len(s) != 2 || s[0].Name != "host:esx1" || s[0].Rate != Unlimited || s[1].Rate != 10*mib || s[1].Waiting == 0 || s[1].Runs != 1 {
			t.Errorf("states are %+v", s)
		}
		checkRate(t, "passed", float64(s[1].Passed)/mib/60, 10, 0.03)
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
			t.Errorf("%+v: got %v, want Invalid", w, err)
		}
	}
	if err := b.Set("", Week{}); !fault.Is(err, fault.Invalid) {
		t.Errorf("budget without a name: got %v, want Invalid", err)
	}
}
