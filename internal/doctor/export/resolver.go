package export

import (
	"context"
	"net/netip"
	"time"
)

// Resolver queries the name service. *net.Resolver implements it.
type Resolver interface {
	LookupAddr(ctx context.Context, addr string) ([]string, error)               // names of an address
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) // addresses of a name
}

// boundedResolver is a Resolver with a time limit. The system's resolver waits 10
// seconds or more per name for servers that do not answer.
type boundedResolver struct{ Resolver }

// lookupWait limits one query.
const lookupWait = 3 * time.Second

// LookupAddr is part of Resolver.
func (b boundedResolver) LookupAddr(ctx context.Context, addr string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupWait)
	defer cancel()
	return b.Resolver.LookupAddr(ctx, addr)
}

// LookupNetIP is part of Resolver.
func (b boundedResolver) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupWait)
	defer cancel()
	return b.Resolver.LookupNetIP(ctx, network, host)
}
