package server

import (
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/decamp/decamp/internal/fault"
)

// gate decides which requests are permitted, and records refusals. It is safe for concurrent use.
type gate struct {
	auth  *authenticator // identifies the user
	trail *auditTrail    // records refusals
}

// permitRequest returns the user of the request, with an error if the role does not include need. what
// and on are for the audit trail: "cutover", "wave-1/vm-42". A session may only read below /v1/.
func (g *gate) permitRequest(r *http.Request, need Role, what, on string) (User, error) {
	who, err := g.auth.identifyUser(r)
	switch {
	case need == Nobody:
		return who, nil
	case err == nil && who.Role == Nobody:
		err = errNobody
	case err == nil && who.Session != "" && !isRead(r) && strings.HasPrefix(r.URL.Path, "/v1/"):
		err = fault.New(fault.Denied, "a browser's session only reads here").WithHint("use a token: Authorization: Bearer …")
	case err == nil && !who.Role.May(need):
		err = who.roleError(need, what)
	}
	if err != nil {
		g.trail.noteRefusal(r.Context(), who, what, on, err)
	}
	return who, err
}

// authorizeOperation is the middleware of the API. It passes on requests that the role of their
// operation permits.
func (g *gate) authorizeOperation(ctx huma.Context, next func(huma.Context)) {
	op := ctx.Operation()
	r, w := humago.Unwrap(ctx)
	who, err := g.permitRequest(r, op.Metadata[roleKey].(Role), op.Summary, r.URL.Path)
	if err != nil {
		problemOf(err).writeTo(w)
		return
	}
	next(huma.WithContext(ctx, withWho(ctx.Context(), who)))
}

// isRead reports whether the method of a request changes nothing.
func isRead(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

const roleKey = "role" // key of an operation's metadata
