package planfile

import (
	"slices"
	"time"
)

// A span is one time that a window is open, or several without a gap.
type span struct{ from, to time.Time }

// windowDays is how far ahead a window is looked at: one that does not close until then is open
// always, because weeks repeat.
const windowDays = 9

// At reports whether the window is open at t, and when that changes next; zero is never. An
// empty window is open always. Times are those of the clock on the wall: on the night that it
// is put forward a window may be shorter, or not be at all.
func (w *Window) At(t time.Time) (open bool, turns time.Time) {
	if w.isEmpty() {
		return true, time.Time{}
	}
	spans := w.openSpans(t.In(w.location()))
	i := slices.IndexFunc(spans, func(s span) bool { return s.to.After(t) })
	switch {
	case i < 0:
		return false, time.Time{}
	case spans[i].from.After(t):
		return false, spans[i].from
	case spans[i].to.Sub(t) > (windowDays-2)*24*time.Hour:
		return true, time.Time{}
	}
	return true, spans[i].to
}

// openSpans returns when the window is open in the days around t, which is on the window's clock.
func (w *Window) openSpans(t time.Time) (list []span) {
	for n := -2; n <= windowDays; n++ {
		day := time.Date(t.Year(), t.Month(), t.Day()+n, 0, 0, 0, 0, t.Location())
		if !w.beginsOn(day.Weekday()) {
			continue
		}
		s := w.spanOn(day)
		last := len(list) - 1
		switch {
		case !s.to.After(s.from):
		case last >= 0 && !s.from.After(list[last].to):
			list[last].to = s.to
		default:
			list = append(list, s)
		}
	}
	return list
}

// spanOn is when the window is open that begins on a day.
func (w *Window) spanOn(day time.Time) span {
	at := func(days int, c Clock) time.Time {
		return time.Date(day.Year(), day.Month(), day.Day()+days, int(c)/minutesOfHour, int(c)%minutesOfHour, 0, 0, day.Location())
	}
	over := 0
	if w.To <= w.From {
		over = 1
	}
	return span{at(0, w.From), at(over, w.To)}
}

func (w *Window) beginsOn(day time.Weekday) bool {
	return len(w.Days) == 0 || slices.Contains(w.Days, Day(days[day]))
}

// location is whose clock the window's times are of. It was found when the file was read.
func (w *Window) location() *time.Location {
	if w.Zone == "" {
		return time.UTC
	}
	zone, err := time.LoadLocation(string(w.Zone))
	if err != nil {
		return time.UTC
	}
	return zone
}
