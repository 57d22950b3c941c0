package server

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/decamp/decamp/internal/fleetdb"
)

// auditAPI serves the audit trail.
type auditAPI struct{ entries *fleetdb.AuditTrail }

// registerRoutes implements resource.
func (a *auditAPI) registerRoutes(api huma.API) {
	register(api, route{method: http.MethodGet, path: "/v1/audit", id: "listAudit", what: "see the audit trail", role: Admin,
		details: "Newest first: changes and refused requests, with their users."}, a.list)
}

// auditQuery are the parameters of listAudit.
type auditQuery struct {
	Before int64 `query:"before" minimum:"0" doc:"the id of the last line of the page before"`
	Limit  int   `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

// list returns a page of the audit trail. Next is the ID to continue from, if the page is full.
func (a *auditAPI) list(ctx context.Context, in *auditQuery) (*listOut[fleetdb.Entry], error) {
	entries, err := a.entries.List(ctx, in.Before, in.Limit)
	out := listOf(entries)
	if len(entries) == in.Limit {
		out.Body.Next = entries[len(entries)-1].ID
	}
	return out, err
}
