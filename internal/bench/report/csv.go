package report

import (
	"cmp"
	"encoding/csv"
	"io"
	"strconv"
	"time"

	"github.com/decamp/decamp/internal/bench"
)

// column is one of the table of rows: its name has the unit, its value is empty where nothing was
// measured.
type column struct {
	name string
	of   func(bench.Row) string
}

var columns = []column{
	{"name", func(r bench.Row) string { return r.Name() }},
	{"source", func(r bench.Row) string { return r.Source }},
	{"transport", func(r bench.Row) string { return r.Transport.String() }},
	{"destination", func(r bench.Row) string { return r.Destination }},
	{"nic", func(r bench.Row) string { return r.NIC }},
	{"mtu", func(r bench.Row) string { return some(float64(r.MTU)) }},
	{"export", func(r bench.Row) string { return string(r.Export) }},
	{"streams", func(r bench.Row) string { return some(float64(r.Streams)) }},
	{"vms", func(r bench.Row) string { return some(float64(r.Together)) }},
	{"copies", func(r bench.Row) string { return some(float64(r.Copies)) }},
	{"rate_MiBs", func(r bench.Row) string { return fixed(r.Rate()) }},
	{"told_MiBs", func(r bench.Row) string { return some(r.Wire) }},
	{"seconds", func(r bench.Row) string { return fixed(r.Seconds) }},
	{"allocated_B", func(r bench.Row) string { return strconv.FormatInt(r.Allocated, 10) }},
	{"read_IOPS", func(r bench.Row) string { return some(r.Read.IOPS) }},
	{"read_MiBs", func(r bench.Row) string { return some(r.Read.MiBs) }},
	{"write_IOPS", func(r bench.Row) string { return some(r.Written.IOPS) }},
	{"write_MiBs", func(r bench.Row) string { return some(r.Written.MiBs) }},
	{"write_busy", func(r bench.Row) string { return some(r.Written.Busy) }},
	{"cpu_s", func(r bench.Row) string { return some(r.CPU) }},
	{"retransmits", retransmits},
	{"at", at},
	{"version", func(r bench.Row) string { return r.On.Version }},
	{"commit", func(r bench.Row) string { return r.On.Commit }},
	{"host", func(r bench.Row) string { return r.On.Host }},
	{"kernel", func(r bench.Row) string { return r.On.Kernel }},
	{"fill", func(r bench.Row) string { return some(r.On.Fill) }},
	{"seed", seed},
	{"origin", func(r bench.Row) string { return r.Origin }},
	{"note", func(r bench.Row) string { return r.Note }},
}

// decimals is as precise as anything here is.
const decimals = 3

func fixed(v float64) string {
	text := strconv.FormatFloat(v, 'f', decimals, 64)
	short, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return text
	}
	return strconv.FormatFloat(short, 'f', -1, 64)
}

// some is a value that was measured, or nothing.
func some(v float64) string {
	if v == 0 {
		return ""
	}
	return fixed(v)
}

func retransmits(r bench.Row) string {
	if r.Retransmits == nil {
		return ""
	}
	return strconv.FormatInt(*r.Retransmits, 10)
}

func seed(r bench.Row) string {
	if r.On.Seed == 0 {
		return ""
	}
	return strconv.FormatUint(r.On.Seed, 10)
}

func at(r bench.Row) string {
	if r.At.IsZero() {
		return ""
	}
	return r.At.UTC().Format(time.RFC3339)
}

// WriteCSV writes a line for each row, after one with the names of the columns (RFC 4180).
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
			errs = cmp.Or(errs, c.Write(line))
		}
	}
	c.Flush()
	return cmp.Or(errs, c.Error())
}
