package shell

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// Load contains the means of a host's load between two samples.
type Load struct {
	At    time.Time // time of receipt, by the local clock
	Reads float64   // read requests per second, on all disk adapters
	Bytes float64   // bytes read per second, on all disk adapters
	CPU   float64   // utilization of all processors, 0 to 1
}

// topFor limits the run time of esxtop if its connection is not closed.
const topFor = 24 * time.Hour

// Watch runs esxtop on the host and calls tell with each sample until ctx ends, which
// is no error. It omits the first sample, whose interval is unknown. The output goes to
// the connection, not to the host's RAM disk, because a sample takes about 100 KiB.
// esxtop ends at its first write after the connection is closed.
func (s *Shell) Watch(ctx context.Context, every time.Duration, tell func(Load)) error {
	t := &topReader{tell: tell, now: s.cfg.Now}
	line, err := quoteWords([]string{"esxtop", "-b", "-d", strconv.Itoa(int(every / time.Second)), "-n", strconv.Itoa(int(topFor / every))})
	if err != nil {
		return err
	}
	out, err := s.runScriptTo(ctx, line, t)
	if t.err != nil {
		err = t.err
	}
	switch {
	case ctx.Err() != nil:
		return nil
	case err == nil && out.Status != 0:
		err = fault.New(fault.Unsupported, "%w", out.Err()).WithHint("run it manually on the host: esxtop -b -n 2 | head -c 400")
	case err == nil:
		err = fault.New(fault.Transient, "it ended unexpectedly").WithHint("run it manually on the host: esxtop -b -n 2 | head -c 400")
	}
	return fmt.Errorf("esxtop on %s: %w", s.cfg.Addr, err)
}

// topReader parses the output of esxtop -b: CSV with the names of thousands of counters
// in the first line, and one line per sample. It is an io.Writer.
type topReader struct {
	tell func(Load)       // called with each sample except the first
	now  func() time.Time // clock for Load.At

	rest      []byte          // start of an incomplete line
	hasHeader bool            // true after the first line
	hasSample bool            // true after the first sample
	columns   map[int]counter // counters by column; other columns are ignored
	err       error           // first error; all later writes fail with it
}

// counter is a column of esxtop that Load needs. Zero is none.
type counter uint8

const (
	topReads     counter = iota + 1 // read requests per second of one adapter
	topMegabytes                    // MiB read per second of one adapter
	topCPU                          // utilization of all processors in percent
)

const (
	mostTopLine     = 16 << 20 // limit of a line in bytes; hosts with hundreds of paths need several MiB
	mostTopCounters = 1 << 16  // limit of the number of relevant columns
)

// megabyte is the unit of esxtop's "MBytes" in bytes.
const megabyte = 1 << 20

// Write is part of io.Writer. After an error, all calls return it.
func (t *topReader) Write(p []byte) (int, error) {
	n := len(p)
	for t.err == nil && len(p) > 0 {
		line, rest, whole := bytes.Cut(p, []byte("\n"))
		// The output of the host is untrusted, so its lines are limited.
		if len(t.rest)+len(line) > mostTopLine {
			t.err = fault.New(fault.Unsupported, "a line of more than %d bytes", mostTopLine)
			break
		}
		t.rest = append(t.rest, line...)
		if p = rest; !whole {
			break
		}
		t.err = t.readLine(bytes.TrimSuffix(t.rest, []byte("\r")))
		t.rest = t.rest[:0]
	}
	if t.err != nil {
		return 0, t.err
	}
	return n, nil
}

// readLine reads one complete line: the header or a sample.
func (t *topReader) readLine(line []byte) error {
	switch {
	case len(line) == 0:
		return nil
	case !t.hasHeader:
		t.hasHeader = true
		return t.readHeader(line)
	}
	l, err := t.readSample(line)
	// The interval of the first sample is unknown.
	if err == nil && t.hasSample {
		t.tell(l)
	}
	t.hasSample = true
	return err
}

// readHeader finds the columns of the counters. A header without reads of disk adapters
// is fault.Unsupported.
func (t *topReader) readHeader(line []byte) error {
	t.columns = map[int]counter{}
	err := eachField(line, func(i int, name []byte) error {
		if c := counterOf(string(name)); c > 0 && len(t.columns) < mostTopCounters {
			t.columns[i] = c
		}
		return nil
	})
	if err != nil {
		return err
	}
	// Without reads there is nothing to report; the other counters are optional.
	for _, c := range t.columns {
		if c == topReads {
			return nil
		}
	}
	return fault.New(fault.Unsupported, "it shows no disk adapter's reads: it begins with %.80q", line).
		WithHint("check whether ~/.esxtop60rc or a similar file of the account excludes them, and rename that file")
}

// counterOf returns the counter of a column such as \\esx1\Physical Disk
// Adapter(vmhba0)\Reads/sec, or 0 for all other columns.
func counterOf(name string) counter {
	parts := strings.Split(strings.TrimPrefix(name, `\\`), `\`)
	if len(parts) != 3 {
		return 0
	}
	group, _, _ := strings.Cut(parts[1], "(")
	switch {
	case group == "Physical Disk Adapter" && parts[2] == "Reads/sec":
		return topReads
	case group == "Physical Disk Adapter" && parts[2] == "MBytes Read/sec":
		return topMegabytes
	case parts[1] == "Physical Cpu(_Total)" && parts[2] == "% Util Time":
		return topCPU
	}
	return 0
}

// readSample returns the sum over all adapters. A field that is not a number is
// fault.Corrupt.
func (t *topReader) readSample(line []byte) (l Load, err error) {
	l.At = t.now()
	err = eachField(line, func(i int, field []byte) error {
		c := t.columns[i]
		if c == 0 {
			return nil
		}
		v, err := strconv.ParseFloat(string(field), 64)
		if err != nil || v < 0 || math.IsInf(v, 0) || math.IsNaN(v) {
			return fault.New(fault.Corrupt, "column %d of a sample has %.40q where a number should be", i+1, field)
		}
		switch c {
		case topReads:
			l.Reads += v
		case topMegabytes:
			l.Bytes += v * megabyte
		case topCPU:
			l.CPU = v / 100
		}
		return nil
	})
	return l, err
}

// errQuote is the error for a line that ends within quotes.
var errQuote = errors.New("a quote that does not end")

// eachField calls f for each field of a CSV line, without quotes. esxtop never uses
// quotes within names. It stops at the first error of f.
func eachField(line []byte, f func(i int, field []byte) error) error {
	for i := 0; ; i++ {
		var field []byte
		more := false
		if quoted, ok := bytes.CutPrefix(line, []byte(`"`)); ok {
			if field, line, ok = bytes.Cut(quoted, []byte(`"`)); !ok {
				return fault.Wrap(fault.Corrupt, errQuote)
			}
			_, line, more = bytes.Cut(line, []byte(","))
		} else {
			field, line, more = bytes.Cut(line, []byte(","))
		}
		if err := f(i, field); err != nil || !more {
			return err
		}
	}
}
