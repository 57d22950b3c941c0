package rpc

import "context"

// Numbers of calls about what runs, from remote_protocol.x.
const (
	procNetworkIsActive = 152
	procDomainCreate    = 196 // with flags
	procDomainState     = 212
)

// A State is what a domain does (virDomainState).
type State uint32

// States of domains.
const (
	Running  State = 1
	Blocked  State = 2 // it runs, and waits for a device
	Paused   State = 3
	Stopping State = 4
	Off      State = 5
	Crashed  State = 6
	Asleep   State = 7
)

// A Reason is why a domain is in its state. Each state has its own.
type Reason uint32

// Reasons for Paused and for Off.
const (
	PausedByIO     Reason = 5
	PausedToStart  Reason = 11
	OffByGuest     Reason = 1
	OffBySomebody  Reason = 2
	OffByCrash     Reason = 3
	OffByFailure   Reason = 6
	OffByItsDaemon Reason = 8
)

// DomainState tells what a domain does, and why.
func (c *Client) DomainState(ctx context.Context, d Domain) (State, Reason, error) {
	r, err := c.call(ctx, procDomainState, args{}.domain(d).uint32(0))
	if err != nil {
		return 0, 0, err
	}
	return State(r.uint32()), Reason(r.uint32()), r.err
}

// StartDomain powers a domain on. One that is on is an *Error.
func (c *Client) StartDomain(ctx context.Context, d Domain) error {
	_, err := c.change(ctx, procDomainCreate, args{}.domain(d).uint32(0))
	return err
}

// Network looks for the network of a name, and tells whether it is active.
func (c *Client) Network(ctx context.Context, name string) (there, active bool, err error) {
	r, err := c.call(ctx, procNetworkByName, args{}.string(name))
	if IsCode(err, NoNetwork) {
		return false, false, nil
	}
	if err != nil {
		return false, false, err
	}
	network := r.pool() // of the same form
	if r.err != nil {
		return false, false, r.err
	}
	r, err = c.call(ctx, procNetworkIsActive, args{}.pool(network))
	if err != nil {
		return true, false, err
	}
	return true, r.uint32() != 0, r.err
}
