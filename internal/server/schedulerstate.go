package server

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// schedulerAPI serves the state of the scheduler.
type schedulerAPI struct{ control Control }

// registerRoutes implements resource.
func (a *schedulerAPI) registerRoutes(api huma.API) {
	register(api, route{method: http.MethodGet, path: "/v1/scheduler", id: "getScheduler", what: "see the state of the scheduler", role: View,
		details: "Resources in use, and the reason of each wait. The scheduler writes it every few seconds while clients read it: the first response may be empty."}, a.get)
}

// schedulerOut is the response of getScheduler.
type schedulerOut struct {
	Body struct {
		At    time.Time       `json:"at,omitzero" doc:"time of the last write; missing if it was not written yet"`
		State json.RawMessage `json:"state,omitempty" doc:"resources and waiting VMs, in the format of this release's scheduler"`
	}
}

// get returns the last state of the scheduler. The call also requests a new one from the scheduler.
func (a *schedulerAPI) get(ctx context.Context, _ *struct{}) (*schedulerOut, error) {
	out := &schedulerOut{}
	var err error
	out.Body.State, out.Body.At, err = a.control.SchedulerState(ctx)
	return out, err
}
