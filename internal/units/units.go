// Package units parses and formats numbers of bytes. Sizes have binary units (GiB), as disks
// of VMs have; rates have decimal units (MB/s), as network links have.
package units

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// shifts has the binary logarithm of each unit of a size.
var shifts = map[string]int{"": 0, "B": 0, "K": 10, "M": 20, "G": 30, "T": 40, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}

// ParseSize parses "100M", "8GiB" or a number of bytes. K, M, G and T are binary units. It fails for
// fractions, signs, unknown units and overflow.
func ParseSize(s string) (int64, error) {
	// the rest of s after the digits must be a unit in shifts
	digits := strings.TrimRight(s, "BKMGTi")
	n, err := strconv.ParseInt(digits, 10, 64)
	shift, known := shifts[s[len(digits):]]
	if err != nil || n < 0 || !known || n > math.MaxInt64>>shift {
		return 0, fmt.Errorf("size %q: want a whole number with K, M, G or T", s)
	}
	return n << shift, nil
}

// FormatSize formats n in the largest unit that divides it, so that ParseSize returns n.
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

// scales has the factor of each unit of a rate.
var scales = map[string]float64{"": 1, "K": 1e3, "M": 1e6, "G": 1e9}

// maxRate is an exclusive limit that no real rate reaches, in bytes per second. It keeps the
// conversion to int64 from overflowing.
const maxRate = 1e15

// ParseRate parses a rate with a decimal unit: "55M" is 55,000,000 bytes per second. Fractions are
// permitted.
func ParseRate(s string) (int64, error) {
	digits := strings.TrimRight(s, "KMG")
	v, err := strconv.ParseFloat(digits, 64)
	scale, known := scales[s[len(digits):]]
	if v *= scale; err != nil || !known || !(v >= 0 && v < maxRate) {
		return 0, fmt.Errorf("rate %q: want a number of bytes a second with K, M or G", s)
	}
	return int64(v), nil
}

// Binary formats bytes with about three digits: "512 B", "64 MiB", "1.5 GiB". Negative numbers are
// formatted as bytes.
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

// Duration formats d with two or three digits: "40ms", "3.2s", "1m5s".
func Duration(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
