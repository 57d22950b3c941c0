package server

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/decamp/decamp/internal/roster"
)

// Board is what the scheduler says of itself, while somebody looks.
type Board struct {
	At        time.Time  `json:"at,omitzero"` // zero: nobody schedules, or nobody looked until now
	Resources []Resource `json:"resources"`
	Waiting   []Waiting  `json:"waiting"`
	Breakers  []Breaker  `json:"breakers,omitempty"`

	common string // what most of those who wait wait for, with their number; "" if there is none
}

// Breaker is a source or a host that nothing is begun at for a while, or until somebody says
// resume.
type Breaker struct {
	Of       string `json:"of"` // "source vc1:443"
	Sentence string `json:"sentence"`
}

// Resource is one that VMs need a share of to begin: "host:esx1/vms".
type Resource struct {
	Name     string `json:"name"`
	Capacity int64  `json:"capacity"`
	Used     int64  `json:"used"`
	Waiting  int    `json:"waiting"` // VMs
}

// Waiting is why a VM waits, for people.
type Waiting struct {
	roster.Key
	Sentence string `json:"sentence"`
	Position int    `json:"position,omitempty"`
}

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
