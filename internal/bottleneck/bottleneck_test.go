package bottleneck

import (
	"math"
	"testing"
)

func TestLimitSaysWhatComesNext(t *testing.T) {
	for want, b := range map[string]Busy{
		"": {},
		"limited by the source (busy 98 % of the time); the target comes next, at most 2.4 times as fast":    {Source: 0.98, Target: 0.4, Processor: 0.1},
		"limited by the target (busy 100 % of the time); the source comes next, at most 3.3 times as fast":   {Source: 0.3, Target: 1},
		"limited by the budget (busy 90 % of the time); the processor comes next, at most 1.8 times as fast": {Budget: 0.9, Source: 0.1, Processor: 0.5},
		"limited by the source (busy 100 % of the time); nothing else is near its limit":                     {Source: 1, Target: 0.001},
	} {
		if got := b.Limit().String(); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}

// A fast copy counts more than a slow one, and one that nobody knows of does not count.
func TestMeanIsByBytes(t *testing.T) {
	var m Mean
	m.Add(Busy{Source: 1}, 300)
	m.Add(Busy{Target: 1}, 100)
	m.Add(Busy{}, 1000)
	m.Add(Busy{Budget: 1}, 0)
	if got := m.Busy(); math.Abs(got.Source-0.75) > 1e-9 || math.Abs(got.Target-0.25) > 1e-9 || got.Budget != 0 {
		t.Errorf("mean %+v", got)
	}
	if got := new(Mean).Busy(); got != (Busy{}) {
		t.Errorf("of nothing: %+v", got)
	}
}
