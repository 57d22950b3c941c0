package measure

import (
	"errors"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/bench"
	"github.com/decamp/decamp/internal/esx/shell"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// The mean contains only samples completely inside the row. Samples at its ends also cover other rows. Without a
// sample, the error is the one that ended esxtop, or fault.Unsupported.
func TestMeanReadsOfARow(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(1_000_000, 0).Add(time.Duration(s) * time.Second) }
	w := &topWatcher{hosts: map[inventory.MoRef]*topHost{
		"a": {loads: []shell.Load{{At: at(4), Reads: 9000}, {At: at(6), Reads: 100, Bytes: 30 << 20}, {At: at(11), Reads: 300, Bytes: 50 << 20}, {At: at(16), Reads: 9000}}},
		"b": {loads: []shell.Load{{At: at(10), Reads: 7, Bytes: 1 << 20}}, err: errors.New("the connection broke")},
	}}
	if got, err := w.meanReads(t.Context(), at(1), at(15)); err != nil || got != (bench.Device{IOPS: 207, MiBs: 41}) {
		t.Errorf("got mean %+v, %v", got, err)
	}
	for host, isExpected := range map[inventory.MoRef]func(error) bool{
		"a": func(err error) bool { return fault.Is(err, fault.Unsupported) },
		"b": func(err error) bool { return err == w.hosts["b"].err },
	} {
		one := &topWatcher{hosts: map[inventory.MoRef]*topHost{host: w.hosts[host]}}
		if _, err := one.meanReads(t.Context(), at(7), at(10)); !isExpected(err) {
			t.Errorf("a row without a sample of host %s: %v", host, err)
		}
	}
}
