package vsphere

import (
	"errors"
	"sync"

	"github.com/decamp/decamp/internal/lab/socket"
)

// ports are those the lab has until it is closed, whether it listens at them or not: a host that
// restarts finds its own where they were.
type ports struct {
	mu   sync.Mutex
	kept []*socket.Kept
}

// keep returns addr, with a port that is the lab's. One that cannot be had is left to whoever
// listens there to explain.
func (p *ports) keep(addr string) string {
	k, err := socket.Keep(addr)
	if err != nil {
		return addr
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept = append(p.kept, k)
	return k.Addr()
}

func (p *ports) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, k := range p.kept {
		errs = append(errs, k.Close())
	}
	p.kept = nil
	return errors.Join(errs...)
}
