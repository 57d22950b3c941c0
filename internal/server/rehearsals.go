package server

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/decamp/decamp/internal/fleetdb"
)

// rehearsalAPI serves the rehearsals of VMs.
type rehearsalAPI struct {
	rehearsals *fleetdb.Rehearsals // rehearsals of the fleet database
	trail      *auditTrail         // records changes
}

// registerRoutes implements resource.
func (a *rehearsalAPI) registerRoutes(api huma.API) {
	const all = "/v1/plans/{plan}/vms/{vm}/rehearsals"
	register(api, route{method: http.MethodGet, path: all, id: "listRehearsals", what: "see the rehearsals of a VM", role: View,
		details: "The requested rehearsal, and the last one that ended. Files in a report are on the worker."}, a.list)
	register(api, route{method: http.MethodPut, path: all + "/{rehearsal}", id: "rehearseVM", what: "rehearse a VM", role: Operate,
		status: http.StatusNoContent,
		details: "The worker of a warm VM boots it from temporary overlays on its images as soon as no round is running. " +
			"Its name is the caller's choice, and another one each time; the same again changes nothing."}, a.request)
	register(api, route{method: http.MethodDelete, path: all + "/{rehearsal}", id: "takeBackRehearsal", what: "take back a rehearsal", role: Operate,
		status: http.StatusNoContent, details: "A running rehearsal is ended. A missing request is not an error."}, a.takeBack)
}

// list returns the requested rehearsal of a VM, and the last one that has a result.
func (a *rehearsalAPI) list(ctx context.Context, in *VMPath) (*listOut[fleetdb.Rehearsed], error) {
	all, err := a.rehearsals.List(ctx, fleetdb.Key{Plan: in.Plan, VM: in.VM})
	return listOf(all), err
}

// RehearsalPath are the parameters of paths that name a rehearsal. It is exported for the library.
type RehearsalPath struct {
	VMPath
	Rehearsal string `path:"rehearsal" maxLength:"64" pattern:"^[A-Za-z0-9-]+$" doc:"its name"`
}

// rehearsalIn is the request of rehearseVM.
type rehearsalIn struct {
	RehearsalPath
	Body struct {
		Expect   string        `json:"expect,omitempty" maxLength:"256" doc:"text on the serial port or text screen that means the guest is up, beside a login and its network"`
		Deadline time.Duration `json:"deadline,omitempty" minimum:"0" maximum:"86400000000000" doc:"nanoseconds that the guest may take; 0: 5 minutes, emulated 15"`
	}
}

// request requests a rehearsal of a VM.
func (a *rehearsalAPI) request(ctx context.Context, in *rehearsalIn) (*struct{}, error) {
	k := fleetdb.Key{Plan: in.Plan, VM: in.VM}
	ask := fleetdb.Rehearsal{ID: in.Rehearsal, Expect: in.Body.Expect, Deadline: in.Body.Deadline}
	return nil, a.trail.recordChange(ctx, "rehearse", k.String(), func() error { return a.rehearsals.Request(ctx, k, ask) })
}

// takeBack withdraws the request for a rehearsal.
func (a *rehearsalAPI) takeBack(ctx context.Context, in *RehearsalPath) (*struct{}, error) {
	k := fleetdb.Key{Plan: in.Plan, VM: in.VM}
	return nil, a.trail.recordChange(ctx, "take back a rehearsal", k.String(), func() error { return a.rehearsals.TakeBack(ctx, k, in.Rehearsal) })
}
