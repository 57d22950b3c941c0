package vsphere

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/lab/shell"
)

// esxtop implements batch mode: CSV in the format of Windows' performance monitor, a line of names and
// then a line for each interval of -d seconds, -n times. It has a few of a real host's thousands of
// counters, among them some with similar names that count the same reads again. All hosts share the
// datastores; each datastore is an adapter.
func (h *shellHost) esxtop(c *shell.Call) int {
	every, times, batch := 5, 0, false
	for i := 1; i < len(c.Args); i++ {
		arg, value := c.Args[i], ""
		if i+1 < len(c.Args) {
			value = c.Args[i+1]
		}
		n, err := strconv.Atoi(value)
		switch {
		case arg == "-b":
			batch = true
		case arg == "-d" && err == nil && n > 0:
			every, i = n, i+1
		case arg == "-n" && err == nil && n > 0:
			times, i = n, i+1
		default:
			fmt.Fprintf(c.Err, "esxtop: invalid option or argument -- '%s'\n", arg)
			return 1
		}
	}
	if !batch {
		fmt.Fprintln(c.Err, "Error opening terminal: unknown.")
		return 1
	}
	t := esxtopSampler{host: h.name, was: h.lab.datastoreReads()}
	if _, err := fmt.Fprintln(c.Out, t.columnNames()); err != nil {
		return 1
	}
	for n := 0; times == 0 || n < times; n++ {
		if n > 0 && sleepContext(c.Ctx, time.Duration(every)*time.Second) != nil {
			return 1
		}
		if _, err := fmt.Fprintln(c.Out, t.sampleLine(time.Now(), h.lab.datastoreReads())); err != nil {
			return 1
		}
	}
	return 0
}

// An esxtopSampler computes the lines of esxtop.
type esxtopSampler struct {
	host string         // name of the host
	was  []readCounters // counters of the previous sample
	at   time.Time      // time of the previous sample; zero if none
}

// readCounters are the reads of a datastore since the start.
type readCounters struct{ reads, bytes int64 }

// perAdapter are the counters of an adapter, in their order.
var perAdapter = []string{"Number of Paths", "Commands/sec", "Reads/sec", "Writes/sec", "MBytes Read/sec", "MBytes Written/sec"}

// columnNames returns the first line.
func (t *esxtopSampler) columnNames() string {
	all := []string{"(PDH-CSV 4.0) (UTC)(0)"}
	add := func(group, name string) { all = append(all, `\\`+t.host+`\`+group+`\`+name) }
	add("Memory", "Memory Overcommit (1 Minute Avg)")
	add("Physical Cpu(0)", "% Util Time")
	add("Physical Cpu(_Total)", "% Util Time")
	for i := range t.was {
		for _, name := range perAdapter {
			add(fmt.Sprintf("Physical Disk Adapter(vmhba%d)", i), name)
		}
		add(fmt.Sprintf("Physical Disk Path(vmhba%d:C0:T0:L0)", i), "Reads/sec")
	}
	return csvLine(all)
}

// sampleLine returns the rates since the previous sample. The rates of the first sample are zero.
func (t *esxtopSampler) sampleLine(now time.Time, is []readCounters) string {
	all := []string{now.UTC().Format("01/02/2006 15:04:05"), "0.00", "12.50", "12.50"}
	took := now.Sub(t.at).Seconds()
	for i, f := range is {
		reads, mbytes := 0.0, 0.0
		if !t.at.IsZero() && took > 0 {
			reads, mbytes = float64(f.reads-t.was[i].reads)/took, float64(f.bytes-t.was[i].bytes)/(1<<20)/took
		}
		two := func(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }
		all = append(all, "1", two(reads), two(reads), "0.00", two(mbytes), "0.00", two(reads))
	}
	t.was, t.at = is, now
	return csvLine(all)
}

// csvLine returns a line in which every field is quoted.
func csvLine(fields []string) string { return `"` + strings.Join(fields, `","`) + `"` }
