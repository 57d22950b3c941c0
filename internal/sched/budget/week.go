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

// A Week is a rate by the hour of the week.
type Week struct {
	Rate  int64          // bytes per second where no rule says otherwise; 0 lets nothing through, Unlimited all
	Rules []Rule         // the last that matches counts
	Zone  *time.Location // whose clock the hours are of; nil is the local one
}

// A Rule is the rate from hour From to hour To of some days: 0 <= From, To <= 24. Where To
// is not after From it goes on to that hour of the next day: 22 to 6 is a night, which
// belongs to the day it began on.
type Rule struct {
	Days     Days
	From, To int
	Rate     int64
}

const hoursOfDay = 24

// check returns what is wrong with w.
func (w Week) check() error {
	if w.Rate < Unlimited {
		return fault.New(fault.Invalid, "a rate of %d bytes/s", w.Rate)
	}
	for _, r := range w.Rules {
		if r.Rate < Unlimited || r.From < 0 || r.From >= hoursOfDay || r.To < 0 || r.To > hoursOfDay || r.Days == 0 || r.Days > Always {
			return fault.New(fault.Invalid, "a rate of %d bytes/s from %d to %d h on days %07b", r.Rate, r.From, r.To, r.Days).WithHint("hours go from 0 to 24")
		}
	}
	return nil
}

// at returns the rate at t.
func (w Week) at(t time.Time) int64 {
	t = t.In(w.zone())
	rate := w.Rate
	for _, r := range w.Rules {
		if r.covers(t.Weekday(), t.Hour()) {
			rate = r.Rate
		}
	}
	return rate
}

func (r Rule) covers(day time.Weekday, hour int) bool {
	if r.From < r.To {
		return r.Days.has(day) && hour >= r.From && hour < r.To
	}
	yesterday := (day + 6) % 7
	return r.Days.has(day) && hour >= r.From || r.Days.has(yesterday) && hour < r.To
}

func (d Days) has(day time.Weekday) bool { return d>>day&1 == 1 }

// turn returns the end of t's hour, on the clock that counts: rates change there only.
func (w Week) turn(t time.Time) time.Time {
	t = t.In(w.zone())
	into := time.Duration(t.Minute())*time.Minute + time.Duration(t.Second())*time.Second + time.Duration(t.Nanosecond())
	return t.Add(time.Hour - into)
}

func (w Week) zone() *time.Location {
	if w.Zone == nil {
		return time.Local
	}
	return w.Zone
}
