package advise_test

import (
	"testing"

	"github.com/decamp/decamp/internal/bench"
	"github.com/decamp/decamp/internal/bench/advise"
)

func TestHTTPSRows(t *testing.T) {
	rows := bench.Seed().HTTPS.Rows
	m, err := advise.FitHTTPS(rows)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		said := m.Predict(r.Connections, 1, r.MTU) * bench.MiB * 8 / 1e6
		if said < r.Megabits[0]-1 || said > r.Megabits[1]+1 {
			t.Errorf("%+v: %.0f Mbit/s", r, said)
		}
	}
	if m.Connection < 50 || m.Connection > 60 {
		t.Errorf("one connection gives %.1f MiB/s, where hosts were seen to cap at 50 to 60", m.Connection)
	}
	if _, err := advise.FitHTTPS(rows[:2]); err == nil {
		t.Error("fitted without a row of jumbo frames")
	}
}
