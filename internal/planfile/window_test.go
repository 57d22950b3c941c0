package planfile

import (
	"fmt"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/sched/budget"
)

func parseTime(t *testing.T, text string) time.Time {
	t.Helper()
	when, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return when
}

// parseWindow parses a window as in a plan.
func parseWindow(t *testing.T, text string) *Window {
	t.Helper()
	f := mustParse(t, minimal+"limits: {bandwidth: [{rate: 1M, "+text+"}]}\n")
	return &f.Limits.Bandwidth[0].Window
}

func TestWindows(t *testing.T) {
	const (
		night  = `from: "22:00", to: "04:00"`
		berlin = night + ", zone: Europe/Berlin"
	)
	for _, c := range []struct {
		window, at string
		open       bool
		turns      string // time of the next change; empty if never
	}{
		{night, "2026-11-19T21:59:59Z", false, "2026-11-19T22:00:00Z"},
		{night, "2026-11-19T22:00:00Z", true, "2026-11-20T04:00:00Z"},
		{night, "2026-11-20T03:59:59Z", true, "2026-11-20T04:00:00Z"},
		{night, "2026-11-20T04:00:00Z", false, "2026-11-20T22:00:00Z"},
		{berlin, "2026-11-19T20:59:59Z", false, "2026-11-19T21:00:00Z"},
		{berlin, "2026-07-19T20:00:00Z", true, "2026-07-20T02:00:00Z"}, // summer

		// The window of Friday night continues on Saturday. Saturday has no window.
		{night + ", days: [fri]", "2026-11-21T03:00:00Z", true, "2026-11-21T04:00:00Z"},
		{night + ", days: [fri]", "2026-11-21T23:00:00Z", false, "2026-11-27T22:00:00Z"},
		{night + ", days: [fri]", "2026-11-20T01:00:00Z", false, "2026-11-20T22:00:00Z"},

		// Whole days that follow each other, and all days.
		{"days: [sat, sun]", "2026-11-21T00:00:00Z", true, "2026-11-23T00:00:00Z"},
		{"days: [sat, sun]", "2026-11-20T23:59:59Z", false, "2026-11-21T00:00:00Z"},
		{"days: [sun, mon, tue, wed, thu, fri, sat]", "2026-11-20T23:59:59Z", true, ""},
		{`days: [mon], from: "00:00", to: "23:59"`, "2026-11-23T23:59:00Z", false, "2026-11-30T00:00:00Z"},

		// The clock is put forward from 02:00 to 03:00, and back from 03:00 to 02:00.
		{`from: "01:00", to: "04:00", zone: Europe/Berlin`, "2026-03-29T00:00:00Z", true, "2026-03-29T02:00:00Z"},
		{`from: "01:00", to: "04:00", zone: Europe/Berlin`, "2026-10-24T23:00:00Z", true, "2026-10-25T03:00:00Z"},
		{`from: "12:00", to: "13:00", zone: Europe/Berlin`, "2026-10-24T12:00:00Z", false, "2026-10-25T11:00:00Z"},
		{`from: "12:00", to: "13:00", zone: Asia/Kolkata`, "2026-10-24T00:00:00Z", false, "2026-10-24T06:30:00Z"},
	} {
		t.Run(c.window+" "+c.at, func(t *testing.T) {
			open, turns := parseWindow(t, c.window).At(parseTime(t, c.at))
			if open != c.open || turns.IsZero() != (c.turns == "") || c.turns != "" && !turns.Equal(parseTime(t, c.turns)) {
				t.Errorf("got open %v until %v, want %v until %s", open, turns.UTC(), c.open, c.turns)
			}
		})
	}
	if open, turns := (&Window{}).At(time.Now()); !open || !turns.IsZero() {
		t.Error("an empty window is not always open")
	}
}

// The window changes exactly at the time that At returns, also in zones with daylight saving time.
func TestWindowChangesAtReturnedTime(t *testing.T) {
	for _, zone := range []string{"Europe/Berlin", "Australia/Lord_Howe", "America/St_Johns", "UTC"} {
		for _, text := range []string{`from: "22:00", to: "04:00"`, `from: "02:30", to: "02:45"`, `from: "00:00", to: "12:00", days: [sun, wed]`} {
			w := parseWindow(t, text+", zone: "+zone)
			now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			for end := now.AddDate(1, 0, 0); now.Before(end); {
				open, turns := w.At(now)
				if !turns.After(now) {
					t.Fatalf("%s %s: at %v the next change is %v", zone, text, now, turns)
				}
				if before, _ := w.At(turns.Add(-time.Second)); before != open {
					t.Fatalf("%s %s: the window changes before %v", zone, text, turns)
				}
				if after, _ := w.At(turns); after == open {
					t.Fatalf("%s %s: the window does not change at %v", zone, text, turns)
				}
				now = turns
			}
		}
	}
}

// At each minute, the rate is that of the first open entry of the plan, in its own zone. Without an open entry, the
// rate is unlimited.
func TestBandwidthOfAFileIsABudget(t *testing.T) {
	for _, text := range []string{
		"[{rate: 5M}]",
		`[{rate: 1M, from: "08:30", to: "18:00", days: [mon, tue, wed, thu, fri], zone: Europe/Berlin}, {rate: 2M, from: "17:00", to: "09:15"}]`,
		`[{rate: 1M, days: [sat, sun], zone: Asia/Kolkata}, {rate: 0, from: "23:59", to: "00:01"}, {rate: 3M}]`,
	} {
		f := mustParse(t, minimal+"limits: {bandwidth: "+text+"}\n")
		w := f.Limits.Week()
		now := time.Date(2026, 11, 16, 0, 0, 0, 0, time.UTC)
		for end := now.AddDate(0, 0, 8); now.Before(end); now = now.Add(time.Minute) {
			want := int64(budget.Unlimited)
			for _, b := range f.Limits.Bandwidth {
				if open, _ := b.At(now); open {
					want = int64(b.Rate)
					break
				}
			}
			if got := w.At(now); got != want {
				t.Fatalf("%s: got rate %d at %v, want %d", text, got, now, want)
			}
		}
		if err := budget.New(budget.Wall()).Set("link:wan", w); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestNoBandwidthMeansUnlimited(t *testing.T) {
	w := (&Limits{}).Week()
	if got := w.At(time.Unix(0, 0)); got != budget.Unlimited {
		t.Errorf("got %d bytes/s, want no limit", got)
	}
}

func TestHostLimitsAreCapacities(t *testing.T) {
	f := mustParse(t, minimal+"limits: {host: {vms: 20, disks: 40}}\n")
	if got := f.Limits.Host.Capacities("esx1"); fmt.Sprint(got) != "map[host:esx1/disks:40 host:esx1/vms:20]" {
		t.Errorf("got %v", got)
	}
	if got := (HostLimits{VMs: 3}).Capacities("esx1"); fmt.Sprint(got) != "map[host:esx1/vms:3]" {
		t.Errorf("got %v", got)
	}
}
