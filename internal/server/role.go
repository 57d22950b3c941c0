package server

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/fault"
)

// Role determines the permissions of a user. Each role includes the permissions of the previous one.
type Role string

// Roles.
const (
	Nobody  Role = ""        // whether the server is well, and the API's document
	View    Role = "view"    // see everything but the audit trail
	Operate Role = "operate" // submit plans, give orders, set limits
	Admin   Role = "admin"   // plans that name paths, secrets and commands, drop plans, drain workers, the audit trail
)

var roles = []Role{View, Operate, Admin}

// RoleOf reads a role's name.
func RoleOf(name string) (Role, error) {
	if r := Role(name); slices.Contains(roles, r) {
		return r, nil
	}
	return Nobody, fault.New(fault.Invalid, "there is no role %q", name).WithHint("the roles are view, operate and admin")
}

// May reports whether r includes need.
func (r Role) May(need Role) bool {
	return need == Nobody || slices.Index(roles, r) >= slices.Index(roles, need)
}

// Who is an authenticated user.
type Who struct {
	Name    string // the token's or the certificate's
	Role    Role
	From    string // the address
	Session string // session cookie; empty with a token or a certificate
}

type whoKey struct{}

func withWho(ctx context.Context, w Who) context.Context { return context.WithValue(ctx, whoKey{}, w) }

func whoIn(ctx context.Context) Who {
	w, _ := ctx.Value(whoKey{}).(Who)
	return w
}

// roleError returns the error for a user without the required role. what is a description: "drop a plan".
func (w Who) roleError(need Role, what string) error {
	return fault.New(fault.Denied, "%s may not %s: that takes the role %s", fmt.Sprintf("%s (%s)", w.Name, w.Role), what, need).
		WithHint("use a token of that role; an administrator of the server creates one: decamp token add NAME --role %s", strings.ToLower(string(need)))
}
