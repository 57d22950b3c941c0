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

// Only samples count that lie in a row as a whole: those at its ends are of other rows, too.
func TestReadsOfEsxtopAreThoseOfTheRow(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(1_000_000, 0).Add(time.Duration(s) * time.Second) }
	w := &topWatcher{hosts: map[inventory.MoRef]*topHost{
		"a": {loads: []shell.Load{{At: at(4), Reads: 9000}, {At: at(6), Reads: 100, Bytes: 30 << 20}, {At: at(11), Reads: 300, Bytes: 50 << 20}, {At: at(16), Reads: 9000}}},
		"b": {loads: []shell.Load{{At: at(10), Reads: 7, Bytes: 1 << 20}}, err: errors.New("it broke off later")},
	}}
	if got, err := w.meanReads(t.Context(), at(1), at(15)); err != nil || got != (bench.Device{IOPS: 207, MiBs: 41}) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := w.meanReads(t.Context(), at(7), at(10)); !fault.Is(err, fault.Unsupported) && (err == nil || err.Error() != "it broke off later") {
		t.Errorf("of a row without a sample: %v", err)
	}
}
