package warm

import (
	"cmp"
	"fmt"
	"time"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/targets"
)

// shutdownGuess is the assumed shutdown time of a guest.
const shutdownGuess = 30 * time.Second

// estimateOutage estimates a cutover now from the rounds so far. The user sets the boot time of the
// guest. It assumes the rate of changes between the last two rounds, the best copy rate of all rounds
// (a small round mostly shows its fixed costs, which are those of the shortest round), and the last
// rate of reading back. The second reading of the source runs at the same time.
func estimateOutage(r *migrate.Run, now time.Time) journal.OutageEstimate {
	rounds := r.Record.Facts.Warm.Rounds
	o := journal.OutageEstimate{Boot: bootTime(r.Permit.Cutover)}
	o.Outage = shutdownGuess + o.Boot
	if len(rounds) == 0 {
		return o
	}
	first, last := rounds[0], rounds[len(rounds)-1]
	if r.Permit.Paranoid {
		o.Outage += first.Duration
	}
	for _, d := range rounds {
		o.Rate = max(o.Rate, migrate.PerSecond(d.Read, d.Duration))
	}
	if len(rounds) == 1 { // the rate of changes is unknown: at most everything changes
		o.Delivery = estimateDelivery(r, last.Copied)
		o.Outage += last.Duration + max(last.ReadBack, migrate.RereadTime(r, o.Rate)) + o.Delivery
		return o
	}
	o.Dirty = migrate.PerSecond(last.Copied, last.Began.Sub(rounds[len(rounds)-2].Began))
	o.Delta = int64(float64(o.Dirty) * now.Sub(last.Began).Seconds())
	if last.Compared {
		o.Outage += last.Duration
	} else {
		shortest := last.Duration
		for _, d := range rounds {
			shortest = min(shortest, d.Duration)
		}
		o.Outage += max(migrate.TimeFor(o.Delta, o.Rate), shortest)
	}
	o.Delivery = estimateDelivery(r, o.Delta)
	o.Outage += max(migrate.TimeFor(o.Delta, migrate.PerSecond(last.Copied, last.ReadBack)), migrate.RereadTime(r, o.Rate)) + o.Delivery
	return o
}

// estimateDelivery returns the estimated time until the images are at their target after so many bytes
// changed. A target with early deliveries is assumed to reach the best rate of those, and to take at
// least their shortest time. For other targets the rate is passRate.
func estimateDelivery(r *migrate.Run, changed int64) time.Duration {
	s, ok := r.Env.Target.(targets.Sender)
	if !ok {
		return 0
	}
	var held, rate int64
	var shortest time.Duration
	for _, d := range r.Record.Facts.Warm.Rounds {
		held = max(held, d.Copied)
		if d.Delivered > 0 {
			rate = max(rate, migrate.PerSecond(d.Copied, d.Delivered))
			shortest = min(cmp.Or(shortest, d.Delivered), d.Delivered)
		}
	}
	if rate == 0 || s.Sends(held, 0) == held { // nothing was taken early
		return migrate.TimeFor(s.Sends(held, changed), passRate)
	}
	return max(migrate.TimeFor(s.Sends(held, changed), rate), shortest)
}

// passRate is the assumed rate of a full pass before the first measurement, in bytes per second: that
// of one disk of a host in a common network.
const passRate = 100 << 20

// FullPass describes the bytes and the time of a round that compares all of a VM.
func FullPass(vm *inventory.VM) string {
	var n int64
	for _, d := range vm.Disks {
		n += cmp.Or(d.Used, d.Capacity)
	}
	return fmt.Sprintf("%d MiB, about %v at %d MiB/s", n>>20, max(time.Second, migrate.TimeFor(n, passRate).Round(time.Second)), passRate>>20)
}

// describeRound returns "round 3: 1200 MiB read, 1180 MiB written, 14s; …" for users. d is the last
// round, o the estimate after it.
func describeRound(r *migrate.Run, d migrate.Round, o journal.OutageEstimate) string {
	const mib = 1 << 20
	text := fmt.Sprintf("round %d: %d MiB read, %d MiB written, %v", len(r.Record.Facts.Warm.Rounds), d.Read/mib, d.Copied/mib, d.Duration.Round(time.Second))
	if len(r.Record.Facts.Warm.Rounds) > 1 {
		text += fmt.Sprintf("; the guest writes %.1f MiB/s, which is copied at %d MiB/s", float64(o.Dirty)/mib, o.Rate/mib)
	}
	return text + fmt.Sprintf("; outage with a cutover now: about %v (%s)", o.Outage.Round(time.Second), outageParts(o))
}

// outageParts returns the parts of an outage as text: "delivery 12s, boot 40s".
func outageParts(o journal.OutageEstimate) string {
	text := ""
	if o.Delivery > 0 {
		text = fmt.Sprintf("delivery %v, ", o.Delivery.Round(time.Second))
	}
	if o.Boot == 0 {
		return text + "boot not included"
	}
	return text + fmt.Sprintf("boot %v", o.Boot)
}

// bootTime returns how long the guest is expected to boot, as part of the outage; 0 if unknown.
func bootTime(c migrate.Cutover) time.Duration {
	if c.Boot == nil {
		return 0
	}
	return *c.Boot
}
