package report

import (
	"cmp"
	"encoding/csv"
	"io"
	"strconv"
	"time"

	"github.com/decamp/decamp/internal/bench"
)

// column is a column of the table of rows. Its name contains the unit.
type column struct {
	name string                 // heading
	of   func(bench.Row) string // returns the value of a row; empty if not measured
}

// columns lists all columns in order.
var columns = []column{
	{"name", func(r bench.Row) string { return r.Name() }},
	{"source", func(r bench.Row) string { return r.Source }},
	{"transport", func(r bench.Row) string { return r.Transport.String() }},
	{"destination", func(r bench.Row) string { return r.Destination }},
	{"nic", func(r bench.Row) string { return r.NIC }},
	{"mtu", func(r bench.Row) string { return formatNonZero(float64(r.MTU)) }},
	{"export", func(r bench.Row) string { return string(r.Export) }},
	{"streams", func(r bench.Row) string { return formatNonZero(float64(r.Streams)) }},
	{"vms", func(r bench.Row) string { return formatNonZero(float64(r.Together)) }},
	{"copies", func(r bench.Row) string { return formatNonZero(float64(r.Copies)) }},
	{"rate_MiBs", func(r bench.Row) string { return formatFixed(r.Rate()) }},
	{"wire_MiBs", func(r bench.Row) string { return formatNonZero(r.Wire) }},
	{"seconds", func(r bench.Row) string { return formatFixed(r.Seconds) }},
	{"allocated_B", func(r bench.Row) string { return strconv.FormatInt(r.Allocated, 10) }},
	{"read_IOPS", func(r bench.Row) string { return formatNonZero(r.Read.IOPS) }},
	{"read_MiBs", func(r bench.Row) string { return formatNonZero(r.Read.MiBs) }},
	{"write_IOPS", func(r bench.Row) string { return formatNonZero(r.Written.IOPS) }},
	{"write_MiBs", func(r bench.Row) string { return formatNonZero(r.Written.MiBs) }},
	{"write_busy", func(r bench.Row) string { return formatNonZero(r.Written.Busy) }},
	{"cpu_s", func(r bench.Row) string { return formatNonZero(r.CPU) }},
	{"retransmits", formatRetransmits},
	{"at", formatTime},
	{"version", func(r bench.Row) string { return r.On.Version }},
	{"commit", func(r bench.Row) string { return r.On.Commit }},
	{"host", func(r bench.Row) string { return r.On.Host }},
	{"kernel", func(r bench.Row) string { return r.On.Kernel }},
	{"fill", func(r bench.Row) string { return formatNonZero(r.On.Fill) }},
	{"seed", formatSeed},
	{"origin", func(r bench.Row) string { return r.Origin }},
	{"note", func(r bench.Row) string { return r.Note }},
}

// decimals is the number of digits after the decimal point; no measurement is more
// precise.
const decimals = 3

// formatFixed formats a number with at most three decimals, without trailing zeros.
func formatFixed(v float64) string {
	text := strconv.FormatFloat(v, 'f', decimals, 64)
	short, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return text
	}
	return strconv.FormatFloat(short, 'f', -1, 64)
}

// formatNonZero formats a number, and returns "" for 0, which was not measured.
func formatNonZero(v float64) string {
	if v == 0 {
		return ""
	}
	return formatFixed(v)
}

// formatRetransmits returns the retransmitted segments, or "" if they were not counted.
func formatRetransmits(r bench.Row) string {
	if r.Retransmits == nil {
		return ""
	}
	return strconv.FormatInt(*r.Retransmits, 10)
}

// formatSeed returns the seed of a computed disk, or "".
func formatSeed(r bench.Row) string {
	if r.On.Seed == 0 {
		return ""
	}
	return strconv.FormatUint(r.On.Seed, 10)
}

// formatTime returns the end of the measurement in UTC (RFC 3339), or "".
func formatTime(r bench.Row) string {
	if r.At.IsZero() {
		return ""
	}
	return r.At.UTC().Format(time.RFC3339)
}

// WriteCSV writes a header and one line per row (RFC 4180).
func WriteCSV(w io.Writer, r Report) error {
	c := csv.NewWriter(w)
	line := []string{"set"}
	for _, col := range columns {
		line = append(line, col.name)
	}
	errs := c.Write(line)
	for _, s := range r.Sets {
		for _, row := range s.Rows {
			line = append(line[:0], s.Name)
			for _, col := range columns {
				line = append(line, col.of(row))
			}
			// The first error counts; the writer keeps it.
			errs = cmp.Or(errs, c.Write(line))
		}
	}
	c.Flush()
	return cmp.Or(errs, c.Error())
}
