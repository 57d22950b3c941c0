package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/units"
)

// shellArgument quotes a word for a shell, and protects it from being read as a flag.
func shellArgument(s string) string {
	if strings.HasPrefix(s, "-") {
		return "-- " + fault.Quote(s)
	}
	return fault.Quote(s)
}

// printable replaces control characters by question marks. Names of VMs may contain escape sequences
// and newlines.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// countOf returns a number with its noun in singular or plural.
func countOf(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// sizeText formats bytes: see units.Binary.
func sizeText(n int64) string { return units.Binary(n) }

// rateText formats the rate of n bytes in d as MB/s.
func rateText(n int64, d time.Duration) string {
	if d <= 0 {
		return "- MB/s"
	}
	v := float64(n) / d.Seconds() / 1e6
	if v < 10 {
		return fmt.Sprintf("%.1f MB/s", v)
	}
	return fmt.Sprintf("%.0f MB/s", v)
}

// percentText formats part of whole as a percentage, rounded down: 100 % only if it is complete.
func percentText(part, whole int64) string {
	switch {
	case whole <= 0 || part >= whole:
		return "100 %"
	default:
		return fmt.Sprintf("%d %%", int64(float64(part)/float64(whole)*100))
	}
}

// durationText formats a duration: see units.Duration.
func durationText(d time.Duration) string { return units.Duration(d) }

// longTime formats a duration; from two days on in days.
func longTime(d time.Duration) string {
	const day = 24 * time.Hour
	if d < 2*day {
		return durationText(d)
	}
	return fmt.Sprintf("about %d days", int64((d+day/2)/day))
}
