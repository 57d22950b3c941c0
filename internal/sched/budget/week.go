package budget

import (
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// Unlimited is the rate of a budget that only counts.
const Unlimited = -1

// Days is a set of days of the week: bit 0 is Sunday, as in time.Weekday.
type Days uint8

const (
	// Monday to Friday
	Workdays Days = 1<<time.Monday | 1<<time.Tuesday | 1<<time.Wednesday | 1<<time.Thursday | 1<<time.Friday
	Weekend  Days = 1<<time.Saturday | 1<<time.Sunday // Saturday and Sunday
	Always   Days = Workdays | Weekend                // every day
)

// A Week is a rate by the minute of the week.
type Week struct {
	Rate  int64          // bytes per second outside of all rules; 0 permits nothing, Unlimited sets no limit
	Rules []Rule         // exceptions from Rate; the last matching rule counts
	Zone  *time.Location // time zone of the rules; nil is the local one
}

// A Rule is the rate from From to To on some days, in minutes since midnight: 0 <= From < 24 x Hour, 0
// <= To <= 24 x Hour. If To is not after From, the rule lasts until that time of the next day: 22 h to
// 6 h is a night, which belongs to the day on which it began.
type Rule struct {
	Days     Days           // days on which the rule begins
	From, To int            // minutes since midnight; From is inclusive, To is exclusive
	Rate     int64          // bytes per second; 0 permits nothing, Unlimited sets no limit
	Zone     *time.Location // time zone; nil is that of the Week
}

// Hour is an hour of a Rule's times.
const Hour = 60

// day is the number of minutes of a day.
const day = 24 * Hour

// check returns fault.Invalid if a rate, a time or a set of days is out of range.
func (w Week) check() error {
	if w.Rate < Unlimited {
		return fault.New(fault.Invalid, "a rate of %d bytes/s", w.Rate)
	}
	for _, r := range w.Rules {
		if r.Rate < Unlimited || r.From < 0 || r.From >= day || r.To < 0 || r.To > day || r.Days == 0 || r.Days > Always {
			return fault.New(fault.Invalid, "a rate of %d bytes/s from minute %d to %d on days %07b", r.Rate, r.From, r.To, r.Days).WithHint("a day has %d minutes", day)
		}
	}
	return nil
}

// At returns the rate at t, in bytes per second.
func (w Week) At(t time.Time) int64 {
	rate := w.Rate
	for _, r := range w.Rules {
		if r.isActiveAt(t.In(w.zoneOf(r))) {
			rate = r.Rate
		}
	}
	return rate
}

// isActiveAt reports whether the rule applies at t, which must be in the rule's time zone.
func (r Rule) isActiveAt(t time.Time) bool {
	today, at := t.Weekday(), t.Hour()*Hour+t.Minute()
	if r.From < r.To {
		return r.Days.has(today) && at >= r.From && at < r.To
	}
	yesterday := (today + 6) % 7
	return r.Days.has(today) && at >= r.From || r.Days.has(yesterday) && at < r.To
}

// has reports whether the set contains a day.
func (d Days) has(day time.Weekday) bool { return d>>day&1 == 1 }

// endOfMinute returns the end of t's minute. Rates change only there, in all time zones.
func (w Week) endOfMinute(t time.Time) time.Time { return t.Truncate(time.Minute).Add(time.Minute) }

// zoneOf returns the time zone of a rule: its own, else that of the week, else the local one.
func (w Week) zoneOf(r Rule) *time.Location {
	switch {
	case r.Zone != nil:
		return r.Zone
	case w.Zone != nil:
		return w.Zone
	}
	return time.Local
}
