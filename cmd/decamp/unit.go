package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Sizes are shown in binary units, as disks are made (GiB); rates in decimal ones, as
// networks are sold (MB/s).

// size shows bytes with three digits or so: "512 B", "64 MiB", "1.5 GiB".
func size(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	v, u := float64(n), 0
	for v >= 1024 && u < len(units)-1 {
		v, u = v/1024, u+1
	}
	if v >= 100 || v == math.Trunc(v) {
		return fmt.Sprintf("%.0f %s", v, units[u])
	}
	return fmt.Sprintf("%.1f %s", v, units[u])
}

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

// duration shows two or three digits: "40ms", "3.2s", "1m5s".
func duration(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// unitShift is the power of two behind a size's unit.
var unitShift = map[string]int{"": 0, "B": 0, "K": 10, "M": 20, "G": 30, "T": 40, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}

// parseSize reads "100M", "8GiB" or a number of bytes; K, M, G and T are binary.
func parseSize(s string) (int64, error) {
	digits := strings.TrimRight(s, "BKMGTi")
	n, err := strconv.ParseInt(digits, 10, 64)
	shift, known := unitShift[s[len(digits):]]
	if err != nil || n < 0 || !known || n > math.MaxInt64>>shift {
		return 0, fmt.Errorf("size %q: want a whole number with K, M, G or T", s)
	}
	return n << shift, nil
}

// sizeFlag is a size as a pflag value.
type sizeFlag int64

// String returns it in the largest unit that is whole.
func (f *sizeFlag) String() string {
	n, units := int64(*f), "KMGT"
	if n == 0 {
		return ""
	}
	unit := ""
	for ; n%1024 == 0 && units != ""; units = units[1:] {
		n, unit = n/1024, units[:1]
	}
	return strconv.FormatInt(n, 10) + unit
}

func (f *sizeFlag) Type() string { return "SIZE" }

// Set reads what parseSize reads.
func (f *sizeFlag) Set(s string) error {
	n, err := parseSize(s)
	*f = sizeFlag(n)
	return err
}

// rateScale is what a rate's unit stands for: decimal, as rates are shown.
var rateScale = map[string]float64{"": 1, "K": 1e3, "M": 1e6, "G": 1e9}

// parseRate reads "55M": 55 MB/s.
func parseRate(s string) (int64, error) {
	digits := strings.TrimRight(s, "KMG")
	v, err := strconv.ParseFloat(digits, 64)
	scale, known := rateScale[s[len(digits):]]
	if v *= scale; err != nil || !known || !(v >= 0 && v < 1e15) {
		return 0, fmt.Errorf("rate %q: want a number of bytes a second with K, M or G", s)
	}
	return int64(v), nil
}

// rateFlag is a rate as a pflag value.
type rateFlag int64

func (f *rateFlag) String() string { return "" }
func (f *rateFlag) Type() string   { return "RATE" }

// Set reads what parseRate reads.
func (f *rateFlag) Set(s string) error {
	n, err := parseRate(s)
	*f = rateFlag(n)
	return err
}
