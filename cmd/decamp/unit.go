package main

import (
	"fmt"
	"time"

	"github.com/decamp/decamp/internal/unit"
)

// Sizes are shown in binary units, as disks are made (GiB); rates in decimal ones, as
// networks are sold (MB/s).

// size shows bytes: see unit.Binary.
func size(n int64) string { return unit.Binary(n) }

// rate shows n bytes in d.
func rate(n int64, d time.Duration) string {
	if d <= 0 {
		return "- MB/s"
	}
	v := float64(n) / d.Seconds() / 1e6
	if v < 10 {
		return fmt.Sprintf("%.1f MB/s", v)
	}
	return fmt.Sprintf("%.0f MB/s", v)
}

// percent shows part of whole, and 100 % only when it is all.
func percent(part, whole int64) string {
	switch {
	case whole <= 0 || part >= whole:
		return "100 %"
	default:
		return fmt.Sprintf("%d %%", int64(float64(part)/float64(whole)*100))
	}
}

// duration shows a time: see unit.Duration.
func duration(d time.Duration) string { return unit.Duration(d) }

// sizeFlag is a size as a pflag value.
type sizeFlag int64

// String returns it in the largest unit that is whole.
func (f *sizeFlag) String() string {
	if *f == 0 {
		return ""
	}
	return unit.FormatSize(int64(*f))
}

func (f *sizeFlag) Type() string { return "SIZE" }

// Set reads what unit.ParseSize reads.
func (f *sizeFlag) Set(s string) error {
	n, err := unit.ParseSize(s)
	*f = sizeFlag(n)
	return err
}

// rateFlag is a rate as a pflag value.
type rateFlag int64

func (f *rateFlag) String() string { return "" }
func (f *rateFlag) Type() string   { return "RATE" }

// Set reads what unit.ParseRate reads.
func (f *rateFlag) Set(s string) error {
	n, err := unit.ParseRate(s)
	*f = rateFlag(n)
	return err
}
