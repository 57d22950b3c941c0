package server

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/decamp/decamp/internal/fleetdb"
)

// workerAPI serves the workers.
type workerAPI struct {
	workers *fleetdb.Workers // workers of the fleet database
	trail   *auditTrail      // records changes
}

// registerRoutes implements resource.
func (a *workerAPI) registerRoutes(api huma.API) {
	register(api, route{method: http.MethodGet, path: "/v1/workers", id: "listWorkers", what: "list the workers", role: View}, a.list)
	register(api, route{method: http.MethodPost, path: "/v1/workers/{worker}/drain", id: "drainWorker", what: "drain a worker", role: Admin,
		status: http.StatusNoContent, details: "It gets no more VMs until it is resumed; its running VMs continue."}, a.drain)
}

// list returns all workers that ever joined. Offers is an empty object instead of null.
func (a *workerAPI) list(ctx context.Context, _ *struct{}) (*listOut[fleetdb.Worker], error) {
	workers, err := a.workers.List(ctx)
	for i := range workers {
		if workers[i].Offers == nil {
			workers[i].Offers = map[string]string{}
		}
	}
	return listOf(workers), err
}

// drainIn is the request of drainWorker.
type drainIn struct {
	Worker string `path:"worker" maxLength:"128" pattern:"^[A-Za-z0-9._@-]+$"`
	Body   struct {
		Drain bool `json:"drain" doc:"false: it gets VMs again"`
	}
}

// drain stops or resumes assignments to a worker.
func (a *workerAPI) drain(ctx context.Context, in *drainIn) (*struct{}, error) {
	what := "drain a worker"
	if !in.Body.Drain {
		what = "end the drain of a worker"
	}
	return nil, a.trail.recordChange(ctx, what, in.Worker, func() error { return a.workers.Drain(ctx, in.Worker, in.Body.Drain) })
}
