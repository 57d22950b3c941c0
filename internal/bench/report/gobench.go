package report

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/decamp/decamp/internal/bench"
)

// WriteGo writes the rows in the format of Go benchmarks
// (golang.org/design/14313-benchmark-format). A set is a configuration line, and each
// variable is a part of the benchmark's name. benchstat can then use variables as rows
// and columns: benchstat -filter '.unit:MiB/s' -row /source,/dest -col /nic
func WriteGo(w io.Writer, r Report) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "Unit MiB/s better=higher\nUnit cpu-s better=lower\nUnit retransmits better=lower\n")
	for _, s := range r.Sets {
		fmt.Fprintf(&b, "set: %s\n", s.Name)
		for _, row := range s.Rows {
			writeGoLine(&b, row)
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

// writeGoLine writes one row with all measured values.
func writeGoLine(b *bytes.Buffer, r bench.Row) {
	fmt.Fprintf(b, "%s 1 %.0f ns/op %s MiB/s", goName(r), r.Seconds*1e9, formatFixed(r.Rate()))
	// Values that were not measured are omitted.
	for _, m := range []struct {
		unit  string
		value float64
	}{{"read-IOPS", r.Read.IOPS}, {"read-MiB/s", r.Read.MiBs}, {"write-IOPS", r.Written.IOPS}, {"write-MiB/s", r.Written.MiBs}, {"write-busy", r.Written.Busy}, {"cpu-s", r.CPU}} {
		if m.value != 0 {
			fmt.Fprintf(b, " %s %s", formatFixed(m.value), m.unit)
		}
	}
	if r.Retransmits != nil {
		fmt.Fprintf(b, " %d retransmits", *r.Retransmits)
	}
	b.WriteByte('\n')
}

// goName returns the name of a benchmark, with a part for each variable that has a
// value.
func goName(r bench.Row) string {
	name := strings.Builder{}
	name.WriteString("BenchmarkCopy")
	for _, part := range []struct{ key, value string }{
		{"source", r.Source}, {"by", r.Transport.String()}, {"dest", r.Destination}, {"nic", r.NIC},
		{"mtu", formatNonZero(float64(r.MTU))}, {"export", string(r.Export)}, {"streams", formatNonZero(float64(r.Streams))},
		{"vms", formatNonZero(float64(r.Together))}, {"copies", formatNonZero(float64(r.Copies))},
	} {
		if part.value != "" && (part.key != "by" || r.Source != bench.Pattern) {
			name.WriteString("/" + part.key + "=" + part.value)
		}
	}
	return name.String()
}
