package fanout

import (
	"context"
	"slices"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/transport"
)

// Member is one run's share of a Group. It is a transport.Transport.
type Member struct {
	group *Group
	left  bool // the group's mu
}

var _ transport.Transport = (*Member)(nil)

// Name is part of transport.Transport.
func (m *Member) Name() string { return m.group.inner.Name() }

// Lifts is part of transport.Lifter.
func (m *Member) Lifts(code string) bool { return transport.Lifts(m.group.inner, code) }

// Probe is part of transport.Transport.
func (m *Member) Probe(ctx context.Context, d transport.Disk) (transport.Offer, error) {
	return m.group.inner.Probe(ctx, d)
}

// Transfer is part of transport.Transport. It waits for the other members. Its result is
// that of the transfer they share.
func (m *Member) Transfer(ctx context.Context, job transport.Job) (blockcopy.Result, error) {
	p := newPart(ctx, m, job)
	at := m.group.addPart(p)
	select {
	case <-p.gone:
	case <-ctx.Done():
		if m.group.removeWaiting(at, p) {
			return blockcopy.Result{}, ctx.Err()
		}
		p.leaveTransfer(ctx.Err())
	}
	p.waitUnused()
	return p.result, p.err
}

// Settle says that this run needs no transfer of a disk, or no other one: nobody waits for
// it there.
func (m *Member) Settle(key int32) {
	g := m.group
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.meetingFor(key)
	at.settled[m] = true
	g.beginIfReady(at)
}

// Close is part of transport.Transport: the run is over, nobody waits for it anywhere.
func (m *Member) Close() error {
	g := m.group
	g.mu.Lock()
	defer g.mu.Unlock()
	m.left = true
	for _, at := range g.disks {
		g.beginIfReady(at)
	}
	return nil
}

func (g *Group) addPart(p *part) *meeting {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.meetingFor(p.job.Disk.Disk.Key)
	at.waiting = append(at.waiting, p)
	g.beginIfReady(at)
	return at
}

// removeWaiting takes back a part that waits. It reports false if the transfer has begun.
func (g *Group) removeWaiting(at *meeting, p *part) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(at.waiting, p)
	if i < 0 {
		return false
	}
	at.waiting = slices.Delete(at.waiting, i, i+1)
	return true
}
