package main

import (
	"github.com/decamp/decamp/internal/mapping"
	"github.com/decamp/decamp/internal/planfile"
)

// move describes the migration of one VM, and how to log in to its source. It knows no flags.
type move struct {
	planfile.Options
	login login
	ssh   sshOptions
	maps  mapping.Map // what names of the source become
	base  string      // folder of relative paths; empty: the working directory
	tmpfs int64       // bytes of a landing in RAM that was named as such; 0: none was
}

// changesGuest reports whether the guest is changed, or may be.
func (m *move) changesGuest() bool { return m.Hardware != "compat" }

// to returns the destinations as text.
func destinations(to []string) []planfile.Destination {
	all := make([]planfile.Destination, len(to))
	for i, each := range to {
		all[i] = planfile.Destination(each)
	}
	return all
}
