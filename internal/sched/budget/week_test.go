package budget

import (
	"testing"
	"time"
	_ "time/tzdata" // the machine may have no time zone database
)

func TestHoursOfTheWeek(t *testing.T) {
	w := Week{Rate: 1, Zone: time.UTC, Rules: []Rule{
		{Days: Workdays, From: 8 * Hour, To: 18 * Hour, Rate: 2},
		{Days: 1 << time.Friday, From: 22 * Hour, To: 6 * Hour, Rate: 3},
		{Days: 1 << time.Sunday, From: 0, To: 24 * Hour, Rate: 4},
		{Days: 1 << time.Saturday, From: 12 * Hour, To: 12 * Hour, Rate: 5}, // 24 hours from noon
	}}
	for _, c := range []struct {
		at   string
		rate int64
	}{
		{"2026-11-19T07:59:59Z", 1}, // Thursday
		{"2026-11-19T08:00:00Z", 2},
		{"2026-11-19T17:59:59Z", 2},
		{"2026-11-19T18:00:00Z", 1},
		{"2026-11-20T21:59:59Z", 1}, // Friday
		{"2026-11-20T22:00:00Z", 3},
		{"2026-11-21T05:59:59Z", 3}, // still the rule of Friday
		{"2026-11-21T06:00:00Z", 1},
		{"2026-11-21T12:00:00Z", 5},
		{"2026-11-22T11:59:59Z", 5}, // the last rule counts, on Sunday too
		{"2026-11-22T12:00:00Z", 4},
		{"2026-11-22T23:59:59Z", 4},
		{"2026-11-23T00:00:00Z", 1},
	} {
		at, err := time.Parse(time.RFC3339, c.at)
		if err != nil {
			t.Fatal(err)
		}
		if got := w.At(at); got != c.rate {
			t.Errorf("%s: %d, want %d", c.at, got, c.rate)
		}
	}
}

// The hours of a rule are those of the zone's clock. This also holds in nights with a change of daylight saving time,
// and in zones whose offset from UTC is not a whole hour.
func TestRuleHoursFollowTimeZone(t *testing.T) {
	for _, name := range []string{"Europe/Berlin", "Asia/Kolkata", "Australia/Lord_Howe", "America/St_Johns", "UTC"} {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		w := Week{Rate: 1, Zone: zone, Rules: []Rule{{Days: Always, From: 2 * Hour, To: 4 * Hour, Rate: 2}}}
		end := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
		for at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC); at.Before(end); at = at.Add(15 * time.Minute) {
			hour, want := at.In(zone).Hour(), int64(1)
			if hour == 2 || hour == 3 {
				want = 2
			}
			if got := w.At(at); got != want {
				t.Fatalf("%s: rate %d at %v, want %d", name, got, at.In(zone), want)
			}
			next := w.endOfMinute(at)
			if !next.After(at) || next.Sub(at) > time.Hour {
				t.Fatalf("%s: the minute of %v ends at %v", name, at.In(zone), next)
			}
		}
	}
}
