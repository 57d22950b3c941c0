package budget

import "testing"

// A flow is free if none of its budgets has a rate, and then need not call Wait. A rate of any rule counts.
func TestFlowWithoutRatesIsUnlimited(t *testing.T) {
	s := New(Wall())
	f := s.Join("run", 1, "fleet:all", "host:esx1")
	defer f.Leave()
	rule := Week{Rate: Unlimited, Rules: []Rule{{Days: Always, From: 22 * Hour, To: 6 * Hour, Rate: 400}}}
	for _, c := range []struct {
		name string
		week Week
		free bool
	}{
		{"plan:other", Week{Rate: 100}, true}, {"host:esx1", Week{Rate: 100}, false}, {"fleet:all", rule, false},
		{"host:esx1", Week{Rate: Unlimited}, false}, {"fleet:all", Week{Rate: Unlimited}, true}, {"fleet:all", Week{}, false},
	} {
		if err := s.Set(c.name, c.week); err != nil {
			t.Fatal(err)
		}
		if f.Free() != c.free {
			t.Errorf("with %s at %+v: Free is %v, want %v", c.name, c.week, f.Free(), c.free)
		}
	}
}

func BenchmarkUnlimited(b *testing.B) {
	f := New(Wall()).Join("run", 1, "fleet:all", "host:esx1", "plan:wave", "source:vc1:443", "target:dir:/srv", "worker:w1")
	b.Run("wait", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := f.Wait(b.Context(), 64<<10); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("free", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if !f.Free() {
				b.Fatal("the flow has a rate")
			}
		}
	})
}
