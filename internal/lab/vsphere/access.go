package vsphere

// User is the only account.
func (l *Lab) User() string { return l.cfg.User }

// Password is the account's password.
func (l *Lab) Password() string { return l.cfg.Password }

// Faults injects faults into /folder.
func (l *Lab) Faults() *Faults { return l.faults }

// limits returns the limits in force.
func (l *Lab) limits() Limits { return *l.shape.Load() }

// SetLimits changes the limits; a rate per connection takes effect on new connections.
func (l *Lab) SetLimits(limits Limits) {
	l.shape.Store(&limits)
	for _, dc := range l.datacenters {
		for _, ds := range dc.datastores {
			ds.rate.setRate(int64(limits.DatastoreRate))
		}
	}
}

// Stats returns the counters as they are now.
func (l *Lab) Stats() Stats { return l.stats.snapshot() }

// ResetStats sets every counter to zero.
func (l *Lab) ResetStats() { l.stats.reset() }
