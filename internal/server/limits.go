package server

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/decamp/decamp/internal/fleetdb"
)

// capacity is a limit that operators set: the capacity of a resource, or a rate.
type capacity struct {
	Name  string `json:"name" maxLength:"200" pattern:"^[a-z]+:[^/\\x00-\\x1F\\x7F]+(/[^/\\x00-\\x1F\\x7F]+)*$" doc:"host:esx1/vms, host:*/vms, worker:w1/vms, host:esx1/rate"`
	Units int64  `json:"units" minimum:"-1" maximum:"1000000000000000" doc:"of a capacity; bytes a second of a rate; 0 is a pause, -1 takes the limit back"`
}

// limitsIn is the request of setLimits.
type limitsIn struct {
	Body struct {
		Limits []capacity `json:"limits" nullable:"false" minItems:"1" maxItems:"1000"`
	}
}

// limitAPI serves the limits.
type limitAPI struct {
	control Control     // reads and sets limits
	trail   *auditTrail // records changes
}

// registerRoutes implements resource.
func (a *limitAPI) registerRoutes(api huma.API) {
	register(api, route{method: http.MethodGet, path: "/v1/limits", id: "listLimits", what: "list the limits", role: View,
		details: "Limits that operators set. Plans and defaults set the others."}, a.list)
	register(api, route{method: http.MethodPut, path: "/v1/limits", id: "setLimits", what: "set limits", role: Operate,
		details: "Sets the named limits; the others stay unchanged. Limits apply at once."}, a.set)
}

// list returns the limits that operators set.
func (a *limitAPI) list(ctx context.Context, _ *struct{}) (*listOut[fleetdb.Limit], error) {
	limits, err := a.control.Limits(ctx)
	return listOf(limits), err
}

// set sets limits one after the other, and returns all limits. If the name of one is invalid, none is
// set.
func (a *limitAPI) set(ctx context.Context, in *limitsIn) (*listOut[fleetdb.Limit], error) {
	for _, l := range in.Body.Limits { // none is set if one is wrong
		if err := checkLimit(l.Name, l.Units); err != nil {
			return nil, err
		}
	}
	for _, l := range in.Body.Limits {
		if err := a.trail.recordChange(ctx, "set limit", l.Name, func() error { return a.control.SetLimit(ctx, l.Name, l.Units) }); err != nil {
			return nil, err
		}
	}
	return a.list(ctx, nil)
}
