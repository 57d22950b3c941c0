package export

import (
	"context"
	"net/netip"
	"time"
)

// Resolver queries the name service, as *net.Resolver does.
type Resolver interface {
	LookupAddr(ctx context.Context, addr string) ([]string, error)
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// bounded is a Resolver with less patience than a resolver has for servers that are silent, 10
// seconds a name and more.
type bounded struct{ Resolver }

const lookupWait = 3 * time.Second

func (b bounded) LookupAddr(ctx context.Context, addr string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupWait)
	defer cancel()
	return b.Resolver.LookupAddr(ctx, addr)
}

func (b bounded) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupWait)
	defer cancel()
	return b.Resolver.LookupNetIP(ctx, network, host)
}
