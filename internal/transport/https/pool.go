package https

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// pool is the connections to one host, shared by all its disks. It starts no goroutine:
// whoever needs a new connection dials it, whoever receives bytes moves the clock of the
// controller.
type pool struct {
	host Host
	opts Options

	body atomic.Int64 // bytes of bodies handed to readers
	wire atomic.Int64 // bytes received below TLS
	due  atomic.Int64 // when the controller wants to be asked next, Unix nanoseconds

	mu      sync.Mutex
	conns   []*conn
	lines   rotation
	control *control
	want    int // connections, as applied last
	closed  bool
}

func newPool(host Host, opts Options) *pool {
	c := newControl(opts.MaxConnections, opts.Now())
	return &pool{host: host, opts: opts, control: c, want: c.want}
}

// addDisk gives a disk its line; leave takes it away.
func (p *pool) addDisk() *diskQueue {
	l := new(diskQueue)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines.addQueue(l)
	return l
}

func (p *pool) removeDisk(l *diskQueue) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines.removeQueue(l)
}

// isShared reports whether other disks are read, too.
func (p *pool) isShared() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.lines.queues) > 1
}

// acquire returns a connection that has room for one more request, dialling a new one if
// its number allows. The caller sends on it or drops it.
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

// admitConn lets others use a connection that was just dialled.
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

// claimConn waits for the disk's turn and for room on a connection.
func (p *pool) claimConn(ctx context.Context, l *diskQueue, t *ticket) (*conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, errClosed()
	}
	p.lines.push(l, t)
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

// dropTicket takes back a ticket, or what it was served in the meantime.
func (p *pool) dropTicket(l *diskQueue, t *ticket) {
	p.mu.Lock()
	waiting := p.lines.remove(l, t)
	p.mu.Unlock()
	if waiting {
		return
	}
	if c := <-t.served; c != nil {
		p.release(c)
	}
}

func errClosed() error {
	return fault.New(fault.Canceled, "the transport was closed")
}

// serveWaiting serves waiting requests as long as there is room. p.mu is held.
func (p *pool) serveWaiting() {
	for p.lines.waitingCount() > 0 {
		c := p.connWithRoom()
		if c == nil {
			return
		}
		c.busy++
		p.lines.pop().served <- c
	}
}

// connWithRoom returns the connection that the next request should use: an idle one, else a new
// one, else the least busy; nil if there is no room.
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

// release gives back room on a connection in good order.
func (p *pool) release(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.busy--
	if c.busy == 0 && (c.retiring || !c.ready) {
		p.removeConn(c)
	}
	p.serveWaiting()
}

// abandonAnswer gives back room on a connection that still owes an answer nobody will read.
func (p *pool) abandonAnswer(c *conn) {
	p.mu.Lock()
	c.retiring = true
	p.mu.Unlock()
	p.release(c)
}

// dropConn closes a connection.
func (p *pool) dropConn(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.removeConn(c)
	p.serveWaiting()
}

// removeConn closes c and forgets it. p.mu is held; closing a socket does not block.
func (p *pool) removeConn(c *conn) {
	c.closeSocket()
	p.conns = slices.DeleteFunc(p.conns, func(other *conn) bool { return other == c })
}

// countReceived counts what came from a socket and asks the controller when it is time.
func (p *pool) countReceived(n int) {
	p.wire.Add(int64(n))
	if now := p.opts.Now(); now.UnixNano() >= p.due.Load() {
		p.decideConnections(now)
	}
}

func (p *pool) decideConnections(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.control.tick(now, p.body.Load(), p.lines.waitingCount() > 0)
	p.applyDecision()
}

// reportDistress tells the controller that the host refused or reset something.
func (p *pool) reportDistress() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.control.distress(p.opts.Now())
	p.applyDecision()
}

// reportFirstByte tells the controller how long the host took to begin an answer.
func (p *pool) reportFirstByte(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.control.firstByte(p.opts.Now(), d)
	p.applyDecision()
}

// applyDecision does what the controller decided. p.mu is held.
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

// retireConn closes a connection when its last answer was read. p.mu is held.
func (p *pool) retireConn(c *conn) {
	c.retiring = true
	if c.busy == 0 {
		p.removeConn(c)
	}
}

// close ends all connections and sends the waiting away. Connections being dialled are
// ended by those who dial.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for t := p.lines.pop(); t != nil; t = p.lines.pop() {
		t.served <- nil
	}
	for _, c := range slices.Clone(p.conns) {
		if c.ready {
			p.removeConn(c)
		}
	}
}
