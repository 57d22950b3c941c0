package warm

import (
	"context"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/transport"
)

// FullPass counts the allocated bytes of a disk if they are known.
func TestFullPass(t *testing.T) {
	t.Parallel()
	for want, disks := range map[string][]inventory.Disk{
		"0 MiB, about 1s at 100 MiB/s":          nil,
		"130560 MiB, about 21m46s at 100 MiB/s": {{Capacity: 1 << 40, Used: 100 << 30}, {Capacity: 27 << 30, Used: 512 << 20}, {Capacity: 27 << 30}},
	} {
		if got := FullPass(&inventory.VM{Disks: disks}); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// The second read of the source is part of the outage if it takes longer than the verification of the images.
func TestEstimateCountsTheSecondReading(t *testing.T) {
	t.Parallel()
	began := time.Unix(1_800_000_000, 0)
	rounds := []migrate.Round{
		{Began: began, Duration: 1000 * time.Second, Read: 100 << 30, Copied: 100 << 30, ReadBack: 200 * time.Second},
		{Began: began.Add(time.Hour), Duration: 5 * time.Second},
	}
	again := func(context.Context, transport.Disk) (disk.Source, string, error) { return nil, "", nil }
	outage := func(env migrate.Environment, spot migrate.Spot) time.Duration {
		r := &migrate.Run{Record: &migrate.Record{Facts: migrate.Facts{Warm: &migrate.Warm{Rounds: rounds}, Images: []targets.Image{{Key: 2000, Size: 100 << 30}}}}, Permit: migrate.Permit{Spot: spot}, Env: &env}
		return estimateOutage(r, began.Add(time.Hour)).Outage
	}
	env := migrate.Environment{Target: struct{ targets.Target }{}, Reread: again}
	without := outage(env, migrate.Spot{None: true})
	if want := without + migrate.TimeFor(266<<20, 107374182); outage(env, migrate.Spot{}) != want { // 2.6 s
		t.Errorf("%v, want %v", outage(env, migrate.Spot{}), want)
	}
	if got := outage(migrate.Environment{Target: struct{ targets.Target }{}}, migrate.Spot{}); got != without {
		t.Errorf("with a source that can be read only once: %v, want %v", got, without)
	}
}

func TestEstimateOutage(t *testing.T) {
	t.Parallel()
	began := time.Unix(1_800_000_000, 0)
	first := migrate.Round{Began: began, Duration: 1000 * time.Second, Read: 100 << 30, Copied: 100 << 30, ReadBack: 200 * time.Second}
	second := migrate.Round{Began: began.Add(time.Hour), Duration: 36 * time.Second, Read: 3600 << 20, Copied: 3600 << 20, ReadBack: 18 * time.Second}
	quiet := migrate.Round{Began: began.Add(time.Hour), Duration: 5 * time.Second}
	blind := second
	blind.Compared, blind.Duration = true, 900*time.Second
	for name, c := range map[string]struct {
		rounds   []migrate.Round
		paranoid bool
		boot     time.Duration
		after    time.Duration // time since the beginning of the last round
		want     journal.OutageEstimate
	}{
		"nothing copied yet": {want: journal.OutageEstimate{Outage: shutdownGuess}},
		"one round": {rounds: []migrate.Round{first}, after: time.Hour,
			want: journal.OutageEstimate{Rate: 107374182, Outage: shutdownGuess + 1200*time.Second}},
		// 1 MiB/s dirty, copied at 102.4 MiB/s, read back at 200 MiB/s, half an hour of changes.
		"two rounds": {rounds: []migrate.Round{first, second}, after: 30 * time.Minute,
			want: journal.OutageEstimate{Dirty: 1 << 20, Rate: 107374182, Delta: 1800 << 20, Outage: shutdownGuess + 36*time.Second + 9*time.Second}},
		"a guest that writes nothing": {rounds: []migrate.Round{first, quiet}, after: time.Hour,
			want: journal.OutageEstimate{Rate: 107374182, Outage: shutdownGuess + 5*time.Second}},
		"all data is compared": {rounds: []migrate.Round{first, blind}, after: 30 * time.Minute,
			want: journal.OutageEstimate{Dirty: 1 << 20, Rate: 107374182, Delta: 1800 << 20, Outage: shutdownGuess + 900*time.Second + 9*time.Second}},
		"the boot counts": {rounds: []migrate.Round{first, quiet}, boot: 40 * time.Second, after: time.Hour,
			want: journal.OutageEstimate{Rate: 107374182, Boot: 40 * time.Second, Outage: shutdownGuess + 45*time.Second}},
		"paranoid": {rounds: []migrate.Round{first, quiet}, paranoid: true, after: time.Hour,
			want: journal.OutageEstimate{Rate: 107374182, Outage: shutdownGuess + 1005*time.Second}},
	} {
		r := &migrate.Run{Record: &migrate.Record{Facts: migrate.Facts{Warm: &migrate.Warm{Rounds: c.rounds}}}, Permit: migrate.Permit{Paranoid: c.paranoid, Cutover: migrate.Cutover{Boot: &c.boot}}, Env: &migrate.Environment{}}
		now := began
		if n := len(c.rounds); n > 0 {
			now = c.rounds[n-1].Began.Add(c.after)
		}
		if got := estimateOutage(r, now); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// The estimated outage includes the delivery.
func TestEstimateCountsTheDelivery(t *testing.T) {
	t.Parallel()
	s := &sendingTarget{}
	// The best early delivery has 200 MiB/s. In an hour and a half 1800 MiB change. The images hold at least 1200 MiB.
	began := time.Unix(1_800_000_000, 0)
	rounds := []migrate.Round{
		{Began: began, Duration: 10 * time.Second, Copied: 1000 << 20, Delivered: 10 * time.Second},
		{Began: began.Add(time.Hour), Duration: 12 * time.Second, Copied: 1200 << 20, Delivered: 6 * time.Second},
	}
	for _, c := range []struct {
		all    bool
		rounds []migrate.Round
		after  time.Duration
		want   time.Duration
	}{
		{false, rounds[:1], 0, 10 * time.Second},
		{false, rounds, time.Hour + 30*time.Minute, 9 * time.Second},
		{false, rounds, 0, 6 * time.Second}, // minimum: the shortest delivery
		{true, rounds, 30 * time.Minute, 12 * time.Second},
		// a round without a delivery does not shorten the minimum
		{false, append(rounds[:2:2], migrate.Round{Began: began.Add(2 * time.Hour), Duration: time.Second}), 0, 6 * time.Second},
	} {
		s.all = c.all
		r := &migrate.Run{Record: &migrate.Record{Facts: migrate.Facts{Warm: &migrate.Warm{Rounds: c.rounds}}}, Env: &migrate.Environment{Target: s}}
		with := estimateOutage(r, c.rounds[len(c.rounds)-1].Began.Add(c.after))
		r.Env.Target = nil
		without := estimateOutage(r, c.rounds[len(c.rounds)-1].Began.Add(c.after))
		if with.Delivery.Round(time.Millisecond) != c.want || with.Outage != without.Outage+with.Delivery || without.Delivery != 0 {
			t.Errorf("all %v, %d rounds, after %v: %v of %v, want %v", c.all, len(c.rounds), c.after, with.Delivery, with.Outage, c.want)
		}
	}
}

// sendingTarget is a target that sends the images, or only the changes since its last Prepare.
type sendingTarget struct {
	targets.Target
	all bool
}

func (s *sendingTarget) Sends(held, changed int64) int64 {
	if s.all {
		return held
	}
	return changed
}

// The message of a round contains the copied bytes, the guest's write rate if known, and the parts of the outage.
func TestDescribeRound(t *testing.T) {
	t.Parallel()
	done := migrate.Round{Duration: 14400 * time.Millisecond, Read: 1200<<20 + 1, Copied: 1180 << 20}
	for _, c := range []struct {
		rounds   int
		estimate journal.OutageEstimate
		want     string
	}{
		{1, journal.OutageEstimate{Outage: 95 * time.Second},
			"round 1: 1200 MiB read, 1180 MiB written, 14s; outage with a cutover now: about 1m35s (boot not included)"},
		{2, journal.OutageEstimate{Dirty: 3 << 19, Rate: 100 << 20, Outage: 95 * time.Second, Delivery: 12 * time.Second, Boot: 40 * time.Second},
			"round 2: 1200 MiB read, 1180 MiB written, 14s; the guest writes 1.5 MiB/s, which is copied at 100 MiB/s; " +
				"outage with a cutover now: about 1m35s (delivery 12s, boot 40s)"},
	} {
		r := &migrate.Run{Record: &migrate.Record{Facts: migrate.Facts{Warm: &migrate.Warm{Rounds: make([]migrate.Round, c.rounds)}}}}
		if got := describeRound(r, done, c.estimate); got != c.want {
			t.Errorf("%d rounds: %q, want %q", c.rounds, got, c.want)
		}
	}
}
