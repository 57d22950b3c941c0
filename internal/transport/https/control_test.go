package https

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// hostModel is a model of a host: its throughput and its time to first byte, for a number of connections.
type hostModel struct {
	perConn, total float64 // bytes/s
	firstByte      func(conns int) time.Duration
	refuse         int // number of connections from which it answers 503; 0: never
}

func (s hostModel) throughput(conns int) float64 { return min(float64(conns)*s.perConn, s.total) }

// simulate runs a control against the model for d, in steps of 50 ms. It returns the wanted connections at each
// step and the delivered bytes.
func (s hostModel) simulate(c *control, start time.Time, d time.Duration, hungry bool) (wants []int, bytes int64) {
	const tick = 50 * time.Millisecond
	bytes = c.bytes
	for now := start; now.Sub(start) < d; {
		bytes += int64(s.throughput(c.want) * tick.Seconds())
		now = now.Add(tick)
		if s.firstByte != nil {
			c.firstByte(now, s.firstByte(c.want))
		}
		if s.refuse > 0 && c.want >= s.refuse {
			c.distress(now)
		}
		c.tick(now, bytes, hungry)
		wants = append(wants, c.want)
	}
	return wants, bytes
}

var startTime = time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)

func TestControlFindsNumberOfConnections(t *testing.T) {
	cases := []struct {
		name   string
		site   hostModel
		most   int
		hungry bool
		want   func(int) bool
		text   string // wanted connections in words
	}{
		{"connections are the limit", hostModel{perConn: 55e6, total: 10e9}, 8, true, func(n int) bool { return n == 8 }, "8"},
		{"twelve when configured", hostModel{perConn: 20e6, total: 10e9}, 12, true, func(n int) bool { return n == 12 }, "12"},
		{"a datastore of 300 MB/s", hostModel{perConn: 55e6, total: 300e6}, 12, true, func(n int) bool { return n >= 6 && n <= 9 }, "6 to 9"},
		{"one connection does it all", hostModel{perConn: 1e9, total: 1e9}, 8, true, func(n int) bool { return n <= 7 }, "at most 7"},
		{"nothing to do", hostModel{perConn: 55e6, total: 10e9}, 8, false, func(n int) bool { return n == 4 }, "4"},
		{"fewer allowed than the start", hostModel{perConn: 55e6, total: 10e9}, 2, true, func(n int) bool { return n == 2 }, "2"},
	}
	for _, c := range cases {
		wants, _ := c.site.simulate(newControl(c.most, startTime), startTime, 20*time.Second, c.hungry)
		if got := wants[len(wants)-1]; !c.want(got) {
			t.Errorf("%s: %d connections, want %s", c.name, got, c.text)
		}
	}
}

// A copy of 2 GiB at 300 MB/s takes 7 s. The search for the number of connections costs less than 1.5 % of it.
func TestControlIsFastForShortCopy(t *testing.T) {
	s := hostModel{perConn: 55e6, total: 300e6}
	_, bytes := s.simulate(newControl(8, startTime), startTime, 7*time.Second, true)
	if share := float64(bytes) / (7 * 300e6); share < 0.985 {
		t.Errorf("%.1f %% of the limit in the first 7 s, want at least 98.5 %%", 100*share)
	}
}

func TestControlHalvesOnDistressAndRecovers(t *testing.T) {
	s := hostModel{perConn: 55e6, total: 10e9}
	c := newControl(8, startTime)
	s.simulate(c, startTime, 5*time.Second, true)
	now := startTime.Add(5 * time.Second)
	for range 8 { // one overload resets every connection
		c.distress(now)
		now = now.Add(10 * time.Millisecond)
	}
	if c.want != 4 {
		t.Fatalf("%d connections after one overload, want 4", c.want)
	}
	wants, _ := s.simulate(c, now, 20*time.Second, true)
	if quiet := wants[int(firstHold/(50*time.Millisecond))-4]; quiet != 4 {
		t.Errorf("%d connections before the hold ends, want 4", quiet)
	}
	if got := wants[len(wants)-1]; got != 8 {
		t.Errorf("%d connections 20 s later, want 8 again", got)
	}
}

func TestControlStaysBelowRefusedNumber(t *testing.T) {
	s := hostModel{perConn: 55e6, total: 10e9, refuse: 6}
	c := newControl(8, startTime)
	wants, _ := s.simulate(c, startTime, 2*time.Minute, true)
	over := 0
	for _, w := range wants {
		if w >= s.refuse {
			over++
		}
	}
	if over > 10 {
		t.Errorf("%d of %d steps at or above the refused number, want at most 10", over, len(wants))
	}
	if c.want < 1 {
		t.Errorf("%d connections, want at least 1", c.want)
	}
}

func TestControlReducesConnectionsOnSlowFirstByte(t *testing.T) {
	slow := func(n int) time.Duration {
		if n > 5 {
			return 2 * time.Second
		}
		return 20 * time.Millisecond
	}
	c := newControl(8, startTime)
	wants, _ := hostModel{perConn: 55e6, total: 10e9, firstByte: slow}.simulate(c, startTime, 3*time.Second, true)
	if got := wants[len(wants)-1]; got > 5 {
		t.Errorf("%d connections although first bytes are late, want at most 5", got)
	}
	// If the time to first byte does not depend on the number of connections, it is no sign of distress.
	far := func(int) time.Duration { return 800 * time.Millisecond }
	c = newControl(8, startTime)
	wants, _ = hostModel{perConn: 55e6, total: 10e9, firstByte: far}.simulate(c, startTime, 5*time.Second, true)
	if got := wants[len(wants)-1]; got != 8 {
		t.Errorf("%d connections to a distant host, want 8", got)
	}
}

// For any sequence of events, the number of connections stays within its limits, and after each tick the next
// decision is in the future.
func TestControlInvariants(t *testing.T) {
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		most := 1 + rnd.IntN(mostConnections)
		c := newControl(most, startTime)
		now, bytes := startTime, int64(0)
		for i := range 2000 {
			now = now.Add(time.Duration(rnd.Int64N(int64(3 * time.Second))))
			bytes += rnd.Int64N(1 << 30)
			event := rnd.IntN(10)
			switch event {
			case 0:
				c.distress(now)
			case 1, 2, 3:
				c.firstByte(now, time.Duration(rnd.Int64N(int64(4*time.Second))))
			default:
				c.tick(now, bytes, rnd.IntN(4) > 0)
			}
			state := fmt.Sprintf("seed %d step %d event %d: want %d of %d", seed, i, event, c.want, most)
			if c.want < 1 || c.want > most {
				t.Fatal(state)
			}
			if event > 3 && !c.due.After(now) {
				t.Fatalf("%s: due %v is not after %v", state, c.due, now)
			}
		}
	}
}
