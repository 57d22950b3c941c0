package pve

import (
	"net/http"
	"path"
	"strings"
)

// A Token is the API credential of a user, with privileges.
type Token struct {
	User   string // owner of the token: user@realm
	ID     string // name of the token among those of its user
	Secret string // secret part, a UUID in Proxmox
	ACL    ACL    // privileges by path; an empty ACL allows nothing
}

// String returns the token as clients send it: user@realm!id=secret.
func (t Token) String() string { return t.name() + "=" + t.Secret }

// name returns the token without its secret: user@realm!id.
func (t Token) name() string { return t.User + "!" + t.ID }

// ACL maps a path to privileges. They apply to all paths below, except those with their own entry.
type ACL map[string][]string

// All returns every privilege that the emulation checks.
func All() []string {
	return []string{
		"VM.Allocate", "VM.Audit", "VM.PowerMgmt", "VM.Config.Disk", "VM.Config.CPU", "VM.Config.Memory", "VM.Config.Network",
		"VM.Config.HWType", "VM.Config.Options", "VM.Config.CDROM", "VM.Config.Cloudinit",
		"Datastore.Allocate", "Datastore.AllocateSpace", "Datastore.AllocateTemplate", "Datastore.Audit",
		"SDN.Use", "SDN.Audit", "Sys.Audit", "Sys.Modify",
	}
}

// privilegesOn returns the privileges on a path: those of the path, or of the nearest one above it with
// an entry.
func (t Token) privilegesOn(at string) []string {
	for {
		if privileges, ok := t.ACL[at]; ok {
			return privileges
		}
		if at == "/" || at == "." { // no entry on the way to the root
			return nil
		}
		at = path.Dir(at) // privileges propagate downwards
	}
}

// hasPrivilege reports whether the token has the privilege on a path.
func (t Token) hasPrivilege(at, privilege string) bool {
	for _, p := range t.privilegesOn(at) {
		if p == privilege {
			return true
		}
	}
	return false
}

// requireAll returns a refusal of status 403 unless the token has all of the privileges on a path.
func (t Token) requireAll(at string, privileges ...string) error {
	for _, p := range privileges {
		if !t.hasPrivilege(at, p) {
			return newRefusal(http.StatusForbidden, "Permission check failed (%s, %s)", at, p)
		}
	}
	return nil
}

// requireAny returns a refusal of status 403 unless the token has one of the privileges on a path.
func (t Token) requireAny(at string, privileges ...string) error {
	for _, p := range privileges {
		if t.hasPrivilege(at, p) {
			return nil
		}
	}
	return newRefusal(http.StatusForbidden, "Permission check failed (%s, %s)", at, strings.Join(privileges, "|"))
}

// authenticate returns the token in the Authorization header of a request, or a refusal of status 401.
func (s *Server) authenticate(r *http.Request) (Token, error) {
	name, secret, ok := strings.Cut(strings.TrimPrefix(r.Header.Get("Authorization"), "PVEAPIToken="), "=")
	if !ok {
		return Token{}, newRefusal(http.StatusUnauthorized, "No ticket")
	}
	for _, t := range s.config.Tokens {
		if t.name() != name {
			continue
		}
		if t.Secret != secret {
			return Token{}, newRefusal(http.StatusUnauthorized, "invalid token value!")
		}
		return t, nil
	}
	user, id, _ := strings.Cut(name, "!")
	return Token{}, newRefusal(http.StatusUnauthorized, "no such token '%s' for user '%s'", id, user)
}

// showPermissions returns the caller's privileges on one path. The value 1 means that a privilege
// propagates to the paths below.
func showPermissions(c *call) (any, error) {
	at := c.form.Get("path")
	if at == "" {
		return nil, refuseParameter("path", "the emulator supports a single path only")
	}
	held := map[string]int{}
	for _, p := range c.token.privilegesOn(at) {
		held[p] = 1
	}
	return map[string]map[string]int{at: held}, nil
}
