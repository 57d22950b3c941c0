package planfile

import (
	"slices"
	"time"
)

// A span is a time during which a window is open. Adjacent openings form one span.
type span struct {
	from time.Time // the window opens
	to   time.Time // the window closes; exclusive
}

// windowDays is the number of days that are searched ahead. A window that does not close within them
// never closes, because weeks repeat.
const windowDays = 9

// At reports whether the window is open at t, and when that changes next; the zero time means never. An
// empty window is always open. Times are local times of the zone: a window may be shorter, or missing,
// on a day when the clock is put forward.
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

// openSpans returns the spans around t, in order and without overlaps. t must be in the zone of the
// window. It starts two days before t, because a window may have opened on an earlier day.
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

// spanOn returns the span that opens on a day. It ends on the next day if To is not after From.
func (w *Window) spanOn(day time.Time) span {
	at := func(days int, c Clock) time.Time {
		return time.Date(day.Year(), day.Month(), day.Day()+days, int(c)/minutesOfHour, int(c)%minutesOfHour, 0, 0, day.Location())
	}
	over := 0
	if w.To <= w.From {
		over = 1
	}
	return span{from: at(0, w.From), to: at(over, w.To)}
}

// beginsOn reports whether the window opens on a day of the week.
func (w *Window) beginsOn(day time.Weekday) bool {
	return len(w.Days) == 0 || slices.Contains(w.Days, Day(days[day]))
}

// location returns the zone of the window; UTC if none is set. parseText has checked that the zone
// exists.
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
