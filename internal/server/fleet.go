package server

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/decamp/decamp/internal/roster"
)

// capacity is a limit that operators set: of a resource, or a rate.
type capacity struct {
	Name  string `json:"name" maxLength:"200" pattern:"^[a-z]+:[^/\\x00-\\x1F\\x7F]+(/[^/\\x00-\\x1F\\x7F]+)*$" doc:"host:esx1/vms, host:*/vms, worker:w1/vms, host:esx1/rate"`
	Units int64  `json:"units" minimum:"-1" maximum:"1000000000000000" doc:"of a capacity; bytes a second of a rate; 0 is a pause, -1 takes the limit back"`
}

type limitsIn struct {
	Body struct {
		Limits []capacity `json:"limits" nullable:"false" minItems:"1" maxItems:"1000"`
	}
}

func (s *Server) limitRoutes(api huma.API) {
	register(api, route{method: http.MethodGet, path: "/v1/limits", id: "listLimits", what: "list the limits", role: View,
		tells: "Those that operators set. Others are the plans' own, or the defaults."}, s.listLimits)
	register(api, route{method: http.MethodPut, path: "/v1/limits", id: "setLimits", what: "set limits", role: Operate,
		tells: "Those that are named; the others stay. They count at once."}, s.setLimits)
}

func (s *Server) listLimits(ctx context.Context, _ *struct{}) (*listOut[roster.Limit], error) {
	limits, err := s.local.Limits(ctx)
	return listOf(limits), err
}

func (s *Server) setLimits(ctx context.Context, in *limitsIn) (*listOut[roster.Limit], error) {
	for _, l := range in.Body.Limits { // none is set if one is wrong
		if err := checkLimit(l.Name, l.Units); err != nil {
			return nil, err
		}
	}
	for _, l := range in.Body.Limits {
		if err := s.change(ctx, "set limit", l.Name, func() error { return s.local.SetLimit(ctx, l.Name, l.Units) }); err != nil {
			return nil, err
		}
	}
	return s.listLimits(ctx, nil)
}

func (s *Server) fleetRoutes(api huma.API) {
	register(api, route{method: http.MethodGet, path: "/v1/workers", id: "listWorkers", what: "list the workers", role: View}, s.listWorkers)
	register(api, route{method: http.MethodPost, path: "/v1/workers/{worker}/drain", id: "drainWorker", what: "drain a worker", role: Admin,
		status: http.StatusNoContent, tells: "It is given nothing more until it is told otherwise; what it has under way goes on."}, s.drainWorker)
	register(api, route{method: http.MethodGet, path: "/v1/board", id: "getBoard", what: "see the scheduler's board", role: View,
		tells: "What is in use, and why each VM waits. It is written while somebody looks, every few seconds: the first answer may have none."}, s.getBoard)
	register(api, route{method: http.MethodGet, path: "/v1/audit", id: "listAudit", what: "see the audit trail", role: Admin,
		tells: "Newest first: who did what, and what was refused."}, s.listAudit)
}

// workerItem has an object where the roster may have none.
func (s *Server) listWorkers(ctx context.Context, _ *struct{}) (*listOut[roster.Worker], error) {
	workers, err := s.local.Workers(ctx)
	for i := range workers {
		if workers[i].Offers == nil {
			workers[i].Offers = map[string]string{}
		}
	}
	return listOf(workers), err
}

type drainIn struct {
	Worker string `path:"worker" maxLength:"128" pattern:"^[A-Za-z0-9._@-]+$"`
	Body   struct {
		Drain bool `json:"drain" doc:"false: it is given VMs again"`
	}
}

func (s *Server) drainWorker(ctx context.Context, in *drainIn) (*struct{}, error) {
	what := "drain a worker"
	if !in.Body.Drain {
		what = "end the drain of a worker"
	}
	return nil, s.change(ctx, what, in.Worker, func() error { return s.local.Drain(ctx, in.Worker, in.Body.Drain) })
}

type boardOut struct {
	Body struct {
		At    time.Time       `json:"at,omitzero" doc:"when it was written; missing: there is none yet"`
		Board json.RawMessage `json:"board,omitempty" doc:"resources and who waits, as the scheduler of this release writes it"`
	}
}

func (s *Server) getBoard(ctx context.Context, _ *struct{}) (*boardOut, error) {
	out := &boardOut{}
	var err error
	out.Body.Board, out.Body.At, err = s.local.Board(ctx)
	return out, err
}

type auditQuery struct {
	Before int64 `query:"before" minimum:"0" doc:"the id of the last line of the page before"`
	Limit  int   `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

func (s *Server) listAudit(ctx context.Context, in *auditQuery) (*listOut[roster.Entry], error) {
	entries, err := s.local.Audit(ctx, in.Before, in.Limit)
	out := listOf(entries)
	if len(entries) == in.Limit {
		out.Body.Next = entries[len(entries)-1].ID
	}
	return out, err
}
