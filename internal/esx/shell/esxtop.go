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

// Load is what a host did in the time until At since the sample before, on the mean.
type Load struct {
	At    time.Time // when it came here: samples are told by our clock
	Reads float64   // of all disk adapters, a second
	Bytes float64   // read by them, a second
	CPU   float64   // of all processors, 0 to 1
}

// topFor bounds how long esxtop goes on where nobody ends it.
const topFor = 24 * time.Hour

// Watch runs esxtop on the host, and tells each of its samples, until ctx ends: that is no error. The
// first one is left out: it is of a time that nobody knows. esxtop is written to us and not to the
// host's RAM disk, which its samples of some 100 KiB would fill; it ends with the connection, when it
// has something to write.
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
		err = fault.New(fault.Unsupported, "%w", out.Err()).WithHint("run it by hand on the host: esxtop -b -n 2 | head -c 400")
	case err == nil:
		err = fault.New(fault.Transient, "it ended by itself").WithHint("run it by hand on the host: esxtop -b -n 2 | head -c 400")
	}
	return fmt.Errorf("esxtop on %s: %w", s.cfg.Addr, err)
}

// topReader reads what esxtop -b writes: CSV with the names of thousands of counters in its first line,
// and a line for each sample.
type topReader struct {
	tell func(Load)
	now  func() time.Time

	rest      []byte // of a line that is not whole yet
	hasHeader bool   // the first line was there
	hasSample bool   // and the first sample
	columns   map[int]counter
	err       error
}

type counter uint8

const (
	topReads counter = iota + 1
	topMegabytes
	topCPU
)

const (
	mostTopLine     = 16 << 20 // bytes; hosts with hundreds of paths were seen to take some
	mostTopCounters = 1 << 16  // that count
)

// megabyte is what esxtop counts bytes in.
const megabyte = 1 << 20

// Write is part of io.Writer. An error sticks.
func (t *topReader) Write(p []byte) (int, error) {
	n := len(p)
	for t.err == nil && len(p) > 0 {
		line, rest, whole := bytes.Cut(p, []byte("\n"))
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

func (t *topReader) readLine(line []byte) error {
	switch {
	case len(line) == 0:
		return nil
	case !t.hasHeader:
		t.hasHeader = true
		return t.readHeader(line)
	}
	l, err := t.readSample(line)
	if err == nil && t.hasSample {
		t.tell(l)
	}
	t.hasSample = true
	return err
}

// readHeader finds the columns that count.
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
	for _, c := range t.columns {
		if c == topReads {
			return nil
		}
	}
	return fault.New(fault.Unsupported, "it shows no disk adapter's reads: it begins with %.80q", line).
		WithHint("look whether the account's ~/.esxtop60rc or the like leaves them out, and move it away")
}

// counterOf knows \\esx1\Physical Disk Adapter(vmhba0)\Reads/sec and its like; 0: it is none of ours.
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

// readSample adds the adapters up.
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

// errQuote is a line that ends within quotes.
var errQuote = errors.New("a quote that does not end")

// eachField yields the fields of a line of CSV without their quotes. esxtop puts no quotes into names.
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
