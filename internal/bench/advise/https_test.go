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
		predicted := m.Predict(r.Connections, 1, r.MTU) * bench.MiB * 8 / 1e6
		if predicted < r.Megabits[0]-1 || predicted > r.Megabits[1]+1 {
			t.Errorf("%+v: predicted %.0f Mbit/s", r, predicted)
		}
	}
	if m.Connection < 50 || m.Connection > 60 {
		t.Errorf("rate of one connection is %.1f MiB/s, want the 50 to 60 that hosts reach", m.Connection)
	}
	if _, err := advise.FitHTTPS(rows[:2]); err == nil {
		t.Error("FitHTTPS succeeded without a row of jumbo frames")
	}
}
