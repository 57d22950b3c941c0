package server

import (
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/decamp/decamp/internal/fault"
)

// gate decides which requests are permitted, and records those that it refuses. It is safe for
// concurrent use.
type gate struct {
	auth  *authenticator
	trail *auditTrail
}

// permit returns who sent the request, with an error if their role does not include need. what and
// on are for the audit trail: "cutover", "wave-1/vm-42".
func (g *gate) permit(r *http.Request, need Role, what, on string) (Who, error) {
	who, err := g.auth.who(r)
	switch {
	case need == Nobody:
		return who, nil
	case err == nil && who.Role == Nobody:
		err = errNobody
	case err == nil && who.Session != "" && !reads(r) && strings.HasPrefix(r.URL.Path, "/v1/"):
		err = fault.New(fault.Denied, "a browser's session only reads here").WithHint("use a token: Authorization: Bearer …")
	case err == nil && !who.Role.May(need):
		err = who.refuse(need, what)
	}
	if err != nil {
		g.trail.noteRefusal(r.Context(), who, what, on, err)
	}
	return who, err
}

// authorize passes on the API's requests that their operation's role permits.
func (g *gate) authorize(ctx huma.Context, next func(huma.Context)) {
	op := ctx.Operation()
	r, w := humago.Unwrap(ctx)
	who, err := g.permit(r, op.Metadata[roleKey].(Role), op.Summary, r.URL.Path)
	if err != nil {
		problemOf(err).write(w)
		return
	}
	next(huma.WithContext(ctx, withWho(ctx.Context(), who)))
}

func reads(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

const roleKey = "role" // key of an operation's metadata
