package server

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/decamp/decamp/internal/fleetdb"
)

// auditAPI serves the audit trail.
type auditAPI struct{ entries *fleetdb.AuditTrail }

func (a *auditAPI) registerRoutes(api huma.API) {
	register(api, route{method: http.MethodGet, path: "/v1/audit", id: "listAudit", what: "see the audit trail", role: Admin,
		details: "Newest first: changes and refused requests, with their users."}, a.list)
}

type auditQuery struct {
	Before int64 `query:"before" minimum:"0" doc:"the id of the last line of the page before"`
	Limit  int   `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

func (a *auditAPI) list(ctx context.Context, in *auditQuery) (*listOut[fleetdb.Entry], error) {
	entries, err := a.entries.List(ctx, in.Before, in.Limit)
	out := listOf(entries)
	if len(entries) == in.Limit {
		out.Body.Next = entries[len(entries)-1].ID
	}
	return out, err
}
