package bottleneck

import (
	"math"
	"testing"
)

func TestLimitNamesTheNextBottleneck(t *testing.T) {
	for want, b := range map[string]Busy{
		"": {},
		"bottleneck: source (98 % busy); next: target, at 2.4 times the rate":    {Source: 0.98, Target: 0.4, Processor: 0.1},
		"bottleneck: target (100 % busy); next: source, at 3.3 times the rate":   {Source: 0.3, Target: 1},
		"bottleneck: budget (90 % busy); next: processor, at 1.8 times the rate": {Budget: 0.9, Source: 0.1, Processor: 0.5},
		"bottleneck: source (100 % busy)":                                        {Source: 1, Target: 0.001},
	} {
		if got := b.Limit().String(); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}

// Mean weights each copy by its bytes. A copy without a known load does not count.
func TestMeanIsWeightedByBytes(t *testing.T) {
	var m Mean
	m.Add(Busy{Source: 1}, 300)
	m.Add(Busy{Target: 1}, 100)
	m.Add(Busy{}, 1000)
	m.Add(Busy{Budget: 1}, 0)
	if got := m.Busy(); math.Abs(got.Source-0.75) > 1e-9 || math.Abs(got.Target-0.25) > 1e-9 || got.Budget != 0 {
		t.Errorf("mean %+v", got)
	}
	if got := new(Mean).Busy(); got != (Busy{}) {
		t.Errorf("mean without copies: %+v", got)
	}
}
