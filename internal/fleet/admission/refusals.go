package admission

import (
	"github.com/decamp/decamp/internal/fleet/login"
	"github.com/decamp/decamp/internal/fleetdb"
)

// refusals are the refused logins by login.RecordID. No VM begins at a source or host with a refused
// login.
type refusals map[string]login.Refusal

// forVM returns the refused login that a VM waits for: at its source, or by SSH at its host.
func (rs refusals) forVM(v fleetdb.VM) (login.Refusal, bool) {
	if r, refused := rs[v.Source]; refused {
		return r, true
	}
	r, refused := rs[login.RecordID(v.Source, v.Host)]
	return r, refused
}

// hasHost reports whether a host refused a login by SSH. The name "" matches no host.
func (rs refusals) hasHost(host string) bool {
	for _, r := range rs {
		if r.Host == host && host != "" {
			return true
		}
	}
	return false
}

// SetRefusals sets the refused logins, by login.RecordID, and updates the capacities that they close.
// It returns the new ones.
func (c *Controller) SetRefusals(all map[string]login.Refusal) (added []login.Refusal) {
	old := c.refusals
	c.refusals = all
	for id, r := range all {
		if _, known := old[id]; !known {
			added = append(added, r)
			c.updateLogins(r)
		}
	}
	for id, r := range old {
		if _, still := all[id]; !still {
			c.updateLogins(r)
		}
	}
	return added
}

// updateLogins updates the capacity that a refusal closes.
func (c *Controller) updateLogins(r login.Refusal) {
	if r.Host != "" {
		c.capacities.updateCapacity(hostTrials(r.Host))
		return
	}
	c.capacities.updateCapacity(sourceLogins(r.Source))
}

// Refusal returns the refused login that all VMs of a source wait for.
func (c *Controller) Refusal(source string) (login.Refusal, bool) {
	r, refused := c.refusals[source]
	return r, refused
}

// HasRefusals reports whether any login is refused.
func (c *Controller) HasRefusals() bool { return len(c.refusals) > 0 }
