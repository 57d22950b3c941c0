// Package units reads and writes numbers of bytes as people do. Sizes are in binary units, as
// disks are made (GiB); rates in decimal ones, as networks are sold (MB/s).
package units

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// shifts is the power of two behind a size's unit.
var shifts = map[string]int{"": 0, "B": 0, "K": 10, "M": 20, "G": 30, "T": 40, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}

// ParseSize reads "100M", "8GiB" or a number of bytes; K, M, G and T are binary.
func ParseSize(s string) (int64, error) {
	digits := strings.TrimRight(s, "BKMGTi")
	n, err := strconv.ParseInt(digits, 10, 64)
	shift, known := shifts[s[len(digits):]]
	if err != nil || n < 0 || !known || n > math.MaxInt64>>shift {
		return 0, fmt.Errorf("size %q: want a whole number with K, M, G or T", s)
	}
	return n << shift, nil
}

// FormatSize writes n in the largest unit that is whole, so that ParseSize reads it back.
func FormatSize(n int64) string {
	if n == 0 {
		return "0"
	}
	unit := ""
	for units := "KMGT"; n%1024 == 0 && units != ""; units = units[1:] {
		n, unit = n/1024, units[:1]
	}
	return strconv.FormatInt(n, 10) + unit
}

// scales is what a rate's unit stands for.
var scales = map[string]float64{"": 1, "K": 1e3, "M": 1e6, "G": 1e9}

// mostRate is above every rate that there is, in bytes a second.
const mostRate = 1e15

// ParseRate reads "55M": 55 MB/s.
func ParseRate(s string) (int64, error) {
	digits := strings.TrimRight(s, "KMG")
	v, err := strconv.ParseFloat(digits, 64)
	scale, known := scales[s[len(digits):]]
	if v *= scale; err != nil || !known || !(v >= 0 && v < mostRate) {
		return 0, fmt.Errorf("rate %q: want a number of bytes a second with K, M or G", s)
	}
	return int64(v), nil
}

// Binary shows bytes with three digits or so: "512 B", "64 MiB", "1.5 GiB".
func Binary(n int64) string {
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

// Duration writes d with two or three digits: "40ms", "3.2s", "1m5s".
func Duration(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
