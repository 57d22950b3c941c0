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

func (a *boardAPI) routes(api huma.API) {
	register(api, route{method: http.MethodGet, path: "/v1/board", id: "getBoard", what: "see the scheduler's board", role: View,
		tells: "What is in use, and why each VM waits. It is written while somebody looks, every few seconds: the first answer may have none."}, a.get)
}

type boardOut struct {
	Body struct {
		At    time.Time       `json:"at,omitzero" doc:"when it was written; missing: there is none yet"`
		Board json.RawMessage `json:"board,omitempty" doc:"resources and who waits, as the scheduler of this release writes it"`
	}
}

func (a *boardAPI) get(ctx context.Context, _ *struct{}) (*boardOut, error) {
	out := &boardOut{}
	var err error
	out.Body.Board, out.Body.At, err = a.control.Board(ctx)
	return out, err
}
