package main

import (
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

// printable replaces control characters: see fault.Printable.
func printable(s string) string { return fault.Printable(s) }

// countOf returns a number with its noun: see units.Count.
func countOf(n int, what string) string { return units.Count(n, what) }

// sizeText formats bytes: see units.Binary.
func sizeText(n int64) string { return units.Binary(n) }

// rateText formats the rate of n bytes in d: see units.Rate.
func rateText(n int64, d time.Duration) string { return units.Rate(n, d) }

// percentText formats part of whole: see units.Percent.
func percentText(part, whole int64) string { return units.Percent(part, whole) }

// durationText formats a duration: see units.Duration.
func durationText(d time.Duration) string { return units.Duration(d) }
