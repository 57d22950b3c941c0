package rpc

import "context"

// Numbers of calls about what runs, from remote_protocol.x.
const (
	procNetworkIsActive = 152 // REMOTE_PROC_NETWORK_IS_ACTIVE
	procDomainCreate    = 196 // REMOTE_PROC_DOMAIN_CREATE_WITH_FLAGS: starts a defined domain
	procDomainState     = 212 // REMOTE_PROC_DOMAIN_GET_STATE
)

// State is the state of a domain (virDomainState).
type State uint32

// States of domains.
const (
	Running  State = 1 // the guest runs
	Blocked  State = 2 // the guest runs and waits for a device
	Paused   State = 3 // the CPUs are stopped; see Reason
	Stopping State = 4 // the guest is shutting down
	Off      State = 5 // there is no QEMU process
	Crashed  State = 6 // the guest crashed
	Asleep   State = 7 // suspended to memory by the guest
)

// Reason is the cause of a state. The numbers differ for each state.
type Reason uint32

// Reasons for Paused and for Off.
const (
	PausedByIO    Reason = 5  // QEMU could not read or write a disk
	PausedToStart Reason = 11 // the start is not complete
	OffByGuest    Reason = 1  // the guest shut down
	OffByClient   Reason = 2  // a client destroyed the domain
	OffByCrash    Reason = 3  // QEMU or the guest crashed
	OffByFailure  Reason = 6  // the start failed
	OffByDaemon   Reason = 8  // libvirt lost the process when it restarted
)

// DomainState returns the state of a domain and its cause.
func (c *Client) DomainState(ctx context.Context, d Domain) (State, Reason, error) {
	r, err := c.call(ctx, procDomainState, args{}.domain(d).uint32(0))
	if err != nil {
		return 0, 0, err
	}
	return State(r.uint32()), Reason(r.uint32()), r.err
}

// StartDomain powers a domain on. If it is on, the error is an *Error.
func (c *Client) StartDomain(ctx context.Context, d Domain) error {
	_, err := c.callChange(ctx, procDomainCreate, args{}.domain(d).uint32(0))
	return err
}

// Network reports whether a network exists and whether it is active.
func (c *Client) Network(ctx context.Context, name string) (there, active bool, err error) {
	r, err := c.call(ctx, procNetworkByName, args{}.string(name))
	if IsCode(err, NoNetwork) {
		return false, false, nil
	}
	if err != nil {
		return false, false, err
	}
	network := r.pool() // networks and pools have the same encoding
	if r.err != nil {
		return false, false, r.err
	}
	r, err = c.call(ctx, procNetworkIsActive, args{}.pool(network))
	if err != nil {
		return true, false, err
	}
	return true, r.uint32() != 0, r.err
}
