package https

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// site is a model of a host: what it delivers to so many connections, and how long it
// takes to begin an answer.
type site struct {
	perConn, total float64 // bytes/s
	firstByte      func(conns int) time.Duration
	refuse         int // from so many connections on it answers 503; 0 is never
}

func (s site) rate(conns int) float64 { return min(float64(conns)*s.perConn, s.total) }

// run lets the controller meet the site for d, 50 ms at a time, and returns what wanted
// was at each step and the bytes delivered.
func (s site) run(c *control, start time.Time, d time.Duration, hungry bool) (wants []int, bytes int64) {
	const tick = 50 * time.Millisecond
	bytes = c.bytes
	for now := start; now.Sub(start) < d; {
		bytes += int64(s.rate(c.want) * tick.Seconds())
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

var epoch = time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)

func TestControlFindsTheConnections(t *testing.T) {
	cases := []struct {
		name   string
		site   site
		most   int
		hungry bool
		want   func(int) bool
		says   string
	}{
		{"connections are the limit", site{perConn: 55e6, total: 10e9}, 8, true, func(n int) bool { return n == 8 }, "8"},
		{"twelve when configured", site{perConn: 20e6, total: 10e9}, 12, true, func(n int) bool { return n == 12 }, "12"},
		{"a datastore of 300 MB/s", site{perConn: 55e6, total: 300e6}, 12, true, func(n int) bool { return n >= 6 && n <= 9 }, "6 to 9"},
		{"one connection does it all", site{perConn: 1e9, total: 1e9}, 8, true, func(n int) bool { return n <= 7 }, "at most 7"},
		{"nothing to do", site{perConn: 55e6, total: 10e9}, 8, false, func(n int) bool { return n == 4 }, "4"},
		{"fewer allowed than the start", site{perConn: 55e6, total: 10e9}, 2, true, func(n int) bool { return n == 2 }, "2"},
	}
	for _, c := range cases {
		wants, _ := c.site.run(newControl(c.most, epoch), epoch, 20*time.Second, c.hungry)
		if got := wants[len(wants)-1]; !c.want(got) {
			t.Errorf("%s: %d connections, want %s", c.name, got, c.says)
		}
	}
}

// A bench of 2 GiB at 300 MB/s takes 7 s: the search may not cost it 3 %.
func TestControlIsQuickEnoughForAShortCopy(t *testing.T) {
	s := site{perConn: 55e6, total: 300e6}
	_, bytes := s.run(newControl(8, epoch), epoch, 7*time.Second, true)
	if share := float64(bytes) / (7 * 300e6); share < 0.985 {
		t.Errorf("%.1f %% of the cap in the first 7 s", 100*share)
	}
}

func TestControlHalvesOnDistressAndComesBack(t *testing.T) {
	s := site{perConn: 55e6, total: 10e9}
	c := newControl(8, epoch)
	s.run(c, epoch, 5*time.Second, true)
	now := epoch.Add(5 * time.Second)
	for range 8 { // one reset hits every connection
		c.distress(now)
		now = now.Add(10 * time.Millisecond)
	}
	if c.want != 4 {
		t.Fatalf("%d connections after one overload, want 4", c.want)
	}
	wants, _ := s.run(c, now, 20*time.Second, true)
	if quiet := wants[int(firstHold/(50*time.Millisecond))-4]; quiet != 4 {
		t.Errorf("%d connections right after the cut", quiet)
	}
	if got := wants[len(wants)-1]; got != 8 {
		t.Errorf("%d connections 20 s later, want 8 again", got)
	}
}

func TestControlStaysBelowWhatTheHostRefuses(t *testing.T) {
	s := site{perConn: 55e6, total: 10e9, refuse: 6}
	c := newControl(8, epoch)
	wants, _ := s.run(c, epoch, 2*time.Minute, true)
	over := 0
	for _, w := range wants {
		if w >= s.refuse {
			over++
		}
	}
	if over > 10 {
		t.Errorf("%d of %d steps at or above the refused number", over, len(wants))
	}
	if c.want < 1 {
		t.Errorf("%d connections are none", c.want)
	}
}

func TestControlTakesSlowFirstBytesForDistress(t *testing.T) {
	slow := func(n int) time.Duration {
		if n > 5 {
			return 2 * time.Second
		}
		return 20 * time.Millisecond
	}
	c := newControl(8, epoch)
	wants, _ := site{perConn: 55e6, total: 10e9, firstByte: slow}.run(c, epoch, 3*time.Second, true)
	if got := wants[len(wants)-1]; got > 5 {
		t.Errorf("%d connections although answers begin late", got)
	}
	// The same times at any number of connections are just how this host is.
	far := func(int) time.Duration { return 800 * time.Millisecond }
	c = newControl(8, epoch)
	wants, _ = site{perConn: 55e6, total: 10e9, firstByte: far}.run(c, epoch, 5*time.Second, true)
	if got := wants[len(wants)-1]; got != 8 {
		t.Errorf("%d connections to a host that is only far away", got)
	}
}

// Whatever happens in whatever order, the number stays within its limits and the next
// decision lies ahead.
func TestControlInvariants(t *testing.T) {
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		most := 1 + rnd.IntN(mostConnections)
		c := newControl(most, epoch)
		now, bytes := epoch, int64(0)
		for i := range 2000 {
			now = now.Add(time.Duration(rnd.Int64N(int64(3 * time.Second))))
			bytes += rnd.Int64N(1 << 30)
			what := rnd.IntN(10)
			switch what {
			case 0:
				c.distress(now)
			case 1, 2, 3:
				c.firstByte(now, time.Duration(rnd.Int64N(int64(4*time.Second))))
			default:
				c.tick(now, bytes, rnd.IntN(4) > 0)
			}
			state := fmt.Sprintf("seed %d step %d event %d: want %d of %d", seed, i, what, c.want, most)
			if c.want < 1 || c.want > most {
				t.Fatal(state)
			}
			if what > 3 && !c.due.After(now) {
				t.Fatalf("%s: due %v is not after %v", state, c.due, now)
			}
		}
	}
}
