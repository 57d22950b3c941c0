package units

import (
	"fmt"
	"time"
)

// Count returns a number with its noun in singular or plural.
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Rate formats the rate of n bytes in d as MB/s.
func Rate(n int64, d time.Duration) string {
	if d <= 0 {
		return "- MB/s"
	}
	v := float64(n) / d.Seconds() / 1e6
	if v < 10 {
		return fmt.Sprintf("%.1f MB/s", v)
	}
	return fmt.Sprintf("%.0f MB/s", v)
}

// Percent formats part of whole as a percentage, rounded down: 100 % only if it is complete.
func Percent(part, whole int64) string {
	switch {
	case whole <= 0 || part >= whole:
		return "100 %"
	default:
		return fmt.Sprintf("%d %%", int64(float64(part)/float64(whole)*100))
	}
}

// LongDuration formats a duration; from two days on in days.
func LongDuration(d time.Duration) string {
	const day = 24 * time.Hour
	if d < 2*day {
		return Duration(d)
	}
	return fmt.Sprintf("about %d days", int64((d+day/2)/day))
}
