package fanout

import (
	"context"
	"slices"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/transport"
)

// Member is the transport of one run of a Group. It is a transport.Transport.
type Member struct {
	group *Group // group of the run
	left  bool   // the run is over; the group's mu guards it
}

var _ transport.Transport = (*Member)(nil)

// Name is part of transport.Transport.
func (m *Member) Name() string { return m.group.inner.Name() }

// Supports is part of transport.DiskSupporter.
func (m *Member) Supports(code string) bool { return transport.Supports(m.group.inner, code) }

// Probe is part of transport.Transport.
func (m *Member) Probe(ctx context.Context, d transport.Disk) (transport.Offer, error) {
	return m.group.inner.Probe(ctx, d)
}

// Transfer is part of transport.Transport. It waits for the other members, and returns the result of
// the transfer that they share.
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

// Settle reports that this run needs no transfer, or no further one, of the disk with that key. The
// other runs do not wait for it there.
func (m *Member) Settle(key int32) {
	g := m.group
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.stateOf(key)
	at.settled[m] = true
	g.beginIfReady(at)
}

// Close is part of transport.Transport. The run is over, and the others do not wait for it any more.
// The inner transport stays open.
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

// addPart adds a part to the state of its disk, and starts the transfer if it is the last one.
func (g *Group) addPart(p *part) *diskState {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.stateOf(p.job.Disk.Disk.Key)
	at.waiting = append(at.waiting, p)
	g.beginIfReady(at)
	return at
}

// removeWaiting removes a waiting part. It returns false if its transfer has begun.
func (g *Group) removeWaiting(at *diskState, p *part) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(at.waiting, p)
	if i < 0 {
		return false
	}
	at.waiting = slices.Delete(at.waiting, i, i+1)
	return true
}
