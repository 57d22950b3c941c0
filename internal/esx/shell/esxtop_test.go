package shell

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// batch is output in the format of esxtop -b: two adapters, a path with the same counter names, and the
// line ends of real hosts.
const batch = `"(PDH-CSV 4.0) (UTC)(0)","\\esx1\Memory\Memory Overcommit (1 Minute Avg)","\\esx1\Physical Cpu(0)\% Util Time","\\esx1\Physical Cpu(_Total)\% Util Time",` +
	`"\\esx1\Physical Disk Adapter(vmhba0)\Reads/sec","\\esx1\Physical Disk Adapter(vmhba0)\MBytes Read/sec","\\esx1\Physical Disk Path(vmhba0:C0:T0:L0)\Reads/sec",` +
	`"\\esx1\Physical Disk Adapter(vmhba64)\Reads/sec","\\esx1\Physical Disk Adapter(vmhba64)\MBytes Read/sec"` + "\r\n" +
	`"11/22/2026 17:00:00","0.00","99","77.5","9999.99","9999.99","1","1","1"` + "\r\n" +
	`"11/22/2026 17:00:05","0.00","99","25.00","100.50","10.00","77777","20","0.50"` + "\r\n"

// readTop returns the samples of a text that is written in pieces.
func readTop(text string, piece int) (all []Load, err error) {
	t := &topReader{tell: func(l Load) { all = append(all, l) }, now: func() time.Time { return time.Unix(7, 0) }}
	for len(text) > 0 && err == nil {
		n := min(piece, len(text))
		_, err = t.Write([]byte(text[:n]))
		text = text[n:]
	}
	return all, err
}

// Reads of adapters are added up, but not of paths. The first sample is omitted, since its interval is unknown.
func TestEsxtopOutputInPieces(t *testing.T) {
	want := []Load{{At: time.Unix(7, 0), Reads: 120.5, Bytes: 10.5 * (1 << 20), CPU: 0.25}}
	for _, piece := range []int{1, 7, 4096} {
		if got, err := readTop(batch, piece); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%d bytes at a time: %v, %v", piece, got, err)
		}
	}
}

func TestInvalidTop(t *testing.T) {
	for message, text := range map[string]string{
		"no disk adapter's reads":       "\"(PDH-CSV 4.0)\",\"\\\\esx1\\Memory\\x\"\n",
		"Error opening terminal":        "Error opening terminal: unknown.\n",
		"where a number should be":      strings.ReplaceAll(batch, "100.50", "many"),
		"a line of more than 16777216 ": strings.Repeat("x", mostTopLine+1),
		"a quote that does not end":     batch + "\"11/22/2026\n",
	} {
		if _, err := readTop(text, 1<<16); err == nil || !strings.Contains(err.Error(), message) {
			t.Errorf("got %v, want %q", err, message)
		} else if k := fault.KindOf(err); k != fault.Unsupported && k != fault.Corrupt {
			t.Errorf("%v: kind %v", err, k)
		}
	}
}

func FuzzTop(f *testing.F) {
	f.Add(batch, 100)
	f.Add("a,\"b\"\n\n,\n", 1)
	f.Fuzz(func(t *testing.T, text string, piece int) {
		all, err := readTop(text, max(piece, 1))
		if err == nil && len(all) > strings.Count(text, "\n") {
			t.Errorf("%d samples from %d lines", len(all), strings.Count(text, "\n"))
		}
		for _, l := range all {
			if l.Reads < 0 || l.Bytes < 0 || l.CPU < 0 {
				t.Errorf("%+v", l)
			}
		}
	})
}
