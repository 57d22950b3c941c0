package sched

import (
	"fmt"
	"strings"
	"time"
)

// Text returns the reason of the run's wait as one line: "host esx3: 20 of 20 vms; next in about 4
// min".
func (w Waiting) Text(now time.Time) string {
	switch w.Reason {
	case Paused:
		return w.Paused + " is paused"
	case OutsideWindows:
		if w.Opens.IsZero() {
			return "its last window has ended"
		}
		return "its window opens " + inAbout(w.Opens, now)
	case Undecided:
		return "begins now"
	}
	return w.worstBlock().text(now)
}

// worstBlock returns the block for the sentence: a closed resource, else the one that becomes free
// last. w must have a block.
func (w Waiting) worstBlock() Block {
	for _, b := range w.Blocks {
		if b.Closed {
			return b
		}
	}
	return w.Blocks[0]
}

// text returns the use of the resource and the estimate: "host esx3: 20 of 20 vms; next in about
// 4 min".
func (b Block) text(now time.Time) string {
	owner, unit := splitResource(b.Resource)
	if b.Closed {
		return strings.TrimSpace(owner+" "+unit) + " is closed: its capacity is 0"
	}
	line := fmt.Sprintf("%s: %s of %s", owner, formatUnits(b.Used), formatUnits(b.Capacity))
	if unit != "" {
		line += " " + unit
	}
	if b.Needs > 1 {
		line += ", needs " + formatUnits(b.Needs)
	}
	if b.ReservedFor != "" {
		line += ", the rest is reserved for " + b.ReservedFor
	}
	return line + "; " + b.estimateText(now)
}

// estimateText returns when units become free, as far as that is known.
func (b Block) estimateText(now time.Time) string {
	switch {
	case b.Next.IsZero() && b.Free.IsZero():
		return "the end of the running transfers is unknown"
	case b.Free.IsZero() || !b.Free.Equal(b.Next):
		line := "next " + inAbout(b.Next, now)
		if !b.Free.IsZero() {
			line += ", enough " + inAbout(b.Free, now)
		}
		return line
	}
	return "next " + inAbout(b.Next, now)
}

// splitResource splits "host:esx3/vms" into "host esx3" and "vms".
func splitResource(resource string) (owner, unit string) {
	owner, unit, _ = strings.Cut(resource, "/")
	return strings.Replace(owner, ":", " ", 1), unit
}

// formatUnits formats a number of units. Numbers from 2^20 on are bytes: no resource has a million
// slots.
func formatUnits(units int64) string {
	const mebi, gibi = 1 << 20, 1 << 30
	switch {
	case units == Unlimited:
		return "no limit"
	case units >= 10*gibi:
		return fmt.Sprintf("%d GiB", units/gibi)
	case units >= mebi:
		return fmt.Sprintf("%d MiB", units/mebi)
	}
	return fmt.Sprint(units)
}

// inAbout returns the time from now to t, rounded to the precision of an estimate.
func inAbout(t, now time.Time) string {
	d := t.Sub(now)
	switch {
	case d <= 0:
		return "at any moment"
	case d < time.Minute:
		return "in less than a minute"
	case d < 2*time.Hour:
		return fmt.Sprintf("in about %d min", (d+time.Minute/2)/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("in about %d h", (d+time.Hour/2)/time.Hour)
	}
	return fmt.Sprintf("in about %d days", (d+12*time.Hour)/(24*time.Hour))
}
