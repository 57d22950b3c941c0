// Package fanout reads a disk once for several runs: each run lands the same VM in a place
// of its own, and their transfers of one disk become one.
//
//	run 1  Transfer(disk 2000) --\                          /--> target and manifest of run 1
//	run 2  Transfer(disk 2000) ---+-> inner.Transfer once --+--> target and manifest of run 2
//	run 3  Transfer(disk 2000) --/                          \--> target and manifest of run 3
//
// A run cannot tell: it has a Member, which is a transport.Transport. Everything else that
// a run does (its plan, its images, its proof, its end) stays its own, so a destination
// that fails fails its run alone, and is continued alone.
//
// # How they meet
//
// A transfer of a disk begins once every Member has asked for that disk, has settled it
// (has it already, or gave it up), or has left. So nobody waits for a run that does not
// come: whoever fails leaves. Runs take their disks up in the same order, a few at a time,
// so the lowest disk that somebody waits for is always one that all others get to.
//
// # What is promised
//
//   - Bytes are taken from the source once, and handed to the targets from one buffer: no
//     memory is added.
//   - A chunk is safe for all if it is safe in every manifest. What some have already is
//     written to them again, and taken off their manifest first.
//   - A target or manifest that fails is left out from then on: nothing more is written or
//     listed there. The transfer ends when nobody is left.
//
// All write at the speed of the slowest. One that neither goes on nor fails holds up all.
package fanout

import (
	"context"
	"slices"
	"sync"

	"github.com/decamp/decamp/internal/transport"
)

// Group is several runs that move the same VM.
type Group struct {
	inner transport.Transport

	mu      sync.Mutex
	members []*Member
	disks   map[int32]*meeting
}

// meeting is where the runs meet for one disk.
type meeting struct {
	waiting []*part
	settled map[*Member]bool
	busy    bool // a transfer is under way
}

// New returns a group of n members that share inner, which stays the caller's.
func New(inner transport.Transport, n int) *Group {
	g := &Group{inner: inner, disks: map[int32]*meeting{}}
	for range n {
		g.members = append(g.members, &Member{group: g})
	}
	return g
}

// Member returns the transport of run i, from 0.
func (g *Group) Member(i int) *Member { return g.members[i] }

// meetingFor returns that of a disk, by its key. It needs mu.
func (g *Group) meetingFor(key int32) *meeting {
	if g.disks[key] == nil {
		g.disks[key] = &meeting{settled: map[*Member]bool{}}
	}
	return g.disks[key]
}

// beginIfReady starts the transfer of a disk if everybody is there. It needs mu.
func (g *Group) beginIfReady(m *meeting) {
	if m.busy || len(m.waiting) == 0 || slices.ContainsFunc(g.members, m.isExpected) {
		return
	}
	ctx, f := newSharedTransfer(m.waiting)
	m.waiting, m.busy = nil, true
	go g.runTransfer(ctx, m, f)
}

// isExpected reports whether a member is still to come.
func (m *meeting) isExpected(who *Member) bool {
	here := func(p *part) bool { return p.member == who }
	return !who.left && !m.settled[who] && !slices.ContainsFunc(m.waiting, here)
}

// runTransfer does it, tells everybody how it ended, and lets those begin who came meanwhile.
func (g *Group) runTransfer(ctx context.Context, m *meeting, f *sharedTransfer) {
	res, err := g.inner.Transfer(ctx, f.combinedJob())
	f.finish(res, err)
	g.mu.Lock()
	defer g.mu.Unlock()
	m.busy = false
	g.beginIfReady(m)
}
