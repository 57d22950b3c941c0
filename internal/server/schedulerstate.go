package server

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// boardAPI serves the board of the scheduler.
type boardAPI struct{ control Control }

// registerRoutes implements resource.
func (a *boardAPI) registerRoutes(api huma.API) {
	register(api, route{method: http.MethodGet, path: "/v1/scheduler", id: "getScheduler", what: "see the state of the scheduler", role: View,
		details: "Resources in use, and the reason of each wait. The scheduler writes it every few seconds while clients read it: the first response may be empty."}, a.get)
}

// boardOut is the response of getBoard.
type boardOut struct {
	Body struct {
		At    time.Time       `json:"at,omitzero" doc:"time of the last write; missing if it was not written yet"`
		Board json.RawMessage `json:"state,omitempty" doc:"resources and waiting VMs, in the format of this release's scheduler"`
	}
}

// get returns the last board. The call also requests a new one from the scheduler.
func (a *boardAPI) get(ctx context.Context, _ *struct{}) (*boardOut, error) {
	out := &boardOut{}
	var err error
	out.Body.Board, out.Body.At, err = a.control.SchedulerState(ctx)
	return out, err
}
