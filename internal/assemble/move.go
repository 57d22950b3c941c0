package assemble

import (
	"github.com/decamp/decamp/internal/fleet/login"
	"github.com/decamp/decamp/internal/namemap"
	"github.com/decamp/decamp/internal/planfile"
)

// Move describes the migration of one VM, and the login to its source. It does not depend on flags.
type Move struct {
	planfile.Options
	Login Login       // login to the source
	SSH   SSHOptions  // login to hosts by SSH
	Maps  namemap.Map // maps names of the source to names of the target
	base  string      // folder of relative paths; empty: the working directory
	Tmpfs int64       // bytes of a landing in RAM that was named as such; 0: none was
}

// ChangesGuest reports whether the migration changes the guest, or may do so.
func (m *Move) ChangesGuest() bool { return m.Hardware != "compat" }

// Destinations converts texts to destinations without parsing them.
func Destinations(to []string) []planfile.Destination {
	all := make([]planfile.Destination, len(to))
	for i, each := range to {
		all[i] = planfile.Destination(each)
	}
	return all
}

// Login describes the login to a source. It does not contain the password.
type Login struct {
	PasswordFile string                           // file with the password; empty: environment or prompt
	Fingerprint  string                           // accepted SHA-256 fingerprint; empty: known certificates decide
	submitted    bool                             // the plan was submitted: only its own password, and no certificate replaces a known one
	bound        string                           // fingerprint that the access file binds to the credential; no other one counts
	Logins       *login.Limiter                   // login limits of a fleet's source; nil limits this command alone
	OnHost       func(host string) *login.Limiter // SSH login limits of its hosts; nil limits this command alone
}
