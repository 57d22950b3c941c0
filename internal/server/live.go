package server

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/fleet"
	"github.com/decamp/decamp/internal/roster"
)

// Ages at which what is read beside the rows is read again. Whoever asks more often is given
// what the last one got.
const (
	progressAge = 400 * time.Millisecond
	boardAge    = time.Second
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

// live is what is read for all who ask, and not for each.
type live struct {
	local Local
	now   func() time.Time

	mu       sync.Mutex // held while it is read: the others wait for what the first one reads
	progress []roster.Progress
	at       time.Time // of progress
	byVM     map[roster.Key]int

	boardAt time.Time // when it was read
	raw     json.RawMessage
	board   Board
	why     map[roster.Key]string
}

func newLive(local Local) *live { return &live{local: local, now: time.Now} }

// beside is what is known of VMs beside their rows, at one moment. It is not changed.
type beside struct {
	progress []roster.Progress
	byVM     map[roster.Key]int
	board    Board
	why      map[roster.Key]string
}

// look returns what is known now.
func (l *live) look(ctx context.Context) (*beside, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.readProgress(ctx); err != nil {
		return nil, err
	}
	if err := l.readBoard(ctx); err != nil {
		return nil, err
	}
	return &beside{l.progress, l.byVM, l.board, l.why}, nil
}

func (l *live) readProgress(ctx context.Context) error {
	if l.byVM != nil && l.now().Sub(l.at) < progressAge {
		return nil
	}
	progress, err := l.local.Progress(ctx, "")
	if err != nil {
		return err
	}
	byVM := make(map[roster.Key]int, len(progress))
	for i, p := range progress {
		byVM[p.Key] = i
	}
	l.progress, l.byVM, l.at = progress, byVM, l.now()
	return nil
}

func (l *live) readBoard(ctx context.Context) error {
	if !l.boardAt.IsZero() && l.now().Sub(l.boardAt) < boardAge {
		return nil
	}
	raw, at, err := l.local.Board(ctx)
	if err != nil {
		return err
	}
	l.boardAt = l.now()
	if at.Equal(l.board.At) && l.why != nil {
		return nil
	}
	return l.decode(raw, at)
}

func (l *live) decode(raw json.RawMessage, at time.Time) error {
	board := Board{}
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &board); err != nil {
			return err
		}
	}
	board.At, board.common = at, common(board.Waiting)
	why := make(map[roster.Key]string, len(board.Waiting))
	for _, w := range board.Waiting {
		why[w.Key] = w.Sentence
	}
	l.raw, l.board, l.why = raw, board, why
	return nil
}

// item puts together what is known of a VM.
func (b *beside) item(vm roster.VM) vmItem {
	it := vmItem{VM: vm, Why: b.why[vm.Key]}
	if i, ok := b.byVM[vm.Key]; ok && !vm.State.Over() {
		it.Progress = &b.progress[i]
	}
	if vm.Holds || vm.State.Over() {
		it.Why = "" // the board is of a moment ago
	}
	return it
}

// Silence is fleet.Silence of the VM.
func (it vmItem) Silence() string { return fleet.Silence(it.VM, it.Progress) }
