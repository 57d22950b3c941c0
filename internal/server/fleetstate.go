package server

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/fleet"
	"github.com/decamp/decamp/internal/fleetdb"
)

// Ages at which progress and board are read again. Earlier requests get the last result.
const (
	progressAge = 400 * time.Millisecond
	boardAge    = time.Second
)

// fleetCache reads progress and board once for all clients that ask at the same time. It is safe for
// concurrent use.
type fleetCache struct {
	control Control
	now     func() time.Time

	mu       sync.Mutex // held while it is read: the others wait for what the first one reads
	progress []fleetdb.Progress
	at       time.Time // time of progress
	byVM     map[fleetdb.Key]int

	boardAt time.Time // when it was read
	raw     json.RawMessage
	board   Board
	why     map[fleetdb.Key]string
}

func newFleetCache(c Control) *fleetCache { return &fleetCache{control: c, now: time.Now} }

// fleetState is the state of VMs beside their rows at one point in time. It is immutable.
type fleetState struct {
	progress []fleetdb.Progress
	byVM     map[fleetdb.Key]int
	board    Board
	why      map[fleetdb.Key]string
}

// readState returns the state of now, or of a moment ago.
func (c *fleetCache) readState(ctx context.Context) (*fleetState, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.readProgress(ctx); err != nil {
		return nil, err
	}
	if err := c.readBoard(ctx); err != nil {
		return nil, err
	}
	return &fleetState{c.progress, c.byVM, c.board, c.why}, nil
}

func (c *fleetCache) readProgress(ctx context.Context) error {
	if c.byVM != nil && c.now().Sub(c.at) < progressAge {
		return nil
	}
	progress, err := c.control.Progress(ctx, "")
	if err != nil {
		return err
	}
	byVM := make(map[fleetdb.Key]int, len(progress))
	for i, p := range progress {
		byVM[p.Key] = i
	}
	c.progress, c.byVM, c.at = progress, byVM, c.now()
	return nil
}

func (c *fleetCache) readBoard(ctx context.Context) error {
	if !c.boardAt.IsZero() && c.now().Sub(c.boardAt) < boardAge {
		return nil
	}
	raw, at, err := c.control.Board(ctx)
	if err != nil {
		return err
	}
	c.boardAt = c.now()
	if at.Equal(c.board.At) && c.why != nil {
		return nil
	}
	return c.decodeBoard(raw, at)
}

func (c *fleetCache) decodeBoard(raw json.RawMessage, at time.Time) error {
	board := Board{}
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &board); err != nil {
			return err
		}
	}
	board.At, board.common = at, commonReason(board.Waiting)
	why := make(map[fleetdb.Key]string, len(board.Waiting))
	for _, w := range board.Waiting {
		why[w.Key] = w.Sentence
	}
	c.raw, c.board, c.why = raw, board, why
	return nil
}

// itemOf returns a VM with its state.
func (b *fleetState) itemOf(vm fleetdb.VM) vmItem {
	it := vmItem{VM: vm, Why: b.why[vm.Key]}
	if i, ok := b.byVM[vm.Key]; ok && !vm.State.Over() {
		it.Progress = &b.progress[i]
	}
	if vm.Holds || vm.State.Over() {
		it.Why = "" // the board is of a moment ago
	}
	return it
}

// commonReason returns the most frequent reason of waits that no resource's queue shows: no worker, a window.
func commonReason(waiting []Waiting) string {
	counts := map[string]int{}
	most := ""
	for _, w := range waiting {
		counts[w.Sentence]++
		if n := counts[w.Sentence]; n > counts[most] || n == counts[most] && w.Sentence < most {
			most = w.Sentence
		}
	}
	if most == "" {
		return ""
	}
	return fmt.Sprintf("%d VMs wait: %s", counts[most], most)
}

// Board is the scheduler's state, written while clients read it.
type Board struct {
	At        time.Time  `json:"at,omitzero"` // zero if no scheduler runs, or no client has read it yet
	Resources []Resource `json:"resources"`
	Waiting   []Waiting  `json:"waiting"`
	Breakers  []Breaker  `json:"breakers,omitempty"`

	common string // most frequent reason of waits, with its number; empty if there is none
}

// Breaker is a source or a host at which no VM starts for a while, or until a user resumes it.
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
	fleetdb.Key
	Sentence string `json:"sentence"`
	Position int    `json:"position,omitempty"`
}

// vmItem is a VM with its state beside its row.
type vmItem struct {
	fleetdb.VM
	Progress *fleetdb.Progress `json:"progress,omitempty"`
	Why      string            `json:"why,omitempty" doc:"reason of its wait for a transfer slot"`
}

// Silence is fleet.Silence of the VM.
func (it vmItem) Silence() string { return fleet.Silence(it.VM, it.Progress) }

// withCounts fills in what JSON shows as null otherwise.
func withCounts(p fleetdb.Plan) fleetdb.Plan {
	if p.Counts == nil {
		p.Counts = fleetdb.Counts{}
	}
	return p
}
