package fleet

import "time"

// A contact is since when a node has heard from the roster again and again. Other processes
// could renew their leases since then, as far as it depends on the roster.
type contact struct{ since, last time.Time }

// heard notes an answer of the roster. After a gap in which leases may have ended whose owners
// live, the contact begins anew: a lease of ttl is renewed thrice in that, so a gap of half of
// it ends none. The wall's clock counts as well: the other one stands still while a machine is
// suspended.
func (c *contact) heard(now time.Time, ttl time.Duration) {
	if gap := max(now.Sub(c.last), now.Round(0).Sub(c.last.Round(0))); gap > ttl/2 {
		c.since = now
	}
	c.last = now
}

// grace is how long others may still need to come back.
func (c *contact) grace(now time.Time, ttl time.Duration) time.Duration {
	return min(max(ttl-now.Sub(c.since), 0), ttl)
}
