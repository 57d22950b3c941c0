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
	Nobody  Role = ""        // no user: may read the server's health and the API document
	View    Role = "view"    // may read everything except the audit trail
	Operate Role = "operate" // may submit plans, give commands and set limits
	// Admin may submit plans that name paths, secrets and commands, drop plans, drain workers, and read the
	// audit trail
	Admin Role = "admin"
)

// roles are the roles of users, in ascending order.
var roles = []Role{View, Operate, Admin}

// RoleOf returns the role of that name. Other names are fault.Invalid.
func RoleOf(name string) (Role, error) {
	if r := Role(name); slices.Contains(roles, r) {
		return r, nil
	}
	return Nobody, fault.New(fault.Invalid, "role %q does not exist", name).WithHint("use one of the roles view, operate and admin")
}

// May reports whether r includes need.
func (r Role) May(need Role) bool {
	return need == Nobody || slices.Index(roles, r) >= slices.Index(roles, need)
}

// User is the user of a request.
type User struct {
	Name    string // name of the token or the certificate
	Role    Role   // role of the user; Nobody without a user
	From    string // address of the client
	Session string // session cookie; empty with a token or a certificate
}

// whoKey is the key of the user in the context of a request.
type whoKey struct{}

// withWho returns a context with the user.
func withWho(ctx context.Context, w User) context.Context { return context.WithValue(ctx, whoKey{}, w) }

// whoIn returns the user in ctx; the zero value if none exists.
func whoIn(ctx context.Context) User {
	w, _ := ctx.Value(whoKey{}).(User)
	return w
}

// roleError returns the error for a user without the required role. what is a description: "drop a
// plan".
func (w User) roleError(need Role, what string) error {
	return fault.New(fault.Denied, "%s may not %s: that takes the role %s", fmt.Sprintf("%s (%s)", w.Name, w.Role), what, need).
		WithHint("use a token of that role; an administrator of the server creates one: decamp token add NAME --role %s", strings.ToLower(string(need)))
}
