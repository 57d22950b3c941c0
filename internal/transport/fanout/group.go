// Package fanout reads a disk once for several runs: each run copies the same VM to another
// destination, and their transfers of one disk become one.
//
//	run 1  Transfer(disk 2000) --\                          /--> target and manifest of run 1
//	run 2  Transfer(disk 2000) ---+-> inner.Transfer once --+--> target and manifest of run 2
//	run 3  Transfer(disk 2000) --/                          \--> target and manifest of run 3
//
// A run uses its Member like any transport.Transport. All other steps of the runs (plan,
// images, verification, publication) are independent. A destination that fails therefore
// fails only its run, which can be continued alone.
//
// # When a transfer begins
//
// A transfer of a disk begins once every Member has requested that disk, has settled it (the
// disk is copied already, or its copy failed), or has left. A run that fails leaves, so that
// no other run waits for it. Runs copy their disks in the same order, a few at a time.
// Therefore all runs reach the lowest disk that any run waits for.
//
// # What is promised
//
//   - Bytes are read from the source once, and written to all targets from one buffer: no
//     memory is added.
//   - A chunk is skipped if every manifest lists it. If only some do, it is dropped from
//     those, and written to all targets.
//   - A target or manifest that fails is left out: nothing more is written or listed there.
//     The transfer ends when no part is left.
//
// All targets are written at the speed of the slowest. A target that neither progresses nor
// fails delays all of them.
package fanout

import (
	"context"
	"slices"
	"sync"

	"github.com/decamp/decamp/internal/transport"
)

// Group is several runs that move the same VM. It is safe for concurrent use.
type Group struct {
	inner transport.Transport // transport that reads the disks

	mu      sync.Mutex           // guards the fields below, and left of each Member
	members []*Member            // one for each run; does not change
	disks   map[int32]*diskState // states by the key of the disk
}

// diskState contains the runs that wait for the transfer of one disk.
type diskState struct {
	waiting []*part          // parts of runs that wait
	settled map[*Member]bool // members that need no transfer of the disk
	busy    bool             // a transfer of the disk is running
}

// New returns a Group of n members that share inner. The caller closes inner.
func New(inner transport.Transport, n int) *Group {
	g := &Group{inner: inner, disks: map[int32]*diskState{}}
	for range n {
		g.members = append(g.members, &Member{group: g})
	}
	return g
}

// Member returns the transport of run i, counted from 0.
func (g *Group) Member(i int) *Member { return g.members[i] }

// stateOf returns the state of a disk, by its key. mu must be held.
func (g *Group) stateOf(key int32) *diskState {
	if g.disks[key] == nil {
		g.disks[key] = &diskState{settled: map[*Member]bool{}}
	}
	return g.disks[key]
}

// beginIfReady starts the transfer of a disk once no further member is expected. mu must be held.
func (g *Group) beginIfReady(m *diskState) {
	if m.busy || len(m.waiting) == 0 || slices.ContainsFunc(g.members, m.isExpected) {
		return
	}
	ctx, f := newSharedTransfer(m.waiting)
	m.waiting, m.busy = nil, true
	go g.runTransfer(ctx, m, f)
}

// isExpected reports whether a member may still arrive.
func (m *diskState) isExpected(member *Member) bool {
	isPart := func(p *part) bool { return p.member == member }
	return !member.left && !m.settled[member] && !slices.ContainsFunc(m.waiting, isPart)
}

// runTransfer runs a transfer and ends its parts. Then it starts one for the runs that arrived
// meanwhile.
func (g *Group) runTransfer(ctx context.Context, m *diskState, f *sharedTransfer) {
	res, err := g.inner.Transfer(ctx, f.combinedJob())
	f.finish(res, err)
	g.mu.Lock()
	defer g.mu.Unlock()
	m.busy = false
	g.beginIfReady(m)
}
