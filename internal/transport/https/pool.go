package https

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// pool contains the connections to one host, which all disks share. It starts no goroutine: the reader
// that needs a connection dials it, and a reader that receives bytes calls the controller. It is safe
// for concurrent use.
type pool struct {
	host Host    // ESXi or vCenter
	opts Options // options with defaults

	body atomic.Int64 // bytes of bodies that were read: the goodput
	wire atomic.Int64 // bytes received below TLS
	due  atomic.Int64 // time of the controller's next decision, in Unix nanoseconds

	mu       sync.Mutex // guards the fields below, and those of each conn that are marked so
	conns    []*conn    // connections that are open or being dialed
	rotation rotation   // waiting requests of all disks
	control  *control   // determines the number of connections
	want     int        // number of connections that was applied last
	closed   bool       // close was called
}

// newPool returns a pool without connections.
func newPool(host Host, opts Options) *pool {
	c := newControl(opts.MaxConnections, opts.Now())
	return &pool{host: host, opts: opts, control: c, want: c.want}
}

// addDisk adds the queue of another disk. The caller must call removeDisk.
func (p *pool) addDisk() *diskQueue {
	l := new(diskQueue)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rotation.addQueue(l)
	return l
}

// removeDisk removes the queue of a disk that is closed.
func (p *pool) removeDisk(l *diskQueue) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rotation.removeQueue(l)
}

// isShared reports whether several disks are read.
func (p *pool) isShared() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.rotation.queues) > 1
}

// acquire returns a connection with room for one more request. It dials a new one if the controller
// allows it. The caller sends on the connection or drops it.
func (p *pool) acquire(ctx context.Context, l *diskQueue, t *ticket) (*conn, error) {
	c, err := p.claimConn(ctx, l, t)
	if err != nil || c.wire != nil {
		return c, err
	}
	if err := c.dial(ctx); err != nil {
		p.dropConn(c)
		return nil, err
	}
	return c, p.admitConn(c)
}

// admitConn makes a connection that was just dialed available to others.
func (p *pool) admitConn(c *conn) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		p.removeConn(c)
		return errClosed()
	}
	c.ready = true
	p.serveWaiting()
	return nil
}

// startExchange sends a request on the first connection with room for it.
func (p *pool) startExchange(ctx context.Context, l *diskQueue, t *ticket, request []byte) (*exchange, error) {
	c, err := p.acquire(ctx, l, t)
	if err != nil {
		return nil, err
	}
	x, err := c.sendRequest(request)
	if err != nil {
		p.dropConn(c)
		return nil, err
	}
	return x, nil
}

// claimConn waits for the disk's turn and for room on a connection, which may not be dialed yet.
func (p *pool) claimConn(ctx context.Context, l *diskQueue, t *ticket) (*conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, errClosed()
	}
	p.rotation.push(l, t)
	p.serveWaiting()
	p.mu.Unlock()
	select {
	case c := <-t.served:
		if c == nil {
			return nil, errClosed()
		}
		return c, nil
	case <-ctx.Done():
		p.dropTicket(l, t)
		return nil, ctx.Err()
	}
}

// dropTicket removes a ticket, or releases the connection that it got meanwhile.
func (p *pool) dropTicket(l *diskQueue, t *ticket) {
	p.mu.Lock()
	waiting := p.rotation.remove(l, t)
	p.mu.Unlock()
	if waiting {
		return
	}
	if c := <-t.served; c != nil {
		p.release(c)
	}
}

// errClosed returns the error of all calls after Transport.Close.
func errClosed() error {
	return fault.New(fault.Canceled, "the transport was closed")
}

// serveWaiting assigns connections to waiting requests while there is room. mu must be held.
func (p *pool) serveWaiting() {
	for p.rotation.waitingCount() > 0 {
		c := p.connWithRoom()
		if c == nil {
			return
		}
		c.busy++
		p.rotation.pop().served <- c
	}
}

// connWithRoom returns the connection for the next request: an idle one, else a new one, else the least
// busy; nil if there is no room. mu must be held.
func (p *pool) connWithRoom() *conn {
	var best *conn
	for _, c := range p.conns {
		if c.ready && !c.retiring && c.busy < depth && (best == nil || c.busy < best.busy) {
			best = c
		}
	}
	if len(p.conns) < p.control.want && (best == nil || best.busy > 0) {
		best = &conn{pool: p, gone: make(chan struct{})}
		p.conns = append(p.conns, best)
	}
	return best
}

// release ends the use of a connection that is in order.
func (p *pool) release(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.busy--
	if c.busy == 0 && (c.retiring || !c.ready) {
		p.removeConn(c)
	}
	p.serveWaiting()
}

// abandonAnswer ends the use of a connection whose answer will not be read. It is closed after its
// other exchange.
func (p *pool) abandonAnswer(c *conn) {
	p.mu.Lock()
	c.retiring = true
	p.mu.Unlock()
	p.release(c)
}

// dropConn closes a connection that failed.
func (p *pool) dropConn(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.removeConn(c)
	p.serveWaiting()
}

// removeConn closes c and removes it from the pool. mu must be held; closing a socket does not block.
func (p *pool) removeConn(c *conn) {
	c.closeSocket()
	p.conns = slices.DeleteFunc(p.conns, func(other *conn) bool { return other == c })
}

// countReceived counts bytes from a socket, and calls the controller when a decision is due.
func (p *pool) countReceived(n int) {
	p.wire.Add(int64(n))
	if now := p.opts.Now(); now.UnixNano() >= p.due.Load() {
		p.decideConnections(now)
	}
}

// decideConnections lets the controller decide.
func (p *pool) decideConnections(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.control.tick(now, p.body.Load(), p.rotation.waitingCount() > 0)
	p.applyDecision()
}

// reportDistress reports a refused or reset connection to the controller.
func (p *pool) reportDistress() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.control.distress(p.opts.Now())
	p.applyDecision()
}

// reportFirstByte reports to the controller how long the host needed to begin an answer.
func (p *pool) reportFirstByte(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.control.firstByte(p.opts.Now(), d)
	p.applyDecision()
}

// applyDecision applies the controller's number: it retires surplus connections, and serves waiting
// requests. mu must be held.
func (p *pool) applyDecision() {
	p.due.Store(p.control.due.UnixNano())
	if p.want != p.control.want {
		p.want = p.control.want
		p.opts.Log.Debug("connections", "host", p.host.Addr(), "want", p.want, "rate", int64(p.control.rate))
	}
	surplus := -p.control.want
	for _, c := range p.conns {
		if !c.retiring {
			surplus++
		}
	}
	for _, c := range slices.Clone(p.conns) {
		if surplus > 0 && !c.retiring {
			surplus--
			p.retireConn(c)
		}
	}
	p.serveWaiting()
}

// retireConn closes a connection after its last answer was read. mu must be held.
func (p *pool) retireConn(c *conn) {
	c.retiring = true
	if c.busy == 0 {
		p.removeConn(c)
	}
}

// close closes all connections and ends the waits of all requests. Connections that are being dialed
// are closed by their goroutines.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for t := p.rotation.pop(); t != nil; t = p.rotation.pop() {
		t.served <- nil
	}
	for _, c := range slices.Clone(p.conns) {
		if c.ready {
			p.removeConn(c)
		}
	}
}
