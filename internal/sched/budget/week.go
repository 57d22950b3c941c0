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
	Workdays Days = 1<<time.Monday | 1<<time.Tuesday | 1<<time.Wednesday | 1<<time.Thursday | 1<<time.Friday
	Weekend  Days = 1<<time.Saturday | 1<<time.Sunday
	Always   Days = Workdays | Weekend
)

// A Week is a rate by the minute of the week.
type Week struct {
	Rate  int64          // bytes per second outside of all rules; 0 permits nothing, Unlimited sets no limit
	Rules []Rule         // the last that matches counts
	Zone  *time.Location // time zone of the rules; nil is the local one
}

// A Rule is the rate from From to To on some days, in minutes since midnight: 0 <= From, To <=
// 24 x Hour. Where To is not after From it goes on to that time of the next day: 22 h to 6 h is
// a night, which belongs to the day it began on.
type Rule struct {
	Days     Days
	From, To int
	Rate     int64
	Zone     *time.Location // time zone; nil is that of the Week
}

// Hour is an hour of a Rule's times.
const Hour = 60

const day = 24 * Hour

// check returns an error if w is invalid.
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

// At returns the rate at t.
func (w Week) At(t time.Time) int64 {
	rate := w.Rate
	for _, r := range w.Rules {
		if r.isActiveAt(t.In(w.zoneOf(r))) {
			rate = r.Rate
		}
	}
	return rate
}

func (r Rule) isActiveAt(t time.Time) bool {
	today, at := t.Weekday(), t.Hour()*Hour+t.Minute()
	if r.From < r.To {
		return r.Days.has(today) && at >= r.From && at < r.To
	}
	yesterday := (today + 6) % 7
	return r.Days.has(today) && at >= r.From || r.Days.has(yesterday) && at < r.To
}

func (d Days) has(day time.Weekday) bool { return d>>day&1 == 1 }

// endOfMinute returns the end of t's minute: rates change there only, whatever the zone.
func (w Week) endOfMinute(t time.Time) time.Time { return t.Truncate(time.Minute).Add(time.Minute) }

func (w Week) zoneOf(r Rule) *time.Location {
	switch {
	case r.Zone != nil:
		return r.Zone
	case w.Zone != nil:
		return w.Zone
	}
	return time.Local
}
