package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/units"
)

// shellArgument is fault.Quote for a word that a program must not take for a flag.
func shellArgument(s string) string {
	if strings.HasPrefix(s, "-") {
		return "-- " + fault.Quote(s)
	}
	return fault.Quote(s)
}

// printable makes text from the source safe to print: a VM may be called anything, escape
// sequences and newlines included.
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

// sizeText shows bytes: see units.Binary.
func sizeText(n int64) string { return units.Binary(n) }

// rateText shows n bytes in d.
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

// percentText shows part of whole, and 100 % only when it is all.
func percentText(part, whole int64) string {
	switch {
	case whole <= 0 || part >= whole:
		return "100 %"
	default:
		return fmt.Sprintf("%d %%", int64(float64(part)/float64(whole)*100))
	}
}

// durationText shows a time: see units.Duration.
func durationText(d time.Duration) string { return units.Duration(d) }
