package migrate

import (
	"context"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/plan"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/transport"
)

// A full pass reads what is allocated, where that is known.
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

// The second reading of the source is part of the outage where it takes longer than reading the images back.
func TestOutlookCountsTheSecondReading(t *testing.T) {
	t.Parallel()
	began := time.Unix(1_800_000_000, 0)
	rounds := []Round{
		{Began: began, Took: 1000 * time.Second, Read: 100 << 30, Copied: 100 << 30, Proved: 200 * time.Second},
		{Began: began.Add(time.Hour), Took: 5 * time.Second},
	}
	again := func(context.Context, transport.Disk) (disk.Source, string, error) { return nil, "", nil }
	outage := func(rig Rig, spot Spot) time.Duration {
		r := &Run{Facts: Facts{Warm: &Warm{Rounds: rounds}, Images: []targets.Image{{Key: 2000, Size: 100 << 30}}}, Permit: Permit{Spot: spot}, Rig: rig}
		return r.outlook(began.Add(time.Hour)).Outage
	}
	rig := Rig{Target: memTarget{}, Reread: again}
	without := outage(rig, Spot{None: true})
	if want := without + at(266<<20, 107374182); outage(rig, Spot{}) != want { // 2.6 s
		t.Errorf("%v, want %v", outage(rig, Spot{}), want)
	}
	if got := outage(Rig{Target: memTarget{}}, Spot{}); got != without {
		t.Errorf("with a source that is read only once: %v, want %v", got, without)
	}
}

func TestOutlook(t *testing.T) {
	t.Parallel()
	began := time.Unix(1_800_000_000, 0)
	first := Round{Began: began, Took: 1000 * time.Second, Read: 100 << 30, Copied: 100 << 30, Proved: 200 * time.Second}
	second := Round{Began: began.Add(time.Hour), Took: 36 * time.Second, Read: 3600 << 20, Copied: 3600 << 20, Proved: 18 * time.Second}
	quiet := Round{Began: began.Add(time.Hour), Took: 5 * time.Second}
	blind := second
	blind.Compared, blind.Took = true, 900*time.Second
	for name, c := range map[string]struct {
		rounds   []Round
		paranoid bool
		boot     time.Duration
		after    time.Duration // the last round began
		want     plan.Outlook
	}{
		"nothing copied yet": {want: plan.Outlook{Outage: shutdownGuess}},
		"after one round it may be all of it": {rounds: []Round{first}, after: time.Hour,
			want: plan.Outlook{Rate: 107374182, Outage: shutdownGuess + 1200*time.Second}},
		// 1 MiB/s dirty, copied at 102.4 MiB/s, read back at 200 MiB/s; half an hour has gathered.
		"two rounds": {rounds: []Round{first, second}, after: 30 * time.Minute,
			want: plan.Outlook{Dirty: 1 << 20, Rate: 107374182, Delta: 1800 << 20, Outage: shutdownGuess + 36*time.Second + 9*time.Second}},
		"a guest that writes nothing": {rounds: []Round{first, quiet}, after: time.Hour,
			want: plan.Outlook{Rate: 107374182, Outage: shutdownGuess + 5*time.Second}},
		"everything is compared": {rounds: []Round{first, blind}, after: 30 * time.Minute,
			want: plan.Outlook{Dirty: 1 << 20, Rate: 107374182, Delta: 1800 << 20, Outage: shutdownGuess + 900*time.Second + 9*time.Second}},
		"the boot counts": {rounds: []Round{first, quiet}, boot: 40 * time.Second, after: time.Hour,
			want: plan.Outlook{Rate: 107374182, Boot: 40 * time.Second, Outage: shutdownGuess + 45*time.Second}},
		"and once more": {rounds: []Round{first, quiet}, paranoid: true, after: time.Hour,
			want: plan.Outlook{Rate: 107374182, Outage: shutdownGuess + 1005*time.Second}},
	} {
		r := &Run{Facts: Facts{Warm: &Warm{Rounds: c.rounds}}, Permit: Permit{Paranoid: c.paranoid, Cutover: Cutover{Boot: &c.boot}}}
		now := began
		if n := len(c.rounds); n > 0 {
			now = c.rounds[n-1].Began.Add(c.after)
		}
		if got := r.outlook(now); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
