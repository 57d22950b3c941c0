package assemble

import (
	"github.com/decamp/decamp/internal/fleet/login"
	"github.com/decamp/decamp/internal/namemap"
	"github.com/decamp/decamp/internal/planfile"
)

// Move describes the migration of one VM, and how to log in to its source. It knows no flags.
type Move struct {
	planfile.Options
	Login Login
	SSH   SSHOptions
	Maps  namemap.Map // maps names of the source to names of the target
	base  string      // folder of relative paths; empty: the working directory
	Tmpfs int64       // bytes of a landing in RAM that was named as such; 0: none was
}

// ChangesGuest reports whether the guest is changed, or may be.
func (m *Move) ChangesGuest() bool { return m.Hardware != "compat" }

// Destinations returns the destinations that are given as text.
func Destinations(to []string) []planfile.Destination {
	all := make([]planfile.Destination, len(to))
	for i, each := range to {
		all[i] = planfile.Destination(each)
	}
	return all
}

// Login is how to log in to a source. The password itself is in none of its fields.
type Login struct {
	PasswordFile string
	Fingerprint  string
	submitted    bool                             // for a submitted plan: no password but its own, and no certificate replaces a known one
	bound        string                           // fingerprint that the access file binds to the credential; no other one counts
	Logins       *login.Limiter                   // login limits of a fleet's source; nil limits this command alone
	OnHost       func(host string) *login.Limiter // SSH login limits of its hosts; nil limits this command alone
}
