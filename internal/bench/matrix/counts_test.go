package matrix

import (
	"testing"
	"time"

	"github.com/decamp/decamp/internal/bench"
)

const (
	someDisks = ` 259       0 nvme0n1 1000 10 80000 500 2000 20 160000 900 0 1200 1400 0 0 0 0 30 10
 259       1 nvme0n1p1 1 1 1 1 5 1 40 1 0 7 1 0 0 0 0
   8       0 sda 1 1 1 1 x 1 40 1 0 7 1 0 0 0 0
   7       0 loop0 short
`
	someSNMP = "Ip: Forwarding DefaultTTL\nIp: 1 64\nTcp: RtoAlgorithm InSegs OutSegs RetransSegs InErrs\nTcp: 1 20 30 42 0\nUdp: InDatagrams\nUdp: 1\n"
)

func TestCountersOfTheKernel(t *testing.T) {
	all := parseDiskStats([]byte(someDisks))
	if got := all[device{259, 0}]; len(all) != 2 || got != (written{2000, 160000, 1200 * time.Millisecond}) {
		t.Errorf("disk counters are %+v", all)
	}
	if n, err := parseResent([]byte(someSNMP)); err != nil || n != 42 {
		t.Errorf("%d segments were sent again, want 42; %v", n, err)
	}
	if _, err := parseResent([]byte("Tcp: InSegs\nTcp: 1\n")); err == nil {
		t.Error("parseResent returned no error without RetransSegs")
	}
	if c, err := countNow(); err != nil || c.cpu <= 0 {
		t.Errorf("current counters are %+v, %v", c, err)
	}
}

// A device of two folders counts once, and the row names a device without counters as absent.
func TestBook(t *testing.T) {
	folder := t.TempDir()
	d, err := deviceOf(folder)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Unix(0, 0)
	before := counts{at: began, cpu: time.Second, resent: 5, devices: map[device]written{d: {10, 1000, time.Second}}}
	after := counts{at: began.Add(4 * time.Second), cpu: 3 * time.Second, resent: 7, devices: map[device]written{d: {110, 1000 + 16384, 3 * time.Second}}}
	var row bench.Row
	addCounts(&row, before, after, []string{folder, folder})
	if row.Written != (bench.Device{IOPS: 25, MiBs: 2, Busy: 0.5}) || row.CPU != 2 || *row.Retransmits != 2 || row.Absent != nil {
		t.Errorf("the row is %+v", row)
	}
	row = bench.Row{}
	addCounts(&row, counts{at: began}, after, []string{folder})
	if row.Written != (bench.Device{}) || row.Absent["written"] == "" {
		t.Errorf("the row without counters is %+v", row)
	}
}

func FuzzParseCounts(f *testing.F) {
	f.Add([]byte(someDisks))
	f.Add([]byte(someSNMP))
	f.Fuzz(func(t *testing.T, text []byte) {
		parseDiskStats(text)
		if n, err := parseResent(text); err != nil && n != 0 && n != 1<<63-1 && n != -1<<63 {
			t.Errorf("%d with %v", n, err)
		}
	})
}
